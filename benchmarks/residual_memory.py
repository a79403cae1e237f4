"""A residual memory network over a text as a whole, against a window for each predicted word.

Both sides go forward and back through the 15 layers of the medium network of Beneš et al. (2017), for the
same 4 x 64 words with their whole contexts known. The windows' side computes each layer only where the layers
above need it: the cone of each prediction. Without batch norm, whose statistics would differ; the tables are
short, so that their gradients do not hide what is compared.

    python -m benchmarks.residual_memory [--repeats 7]
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.side_by_side import compare, describe_machine, refuse
from memtune.models import ResidualMemoryConfig, build_model
from tests.oracles.agreement import assert_agreement, assert_near
from tests.oracles.residual_memory import residual_memory_logits, window_hidden

BATCH, STEPS, WORDS = 4, 64, 300
CONFIG = ResidualMemoryConfig(width=256, batch_norm=False)
MUST, GOAL = 8.0, 14.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        require_agreement()
    except AssertionError as error:
        raise refuse(error) from None
    print(describe_machine())
    ratio = compare(windows(), whole(), arguments.repeats)
    print(ratio.line("residual memory, whole sequence / per-position cone", GOAL, MUST), flush=True)


def require_agreement() -> None:
    """The model against its equations in float64, and what is timed, gradients too, side against side."""
    words_BT = torch.randint(WORDS, (1, STEPS + 1), generator=torch.Generator().manual_seed(0))
    model = build_model(CONFIG, WORDS, seed=0)
    assert_agreement(model, residual_memory_logits, words_BT, tolerance=1e-5)
    for fast, slow in zip(whole()(), windows()(), strict=True):
        assert_near(fast, slow, 1e-5, "whole sequence")


def whole() -> Callable[[], list[torch.Tensor]]:
    """The model's body, the words before the first prediction carried as its state."""
    model, (words_BK, gradient_NH) = build_model(CONFIG, WORDS, seed=0), data()
    earlier_BP, words_BT = words_BK.split([CONFIG.context_words - 1, STEPS], dim=1)

    def run() -> list[torch.Tensor]:
        hidden_BTH, _ = model.encode(words_BT, {"words": earlier_BP})
        return gradients(model, hidden_BTH.flatten(0, 1), gradient_NH)

    return run


def windows() -> Callable[[], list[torch.Tensor]]:
    """The same parameters, a window of words for each prediction."""
    model, (words_BK, gradient_NH) = build_model(CONFIG, WORDS, seed=0), data()
    windows_NW = words_BK.unfold(1, CONFIG.context_words, 1).flatten(0, 1)
    parameters = dict(model.named_parameters())

    def run() -> list[torch.Tensor]:
        return gradients(model, window_hidden(CONFIG, parameters, windows_NW), gradient_NH)

    return run


def gradients(
    model: torch.nn.Module, hidden_NH: torch.Tensor, gradient_NH: torch.Tensor
) -> list[torch.Tensor]:
    body = [value for name, value in model.named_parameters() if not name.startswith("output")]
    return [hidden_NH, *torch.autograd.grad(hidden_NH, body, gradient_NH)]


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Words, with the contexts of the first predictions, and a gradient of what the output layer reads."""
    generator = torch.Generator().manual_seed(1)
    words_BK = torch.randint(WORDS, (BATCH, CONFIG.context_words - 1 + STEPS), generator=generator)
    return words_BK, torch.randn(BATCH * STEPS, CONFIG.width, generator=generator)


if __name__ == "__main__":
    main()
