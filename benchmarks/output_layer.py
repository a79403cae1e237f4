"""The chunked loss against torch's linear layer and cross entropy: forward and backward of 700 rows.

python -m benchmarks.output_layer [--vocabulary 10000 77000]
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.side_by_side import compare, describe_machine, refuse
from memtune.models.layers.output import chunked_negative_log_likelihood
from tests.oracles.agreement import assert_near

ROWS, WIDTH = 20 * 35, 128
GOAL = 1.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[10_000, 77_000])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    for words in arguments.vocabulary:
        print(measure(words, arguments.repeats))


def measure(words: int, repeats: int) -> str:
    leaves, targets = problem(words)
    plain, chunked = step(plain_loss, leaves, targets), step(chunked_negative_log_likelihood, leaves, targets)
    try:
        require_agreement(plain(), chunked())
    except AssertionError as error:
        raise refuse(error) from None
    ratio = compare(plain, chunked, repeats)
    return ratio.line(f"linear + cross_entropy time / chunked loss time, V={words}", GOAL)


def problem(words: int) -> tuple[list[Tensor], Tensor]:
    """Hidden rows, weight and bias that want gradients, and targets."""
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, WIDTH), (words, WIDTH), (words,)
    leaves = [torch.randn(shape, generator=generator).mul_(0.1).requires_grad_() for shape in shapes]
    return leaves, torch.randint(words, (ROWS,), generator=generator)


def plain_loss(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor) -> Tensor:
    logits_NV = functional.linear(hidden_NH, weight_VH, bias_V)
    return functional.cross_entropy(logits_NV, targets_N, reduction="sum")


def step(
    loss: Callable[..., Tensor], leaves: list[Tensor], targets: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    def run() -> tuple[Tensor, ...]:
        nats = loss(*leaves, targets)
        return nats.detach(), *torch.autograd.grad(nats / ROWS, leaves)

    return run


def require_agreement(plain: tuple[Tensor, ...], chunked: tuple[Tensor, ...]) -> None:
    names = ["loss", "gradient of hidden", "gradient of weight", "gradient of bias"]
    for name, reference, value in zip(names, plain, chunked, strict=True):
        assert_near(value, reference.double(), 1e-5, name)


if __name__ == "__main__":
    main()
