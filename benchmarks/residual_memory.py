"""A residual memory network over whole sequences, against one window per predicted word.

Both sides do forward and backward passes through the 15 layers of the medium network of Beneš et al. (2017),
for the same 4 x 64 words with complete contexts. The side with windows computes each layer only at the
positions that the layers above need: the cone of each prediction. The network has no batch normalisation,
whose statistics would differ. The vocabulary is small, so that the gradients of the embeddings do not
dominate the times.

    python -m benchmarks.residual_memory [--repeats 7]
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_agreement, assert_near
from memtune.models import build_model
from memtune.models.families.residual_memory import ResidualMemoryConfig
from tests.oracles.residual_memory import compute_residual_memory_logits, compute_window_hidden

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
        raise make_refusal(error) from None
    print(describe_machine())
    ratio = compare_times(make_window_step(), make_sequence_step(), arguments.repeats)
    print(ratio.format_measure("residual memory, whole sequence / per-position cone", GOAL, MUST), flush=True)


def require_agreement() -> None:
    """Compare the model with its equations in float64, and the results and gradients of both sides."""
    words_BT = torch.randint(WORDS, (1, STEPS + 1), generator=torch.Generator().manual_seed(0))
    model = build_model(CONFIG, WORDS, seed=0)
    assert_agreement(model, compute_residual_memory_logits, words_BT, tolerance=1e-5)
    # In float32 a rounding moves single units over the kink of ReLU, by processor: gradients differ by 1e-3.
    exact = torch.float64
    for fast, slow in zip(make_sequence_step(exact)(), make_window_step(exact)(), strict=True):
        assert_near(fast, slow, 1e-10, "whole sequence")


def make_sequence_step(dtype: torch.dtype = torch.float32) -> Callable[[], list[torch.Tensor]]:
    """The model's body; its state carries the words before the first prediction."""
    model, (words_BK, gradient_NH) = build_model(CONFIG, WORDS, seed=0).to(dtype), make_data(dtype)
    earlier_BP, words_BT = words_BK.split([CONFIG.context_words - 1, STEPS], dim=1)

    def run() -> list[torch.Tensor]:
        hidden_BTH, _ = model.encode(words_BT, {"words": earlier_BP})
        return compute_gradients(model, hidden_BTH.flatten(0, 1), gradient_NH)

    return run


def make_window_step(dtype: torch.dtype = torch.float32) -> Callable[[], list[torch.Tensor]]:
    """The same parameters, with one window of words per prediction."""
    model, (words_BK, gradient_NH) = build_model(CONFIG, WORDS, seed=0).to(dtype), make_data(dtype)
    windows_NW = words_BK.unfold(1, CONFIG.context_words, 1).flatten(0, 1)
    parameters: dict[str, torch.Tensor] = dict(model.named_parameters())

    def run() -> list[torch.Tensor]:
        return compute_gradients(model, compute_window_hidden(CONFIG, parameters, windows_NW), gradient_NH)

    return run


def compute_gradients(
    model: torch.nn.Module, hidden_NH: torch.Tensor, gradient_NH: torch.Tensor
) -> list[torch.Tensor]:
    body = [value for name, value in model.named_parameters() if not name.startswith("output")]
    return [hidden_NH, *torch.autograd.grad(hidden_NH, body, gradient_NH)]


def make_data(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Words with the contexts of the first predictions, and a gradient of the body's output."""
    generator = torch.Generator().manual_seed(1)
    words_BK = torch.randint(WORDS, (BATCH, CONFIG.context_words - 1 + STEPS), generator=generator)
    return words_BK, torch.randn(BATCH * STEPS, CONFIG.width, generator=generator).to(dtype)


if __name__ == "__main__":
    main()
