"""RM(+tM-g) against an LSTM of the same width and output layer: a training step, and the body alone.

The step reads 20 x 35 words: loss, back-propagation, clipping, SGD. The body excludes the output layer and
the optimiser.

    python -m benchmarks.recurrent_memory [--vocabulary 10000 77000]
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_agreement
from memtune.models import (
    LSTMConfig,
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
    build_model,
    negative_log_likelihood,
)
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater, enable_sparse_gradients
from tests.oracles.lstm import compute_lstm_logits
from tests.oracles.recurrent_memory import compute_recurrent_memory_logits

BATCH, STEPS, WIDTH = 20, 35, 128
MEMORY = RecurrentMemoryConfig(width=WIDTH, memory_size=15)
LINEAR_MEMORY = RecurrentMemoryConfig(width=WIDTH, memory_size=15, composition="sum")
LSTM = LSTMConfig(width=WIDTH)
STEP_BOUNDS = {10_000: (0.82, 0.90), 77_000: (0.95, 0.98)}
BODY_BOUNDS = {"gate": (2.9, 2.3), "sum": (1.9, 1.5)}
"""Must and goal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[10_000, 77_000])
    parser.add_argument("--repeats", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    require_agreement()
    print(describe_machine())
    for words in arguments.vocabulary:
        for line in measure(words, arguments.repeats):
            print(line, flush=True)


def require_agreement() -> None:
    """Compare loss and gradients of both models with the equations, in float64 at the measured width."""
    words_BT = torch.randint(300, (2, STEPS + 1), generator=torch.Generator().manual_seed(0))
    oracles = [
        (LSTM, compute_lstm_logits),
        (MEMORY, compute_recurrent_memory_logits),
        (LINEAR_MEMORY, compute_recurrent_memory_logits),
    ]
    for config, oracle in oracles:
        try:
            assert_agreement(build_model(config, 300, seed=0), oracle, words_BT, tolerance=1e-5)
        except AssertionError as error:
            raise make_refusal(error) from None


def measure(words: int, repeats: int) -> list[str]:
    step = compare_times(make_training_step(LSTM, words), make_training_step(MEMORY, words), repeats)
    name = f"RM tokens/s / LSTM, same head, V={words // 1000}k"
    must, goal = STEP_BOUNDS.get(words, STEP_BOUNDS[10_000])
    lines = [step.format_measure(name, goal, must)]
    for config in (MEMORY, LINEAR_MEMORY):
        ratio = compare_times(make_body_step(config, words), make_body_step(LSTM, words), repeats)
        name = f"RM body ({config.composition}) / nn.LSTM body time, V={words // 1000}k"
        must, goal = BODY_BOUNDS[config.composition]
        lines.append(ratio.format_measure(name, goal, must, at_most=True))
    return lines


def make_training_step(config: NeuralLanguageModelConfig, words: int) -> Callable[[], None]:
    """Loss, back-propagation, clipping and SGD as in a trial."""
    model, inputs_BT, targets_BT = (
        build_model(config, words, seed=0),
        make_text(words, 0),
        make_text(words, 1),
    )
    updates = ModelUpdater(TrainingConfig(epochs=1), model, torch.device("cpu"))
    state = model.initial_state(BATCH)

    def run() -> None:
        nats, _ = negative_log_likelihood(model, inputs_BT, targets_BT, state=state)
        updates.step([nats / (BATCH * STEPS)], learning_rate=1.0)

    return run


def make_body_step(config: NeuralLanguageModelConfig, words: int) -> Callable[[], None]:
    """Forward and backward pass of embedding, layers and memory, from a gradient of the body's output.

    On both sides tables give the gradients of the rows read, as in a trial.
    """
    model: NeuralLanguageModel = build_model(config, words, seed=0)
    enable_sparse_gradients(model)
    inputs_BT, state = make_text(words, 0), model.initial_state(BATCH)
    gradient_BTH = torch.randn(BATCH, STEPS, WIDTH, generator=torch.Generator().manual_seed(2))

    def run() -> None:
        model.zero_grad()
        hidden_BTH, _ = model.encode(inputs_BT, state)
        hidden_BTH.backward(gradient_BTH)

    return run


def make_text(words: int, seed: int) -> torch.Tensor:
    return torch.randint(words, (BATCH, STEPS), generator=torch.Generator().manual_seed(seed))


if __name__ == "__main__":
    main()
