"""The chunked loss against torch's linear layer and cross entropy: forward and backward of 700 rows.

Both sides are timed in alternation. Peak memory is measured in one process per side; it excludes the memory
before the step and the gradients, which both sides return.

    python -m benchmarks.output_layer [--vocabulary 10000 77000]
"""

import argparse
import multiprocessing
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.side_by_side import compare_times, describe_machine, format_measure, make_refusal
from memtune.model_checks.oracles import assert_near
from memtune.models.outputs.output_layer import compute_chunked_loss
from memtune.training.memory_footprint import measure_peak_bytes, measure_resident_bytes, reset_peak_memory

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
    leaves, targets = make_inputs(words)
    plain, chunked = (
        make_step(compute_plain_loss, leaves, targets),
        make_step(compute_loss_in_chunks, leaves, targets),
    )
    try:
        require_agreement(plain(), chunked())
    except AssertionError as error:
        raise make_refusal(error) from None
    ratio = compare_times(plain, chunked, repeats)
    name = f"linear + cross_entropy time / chunked loss time, V={words // 1000}k"
    return ratio.format_measure(name, TIME_GOAL, TIME_MUST)


def measure_memory(words: int) -> str:
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, maxtasksperchild=1) as pool:
        plain, chunked = pool.starmap(
            measure_extra_bytes,
            [(compute_plain_loss, words), (compute_loss_in_chunks, words)],
            chunksize=1,
        )
    name = f"linear + cross_entropy peak memory / chunked loss peak memory, V={words // 1000}k"
    detail = f"{plain / 2**20:.0f} MiB / {chunked / 2**20:.0f} MiB beyond the gradients"
    return format_measure(name, plain / chunked, MEMORY_GOAL, MEMORY_MUST, detail=detail)


def measure_extra_bytes(loss: Callable[..., Tensor], words: int) -> int:
    """Peak bytes of the process during a step, minus those before the step and those of the gradients."""
    torch.set_num_threads(1)
    make_step(
        loss, *make_inputs(100)
    )()  # the first step loads libraries, whose memory does not belong to the step
    leaves, targets = make_inputs(words)
    reset_peak_memory(torch.device("cpu"))
    before = measure_resident_bytes()
    make_step(loss, leaves, targets)()
    gradients = sum(leaf.nbytes for leaf in leaves)
    return measure_peak_bytes(torch.device("cpu")) - before - gradients


def make_inputs(words: int) -> tuple[list[Tensor], Tensor]:
    """Hidden rows, weight and bias that require gradients, and targets."""
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, WIDTH), (words, WIDTH), (words,)
    leaves = [torch.randn(shape, generator=generator).mul_(0.1).requires_grad_() for shape in shapes]
    return leaves, torch.randint(words, (ROWS,), generator=generator)


def compute_plain_loss(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, targets_N: Tensor) -> Tensor:
    logits_NV = functional.linear(hidden_NH, weight_VH, bias_V)
    return functional.cross_entropy(logits_NV, targets_N, reduction="sum")


def compute_loss_in_chunks(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return compute_chunked_loss(hidden, weight, bias, targets)[0]


def make_step(
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
