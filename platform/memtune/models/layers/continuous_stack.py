"""A stack of K cells that is the mixture of all stacks its actions would lead to, differentiable throughout.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2.1. In a
single computation stack each step stays, pushes or pops; in a multipop adaptive stack it pops any number of
times before it stays or pushes. `layers.stack_mixture` has the arithmetic.

Shapes: B batch, T time, H width, K cells (the first is the top), J decisions a step, A actions.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.layers.stack_mixture import (
    StackMixture,
    credits_of_pops,
    effects_of_outcomes,
    trace_steps,
)
from memtune.models.layers.stack_policy import OUTCOMES, POP, PUSH, STAY, StackPolicy

__all__ = ["ContinuousStack", "LastPop"]

LastPop = Literal["renormalise", "stay"]
"""Once K pops have emptied the stack: POP is left out and the others renormalised, or its share stays."""

STEPS_PER_BLOCK = 64
"""A longer text is read in blocks, so that the codes of its cells stay short."""


class ContinuousStack(nn.Module):
    """One action a step; or, with a rule for the last pop, up to K pops before it."""

    effects: Tensor
    credits: Tensor
    shut: Tensor

    def __init__(self, width: int, cells: int, units: int, last_pop: LastPop | None) -> None:
        super().__init__()
        self.last_pop = last_pop
        self.policy = StackPolicy(width, units)
        decisions = 1 if last_pop is None else cells + 1
        shut_J3 = torch.zeros(decisions, len(OUTCOMES))
        if last_pop == "renormalise":
            shut_J3[cells, POP] = -torch.inf
        self.register_buffer("effects", effects_of_outcomes(cells, decisions), persistent=False)
        self.register_buffer("credits", credits_of_pops(decisions), persistent=False)
        self.register_buffer("shut", shut_J3, persistent=False)

    @override
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> tuple[Tensor, Tensor]:
        """The top cell after each step (B, T, H), and the cells after the last.

        The policy reads `reading` and the cells before the step; `hidden` is what the step may push.
        """
        tops = []
        for block in _blocks(hidden_BTH.shape[1]):
            operands = self._operands(reading_BTH[:, block], hidden_BTH[:, block], cells_BKH)
            tops_BTC, codes_BKC = StackMixture.apply(*operands, self.credits)  # type: ignore[no-untyped-call]
            values_BCH = torch.cat([cells_BKH, hidden_BTH[:, block]], dim=1)
            tops.append(torch.bmm(tops_BTC, values_BCH))
            cells_BKH = torch.bmm(codes_BKC, values_BCH)
        return torch.cat(tops, dim=1), cells_BKH

    @torch.no_grad()
    def use(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> tuple[Tensor, Tensor]:
        """The top cell after each step, and probabilities_BTA of its actions in the order of their names."""
        tops, actions = [], []
        for block in _blocks(hidden_BTH.shape[1]):
            step = reading_BTH[:, block], hidden_BTH[:, block], cells_BKH
            joint_TBJ3 = trace_steps(*self._operands(*step)).joint_TBJ3
            top_BTH, cells_BKH = self(*step)
            tops.append(top_BTH)
            actions.append(self._told_apart(joint_TBJ3.transpose(0, 1)))
        return torch.cat(tops, dim=1), torch.cat(actions, dim=1)

    def action_names(self) -> tuple[str, ...]:
        """stay, push, pop; with many pops stay_0, push_0, stay_1, push_1 and so on up to K pops."""
        if self.last_pop is None:
            return OUTCOMES
        return tuple(f"{OUTCOMES[end]}_{pops}" for pops in range(len(self.shut)) for end in (STAY, PUSH))

    def _told_apart(self, joint_BTJ3: Tensor) -> Tensor:
        """With many pops only stay and push end a step; a last pop that is not left out stays."""
        if self.last_pop is None:
            return joint_BTJ3.flatten(2)
        ends_BTJ2 = joint_BTJ3[..., [STAY, PUSH]]
        ends_BTJ2[:, :, -1, 0] += joint_BTJ3[:, :, -1, POP]
        return ends_BTJ2.flatten(2)

    def _operands(
        self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What `trace_steps` takes, in the type of the parameters under autocast too."""
        policy, exact = self.policy, self.policy.decision.weight.dtype
        return (
            policy.reading(reading_BTH).to(exact),
            policy.cells(hidden_BTH).to(exact),
            policy.cells(cells_BKH).to(exact),
            policy.decision.weight,
            policy.decision.bias + self.shut,
            self.effects,
        )


def _blocks(steps: int) -> Iterator[slice]:
    for first in range(0, steps, STEPS_PER_BLOCK):
        yield slice(first, first + STEPS_PER_BLOCK)
