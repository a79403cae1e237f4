"""precision = "bfloat16" against "float32" on this processor: tokens per second of a training step.

The step reads 20 x 35 words over a vocabulary of 10,000: loss, back-propagation, clipping, SGD. No time is
reported if the losses of the steps differ by more than 0.2 %, or if the mean validation loss of a small model
over three seeds differs by more than the spread of the seeds. Skipped without bfloat16 instructions.

    python -m benchmarks.bfloat16
    python -m benchmarks.bfloat16 --default-malloc   # without `keep_freed_memory`, which trials use
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from benchmarks.recurrent_memory import BATCH, STEPS, make_text
from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.corpora import Corpus
from memtune.models import LSTMConfig, NeuralLanguageModelConfig, build_model, negative_log_likelihood
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.training import GradientTrainer, TrialConfig
from memtune.training.devices import has_bfloat16_instructions
from memtune.training.memory_footprint import keep_freed_memory
from memtune.training.optimisation.matmul_backend import select_backend
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater
from tests.golden.tiny_corpus import make_tiny_corpus

Precision = Literal["float32", "bfloat16"]

WORDS = 10_000
CASES: dict[str, tuple[NeuralLanguageModelConfig, float]] = {
    "RM, d=128": (RecurrentMemoryConfig(width=128, memory_size=15), 1.3),
    "LSTM, d=512": (LSTMConfig(width=512), 1.5),
}
"""Models and the smallest speedup that each must reach."""
GOAL = 2.0
MAX_LOSS_DIFFERENCE = 0.002
SEEDS = range(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--default-malloc", action="store_true", help="let glibc return freed memory")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not has_bfloat16_instructions():
        print("skipped: this processor has no bfloat16 instructions")
        return
    if arguments.default_malloc:
        print("glibc returns freed memory to the system")
    else:
        keep_freed_memory()
        require_equal_validation()
    print(f"{describe_machine()}, float32 kernels: {select_backend().kernels}")
    for name, (config, must) in CASES.items():
        exact, rounded = make_step(config, "float32"), make_step(config, "bfloat16")
        require_equal_losses(name, exact(), rounded())
        ratio = compare_times(exact, rounded, arguments.repeats)
        print(ratio.format_measure(f"bfloat16 tokens/s / float32, {name}", GOAL, must), flush=True)


def require_equal_validation() -> None:
    """Train a small LSTM in both precisions under three seeds; refuse a difference beyond seed noise."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_tiny_corpus(Path(folder))
        losses = {
            precision: [train_small_model(corpus, precision, seed) for seed in SEEDS]
            for precision in ("float32", "bfloat16")
        }
    difference = abs(statistics.mean(losses["bfloat16"]) - statistics.mean(losses["float32"]))
    spread = statistics.stdev(losses["float32"])
    print(
        f"validation of three seeds, in nats: difference of the means {difference:.2g}, spread {spread:.2g}"
    )
    if difference > spread:
        raise make_refusal(AssertionError(f"bfloat16 changes validation by {difference:.4f} nats"))


def train_small_model(corpus: Corpus, precision: Precision, seed: int) -> float:
    training = {
        "epochs": 4,
        "precision": precision,
        "optimiser": {"kind": "adam", "learning_rate": 0.01},
    }
    model = {"family": "lstm", "width": 32}
    trainer = GradientTrainer(
        TrialConfig.model_validate({"model": model, "training": training, "seed": seed}), corpus
    )
    while not trainer.is_finished:
        trainer.advance()
    loss = trainer.curve[-1].valid_loss
    assert loss is not None, "the small model does not diverge"
    return loss


def make_step(config: NeuralLanguageModelConfig, precision: Precision) -> Callable[[], float]:
    """One training step as in a trial, which returns its loss in nats per token."""
    model = build_model(config, WORDS, seed=0)
    updates = ModelUpdater(TrainingConfig(epochs=1, precision=precision), model, torch.device("cpu"))
    inputs_BT, targets_BT, state = make_text(WORDS, 0), make_text(WORDS, 1), model.initial_state(BATCH)

    def run() -> float:
        with updates.autocast():
            nats, _ = negative_log_likelihood(model, inputs_BT, targets_BT, state=state)
        loss = nats / (BATCH * STEPS)
        updates.step([loss], learning_rate=1.0)
        return float(loss.detach())

    return run


def require_equal_losses(name: str, exact: float, rounded: float) -> None:
    difference = abs(rounded / exact - 1)
    if difference > MAX_LOSS_DIFFERENCE:
        raise make_refusal(AssertionError(f"{name}: loss {rounded:.5f} in bfloat16, {exact:.5f} in float32"))


if __name__ == "__main__":
    main()
