"""An LSTMN layer against an eager loop of the equations, and an LSTMN's training step against an LSTM's.

The layer has embeddings of 150 and a width of 300 as in Cheng et al. (2016), section 5.1; its time is a
forward and a backward pass from the gradient of its hidden states. The step is loss, back-propagation,
clipping and SGD of a whole model with 10,000 words and the same output layer on both sides.

    python -m benchmarks.lstmn [--repeats 15]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_agreement, assert_near
from memtune.models import LSTMConfig, NeuralLanguageModelConfig, build_model, negative_log_likelihood
from memtune.models.families.lstmn import LSTMNConfig, LSTMNLayer
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater
from tests.oracles.lstmn import compute_lstmn_logits, run_reference_layer

EMBEDDING, WIDTH, WORDS = 150, 300, 10_000
LAYER_CASES = [(40, 35, 1.8, 2.7), (20, 100, 2.5, 4.5)]
"""Rows, words per row, must and goal."""
STEP_BATCH, STEP_LENGTH, STEP_MUST, STEP_GOAL = 40, 35, 0.72, 0.82


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    try:
        require_agreement()
    except AssertionError as error:
        raise make_refusal(error) from None
    print(describe_machine())
    for batch, length, must, goal in LAYER_CASES:
        slow, fast = (make_layer_step(read, batch, length) for read in (run_reference_layer, run_layer))
        name = f"LSTMN layer / eager loop as written, B={batch}, T={length}"
        print(compare_times(slow, fast, repeats).format_measure(name, goal, must), flush=True)
    lstm, lstmn = LSTMConfig(width=WIDTH), LSTMNConfig(width=WIDTH)
    ratio = compare_times(make_training_step(lstm), make_training_step(lstmn), repeats)
    name = f"LSTMN tokens/s / LSTM, same head, V={WORDS // 1000}k, T={STEP_LENGTH}"
    print(ratio.format_measure(name, STEP_GOAL, STEP_MUST))


def require_agreement() -> None:
    """Compare the model with its equations, and both sides with each other, in float64 at this width."""
    config = LSTMNConfig(width=WIDTH, embedding_width=EMBEDDING)
    words_BT = torch.randint(50, (1, 36), generator=torch.Generator().manual_seed(0))
    assert_agreement(build_model(config, 50, seed=0), compute_lstmn_logits, words_BT, tolerance=1e-5)
    for batch, length, *_ in LAYER_CASES:
        fast, slow = (
            compute_layer_gradients(make_layer().double(), read, make_inputs(batch, length).double())
            for read in (run_layer, run_reference_layer)
        )
        for value, reference in zip(fast, slow, strict=True):
            assert_near(value, reference, 1e-9, f"layer, T={length}")


def compute_layer_gradients(
    layer: LSTMNLayer, forward: Callable[..., Tensor], inputs_BTE: Tensor
) -> tuple[Tensor, ...]:
    hidden_BTH = forward(layer, inputs_BTE)
    total = (hidden_BTH * make_output_gradient(*inputs_BTE.shape[:2])).sum()
    return hidden_BTH, *torch.autograd.grad(total, list(layer.parameters()))


def run_layer(layer: LSTMNLayer, inputs_BTE: Tensor) -> Tensor:
    batch = len(inputs_BTE)
    zeros = inputs_BTE.new_zeros(batch, 1, 2 * WIDTH), inputs_BTE.new_zeros(batch, WIDTH)
    tape_BND, _, _ = layer(inputs_BTE, *zeros)
    return tape_BND[:, 1:, :WIDTH]


def make_layer_step(forward: Callable[..., Tensor], batch: int, length: int) -> Callable[[], None]:
    layer, inputs_BTE = make_layer(), make_inputs(batch, length).requires_grad_()
    gradient_BTH = make_output_gradient(batch, length)

    def run() -> None:
        layer.zero_grad()
        inputs_BTE.grad = None
        forward(layer, inputs_BTE).backward(gradient_BTH)

    return run


def make_training_step(config: NeuralLanguageModelConfig) -> Callable[[], None]:
    """Loss, back-propagation, clipping and SGD as in a trial."""
    model = build_model(config, WORDS, seed=0)
    updates = ModelUpdater(TrainingConfig(epochs=1), model, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    inputs_BT, targets_BT = torch.randint(WORDS, (2, STEP_BATCH, STEP_LENGTH), generator=generator)

    def run() -> None:
        nats, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
        updates.step([nats / (STEP_BATCH * STEP_LENGTH)], learning_rate=1.0)

    return run


def make_layer() -> LSTMNLayer:
    layer = LSTMNLayer(EMBEDDING, WIDTH, max_slots=None, previous_attention=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-0.05, 0.05, generator=generator)
    return layer


def make_inputs(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, EMBEDDING, generator=torch.Generator().manual_seed(1))


def make_output_gradient(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(2))


if __name__ == "__main__":
    main()
