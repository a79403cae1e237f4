"""A training step of the LSTM against the usual step in torch, and against the machine's fastest GEMM.

Both sides read 20 x 35 words at width 128: loss, back-propagation, clipping, SGD, from the same weights. The
plain side is nn.Embedding, nn.LSTM, nn.Linear, cross_entropy, clip_grad_norm_ and torch.optim.SGD. The
roofline is the time that the multiply-adds of the step would take at the speed of the fastest of the three
matrix products of an output layer, timed alternately with the step, into preallocated results.

    python -m benchmarks.lstm_step [--vocabulary 10000 77000]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_near
from memtune.models import LSTMConfig, build_model, negative_log_likelihood
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater

BATCH, STEPS, WIDTH = 20, 35, 128
LEARNING_RATE, CLIP = 1.0, 5.0
LSTM = LSTMConfig(width=WIDTH)
SPEED_BOUNDS = {10_000: (1.3, 1.8), 77_000: (1.8, 2.5)}
"""Must and goal by vocabulary with AVX-512. Elsewhere the plain step is nearer to the roofline: ours must not
be slower than it, and the roofline's bounds hold."""
ROOFLINE_BOUNDS = (0.50, 0.65)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[10_000, 77_000])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    for words in arguments.vocabulary:
        for line in measure(words, arguments.repeats):
            print(line, flush=True)


def measure(words: int, repeats: int) -> list[str]:
    try:
        require_agreement(words)
    except AssertionError as error:
        raise make_refusal(error) from None
    ours, size = OurStep(words), f"V={words // 1000}k"
    must, goal = SPEED_BOUNDS.get(words, SPEED_BOUNDS[10_000])
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        must = goal = 1.0
    speed = compare_times(PlainStep(words), ours, repeats)
    lines = [speed.format_measure(f"LSTM step, plain torch time / our time, {size}", goal, must)]
    work = 3 * BATCH * STEPS * LSTM.multiply_adds(words)
    shares = [
        compare_times(product, ours, repeats).scale(work / (BATCH * STEPS * WIDTH * words))
        for product in make_matmuls(words)
    ]
    must, goal = ROOFLINE_BOUNDS
    slowest = min(shares, key=lambda share: share.median)
    lines.append(slowest.format_measure(f"LSTM step, GEMM roofline time / our time, {size}", goal, must))
    return lines


class OurStep:
    """A training step as in a trial."""

    def __init__(self, words: int) -> None:
        self.model = build_model(LSTM, words, seed=0)
        self.updates = ModelUpdater(TrainingConfig(epochs=1, clip_norm=CLIP), self.model, torch.device("cpu"))
        self.batch = make_text(words)

    def compute_loss(self) -> Tensor:
        """Mean loss in nats per token."""
        nats, _ = negative_log_likelihood(self.model, *self.batch)
        return nats / (BATCH * STEPS)

    def __call__(self) -> Tensor:
        """Make one step; returns the loss before it."""
        loss = self.compute_loss()
        self.updates.step([loss], LEARNING_RATE)
        return loss.detach()


class PlainStep:
    """A training step of the same model, from the same weights, with modules and functions of torch."""

    def __init__(self, words: int) -> None:
        self.embedding = nn.Embedding(words, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, words)
        self.model = nn.ModuleList([self.embedding, self.lstm, self.output])
        with torch.no_grad():
            for own, same in zip(
                self.model.parameters(), build_model(LSTM, words, seed=0).parameters(), strict=True
            ):
                own.copy_(same)
        self.optimiser = torch.optim.SGD(self.model.parameters(), LEARNING_RATE)
        self.batch = make_text(words)

    def compute_loss(self) -> Tensor:
        """Mean loss in nats per token."""
        inputs_BT, targets_BT = self.batch
        hidden_BTH, _ = self.lstm(self.embedding(inputs_BT))
        return functional.cross_entropy(self.output(hidden_BTH).flatten(0, 1), targets_BT.flatten())

    def __call__(self) -> Tensor:
        """Make one step; returns the loss before it."""
        self.optimiser.zero_grad()
        loss = self.compute_loss()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        return loss.detach()


def require_agreement(words: int) -> None:
    """Compare the first gradients, and the losses before and after a step."""
    ours, plain = OurStep(words), PlainStep(words)
    names = [name for name, _ in ours.model.named_parameters()]
    gradients = (
        torch.autograd.grad(side.compute_loss(), list(side.model.parameters())) for side in (ours, plain)
    )
    for name, own, reference in zip(names, *gradients, strict=True):
        assert_near(own.to_dense(), reference.double(), 1e-5, f"gradient of {name}")
    for moment in ("before", "after"):
        assert_near(ours(), plain().double(), 1e-5, f"loss {moment} a step")


def make_matmuls(words: int) -> list[Callable[[], Tensor]]:
    """The matrix products of an output layer: logits, gradient of the hidden rows, gradient of the weight."""
    rows = BATCH * STEPS
    generator = torch.Generator().manual_seed(0)
    shapes = (rows, WIDTH), (words, WIDTH), (rows, words)
    hidden_NH, weight_VH, logits_NV = (torch.randn(shape, generator=generator) for shape in shapes)
    out_NV, out_NH, out_VH = (torch.zeros_like(like) for like in (logits_NV, hidden_NH, weight_VH))
    return [
        lambda: torch.mm(hidden_NH, weight_VH.t(), out=out_NV),
        lambda: torch.mm(logits_NV, weight_VH, out=out_NH),
        lambda: torch.mm(logits_NV.t(), hidden_NH, out=out_VH),
    ]


def make_text(words: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets."""
    generator = torch.Generator().manual_seed(1)
    inputs_BT, targets_BT = torch.randint(words, (2, BATCH, STEPS), generator=generator)
    return inputs_BT, targets_BT


if __name__ == "__main__":
    main()
