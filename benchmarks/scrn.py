"""The structurally constrained network for all time steps at once, against a loop of its equations.

Both sides read 20 x 35 words with one embedding lookup, and do a forward and a backward pass through context
and hidden layer from a gradient of the body's output. The vocabulary is small: the gradients of the
embeddings take the same time on both sides, and at 10,000 words they would dominate it.

    python -m benchmarks.scrn [--repeats 25]
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.side_by_side import compare_times, describe_machine, make_refusal
from memtune.model_checks.oracles import assert_agreement
from memtune.models import build_model
from memtune.models.families.scrn import SCRNConfig
from tests.oracles.scrn import compute_scrn_logits, compute_scrn_steps

BATCH, STEPS, WORDS = 20, 35, 300
CONFIGS = {"alpha fixed": SCRNConfig(), "alpha learned": SCRNConfig(learn_alpha=True)}
MUST, GOAL = 2.0, 2.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    require_agreement()
    print(describe_machine())
    for name, config in CONFIGS.items():
        ratio = compare_times(make_reference_step(config), make_model_step(config), arguments.repeats)
        print(ratio.format_measure(f"SCRN / loop as written, {name}", GOAL, MUST), flush=True)


def require_agreement() -> None:
    """Compare loss and every gradient with the equations, in float64 at the measured width."""
    words_BT = torch.randint(WORDS, (2, STEPS + 1), generator=torch.Generator().manual_seed(0))
    for config in CONFIGS.values():
        try:
            assert_agreement(
                build_model(config, WORDS, seed=0), compute_scrn_logits, words_BT, tolerance=1e-5
            )
        except AssertionError as error:
            raise make_refusal(error) from None


def make_model_step(config: SCRNConfig) -> Callable[[], None]:
    """A forward and backward pass of the model's body."""
    model, (words_BT, gradient_BTF) = build_model(config, WORDS, seed=0), make_data(config)
    state = model.initial_state(BATCH)

    def run() -> None:
        model.zero_grad()
        both_BTF, _ = model.encode(words_BT, state)
        both_BTF.backward(gradient_BTF)

    return run


def make_reference_step(config: SCRNConfig) -> Callable[[], None]:
    """The same parameters, one time step after the other."""
    model, (words_BT, gradient_BTF) = build_model(config, WORDS, seed=0), make_data(config)
    parameters: dict[str, torch.Tensor] = dict(model.named_parameters())

    def run() -> None:
        model.zero_grad()
        steps = [torch.cat(step, dim=1) for step in compute_scrn_steps(config, parameters, words_BT)]
        torch.stack(steps, dim=1).backward(gradient_BTF)

    return run


def make_data(config: SCRNConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Words, and a gradient of the body's output."""
    generator = torch.Generator().manual_seed(1)
    words_BT = torch.randint(WORDS, (BATCH, STEPS), generator=generator)
    return words_BT, torch.randn(BATCH, STEPS, config.width + config.context_width, generator=generator)


if __name__ == "__main__":
    main()
