"""The chunked loss against torch's linear layer and cross entropy: forward and backward of 700 rows.

Time side by side; peak memory in a process of its own for each side, beyond what was there before and beyond
the gradients, which both sides have to give.

    python -m benchmarks.output_layer [--vocabulary 10000 77000]
"""

import argparse
import multiprocessing
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.side_by_side import compare, describe_machine, line, refuse
from memtune.models.layers.output import chunked_negative_log_likelihood
from memtune.training.memory import forget_peak, peak_bytes, resident_bytes
from tests.oracles.agreement import assert_near

ROWS, WIDTH = 20 * 35, 128
TIME_MUST, TIME_GOAL = 1.4, 1.9
MEMORY_MUST, MEMORY_GOAL = 4, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[10_000, 77_000])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    for words in arguments.vocabulary:
        print(measure(words, arguments.repeats), flush=True)
    print(measure_memory(max(arguments.vocabulary)))


def measure(words: int, repeats: int) -> str:
    leaves, targets = problem(words)
    plain, chunked = step(plain_loss, leaves, targets), step(chunked_negative_log_likelihood, leaves, targets)
    try:
        require_agreement(plain(), chunked())
    except AssertionError as error:
        raise refuse(error) from None
    ratio = compare(plain, chunked, repeats)
    name = f"linear + cross_entropy time / chunked loss time, V={words // 1000}k"
    return ratio.line(name, TIME_GOAL, TIME_MUST)


def measure_memory(words: int) -> str:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, maxtasksperchild=1) as pool:
        plain, chunked = pool.starmap(
            extra_bytes, [(plain_loss, words), (chunked_negative_log_likelihood, words)], chunksize=1
        )
    name = f"linear + cross_entropy peak memory / chunked loss peak memory, V={words // 1000}k"
    detail = f"{plain / 2**20:.0f} MiB / {chunked / 2**20:.0f} MiB beyond the gradients"
    return line(name, plain / chunked, MEMORY_GOAL, MEMORY_MUST, detail=detail)


def extra_bytes(loss: Callable[..., Tensor], words: int) -> int:
    """The most that a process holds during a step over what it held before, without the gradients."""
    torch.set_num_threads(1)
    step(loss, *problem(100))()  # what libraries load once
    leaves, targets = problem(words)
    forget_peak(torch.device("cpu"))
    before = resident_bytes()
    step(loss, leaves, targets)()
    gradients = sum(leaf.nbytes for leaf in leaves)
    return peak_bytes(torch.device("cpu")) - before - gradients


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
