"""A softmax in two steps, class and word, against the chunked full softmax: forward and backward of 700 rows.

python -m benchmarks.class_factored [--vocabulary 64000]

The targets follow Zipf's law, like words of a text.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_near
from memtune.models.outputs.output_config import ClassFactoredConfig, SoftmaxConfig
from memtune.models.outputs.output_layer import OutputLayer
from memtune.models.outputs.word_classes import compute_zipf_counts

ROWS, WIDTH = 20 * 35, 128
MUST, GOAL = 5.0, 9.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[64_000])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    for words in arguments.vocabulary:
        print(measure(words, arguments.repeats))


def measure(words: int, repeats: int) -> str:
    hidden_NH, targets_N = make_inputs(words)
    full = initialise_layer(SoftmaxConfig().build(WIDTH, words))
    factored = initialise_layer(ClassFactoredConfig().build(WIDTH, words))
    try:
        require_agreement(factored, hidden_NH, targets_N)
    except AssertionError as error:
        raise make_refusal(error) from None
    ratio = compare_times(
        make_step(full, hidden_NH, targets_N), make_step(factored, hidden_NH, targets_N), repeats
    )
    return ratio.format_measure(f"full softmax time / class-factored time, V={words}", GOAL, MUST)


def make_inputs(words: int) -> tuple[Tensor, Tensor]:
    """Hidden rows that require gradients, and targets."""
    generator = torch.Generator().manual_seed(0)
    hidden_NH = torch.randn(ROWS, WIDTH, generator=generator).mul_(0.1).requires_grad_()
    return hidden_NH, torch.multinomial(
        torch.tensor(compute_zipf_counts(words)), ROWS, True, generator=generator
    )


def initialise_layer(output: OutputLayer) -> OutputLayer:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in output.parameters():
            parameter.normal_(0, 0.1, generator=generator)
    return output


def make_step(output: OutputLayer, hidden_NH: Tensor, targets_N: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    leaves = [hidden_NH, *output.parameters()]

    def run() -> tuple[Tensor, ...]:
        nats = output.negative_log_likelihood(hidden_NH, targets_N)
        return nats.detach(), *torch.autograd.grad(nats / ROWS, leaves)

    return run


def require_agreement(output: OutputLayer, hidden_NH: Tensor, targets_N: Tensor) -> None:
    """Compare loss and gradients with the equation, row by row in float64."""
    names = ["hidden", *(name for name, _ in output.named_parameters())]
    leaves = [leaf.detach().double().requires_grad_() for leaf in (hidden_NH, *output.parameters())]
    nats = compute_reference_nats(
        dict(zip(names, leaves, strict=True)), output.get_buffer("borders"), targets_N
    )
    expected = [nats, *torch.autograd.grad(nats / ROWS, leaves)]
    for name, value, reference in zip(
        ["loss", *names], make_step(output, hidden_NH, targets_N)(), expected, strict=True
    ):
        assert_near(value, reference, 1e-5, name)


def compute_reference_nats(leaves: dict[str, Tensor], borders: Tensor, targets_N: Tensor) -> Tensor:
    sizes = borders.diff().tolist()
    weights = torch.split(leaves["words.weight"], sizes)
    biases = torch.split(leaves["words.bias"], sizes)
    nats = []
    for h, word in zip(leaves["hidden"], targets_N.tolist(), strict=True):
        k = int((borders <= word).sum()) - 1
        classes = leaves["classes.weight"] @ h + leaves["classes.bias"]
        words = weights[k] @ h + biases[k]
        nats.append(-classes.log_softmax(0)[k] - words.log_softmax(0)[word - borders[k]])
    return torch.stack(nats).sum()


if __name__ == "__main__":
    main()
