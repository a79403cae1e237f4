"""The mixers of the family mixer_blocks against torch's LSTM of equal width, forward and backward.

A side is one layer over a batch of vectors, from a gradient of its outputs: an LSTM, or the bare block of a
mixer, which is the mixer and its projection. The mixers are compared with their oracles first.

    python -m benchmarks.mixers [--repeats 15] [--only NAME ...]
"""

import argparse
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_agreement
from memtune.models import MixerBlocksConfig
from memtune.models.families.mixer_blocks import MixerBlock
from memtune.models.mixers.mixer_registry import PRESETS
from memtune.training.optimisation.matmul_backend import select_backend
from tests.oracles.mixer_blocks import CASES

WIDTH = 256
SHAPES = ((20, 70), (8, 256))
"""Rows and words."""
GOALS = {
    "attention": (0.6, 0.8),
    "min_gru": (0.5, 0.55),
    "rg_lru": (0.8, 0.85),
    "mamba2": (1.4, 1.4),
    "gated_deltanet": (1.75, 1.85),
    "gla": (2.5, 2.5),
    "kda": (2.5, 2.5),
    "slstm": (2.5, 5.0),
}
"""The most time relative to the LSTM, by shape."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=list(GOALS), choices=list(PRESETS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"products: {select_backend().kernels}")
    require_agreement(arguments.only)
    print(describe_machine())
    for name in arguments.only:
        for (rows, words), goal in zip(SHAPES, GOALS.get(name, (5.0, 5.0)), strict=True):
            ratio = compare_times(
                make_block_step(name, rows, words), make_lstm_step(rows, words), arguments.repeats
            )
            label = f"{name} / LSTM, {rows} x {words}"
            print(ratio.format_measure(label, goal, at_most=True), flush=True)


def require_agreement(names: list[str]) -> None:
    """Compare loss and every gradient with the equations, in float64, over more than one chunk."""
    for name in names:
        model = CASES[name].build(torch.float64)
        try:
            assert_agreement(model, CASES[name].get_oracle(model), CASES[name].draw_text(67), 1e-9)
        except AssertionError as error:
            raise make_refusal(error) from None


def make_block_step(name: str, rows: int, words: int) -> Callable[[], None]:
    """A forward and backward pass of a mixer and its projection."""
    bare = MixerBlocksConfig(
        width=WIDTH,
        layers=1,
        mixer=PRESETS[name],
        norm="none",
        convolution=0,
        head_norm=False,
        output_gate="none",
        channel_ratio=0.0,
    )
    block = MixerBlock(bare, bare.mixer, 0.0)
    torch.manual_seed(0)
    for parameter in block.parameters():
        nn.init.uniform_(parameter, -bare.initial_range, bare.initial_range)
    block.set_constants(1.0)
    return make_step(lambda inputs: block(inputs, block.initial_state(rows))[0], block, rows, words)


def make_lstm_step(rows: int, words: int) -> Callable[[], None]:
    """A forward and backward pass of torch's LSTM."""
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    return make_step(lambda inputs: lstm(inputs)[0], lstm, rows, words)


def make_step(
    run: Callable[[torch.Tensor], torch.Tensor], module: nn.Module, rows: int, words: int
) -> Callable[[], None]:
    """A pass over random inputs, back from a random gradient to inputs and parameters."""
    generator = torch.Generator().manual_seed(1)
    inputs, gradient = torch.randn(2, rows, words, WIDTH, generator=generator)
    inputs.requires_grad_()

    def step() -> None:
        module.zero_grad()
        inputs.grad = None
        run(inputs).backward(gradient)

    return step


if __name__ == "__main__":
    main()
