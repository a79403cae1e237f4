"""A differentiable stack of K cells: the mixture of the stacks that result from all its actions.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2.1. In a
single computation stack each step stays, pushes or pops. In a multipop adaptive stack each step pops any
number of times before it stays or pushes. `memories.stack_mixture` computes the steps.

Shapes: B batch, T time, H width, K cells (the first is the top), J decisions a step, A actions.
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.memories.memory_traces import StackAction
from memtune.models.memories.stack_mixture import (
    StackMixture,
    build_outcome_effects,
    build_pop_credits,
    trace_steps,
)
from memtune.models.memories.stack_policy import OUTCOMES, POP, PUSH, SINGLE_ACTIONS, STAY, StackPolicy

__all__ = ["ContinuousStack", "LastPop"]

LastPop = Literal["renormalise", "stay"]
"""After K pops, which empty the stack: "renormalise" leaves POP out of the softmax, "stay" adds its
probability to STAY."""

STEPS_PER_BLOCK = 64
"""A longer text is read in blocks, because the length of a cell's code grows with the steps of a block."""


class ContinuousStack(nn.Module):
    """One action per step; with a rule for the last pop, up to K pops before it."""

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
        self.register_buffer("effects", build_outcome_effects(cells, decisions), persistent=False)
        self.register_buffer("credits", build_pop_credits(decisions), persistent=False)
        self.register_buffer("shut", shut_J3, persistent=False)

    @override
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor) -> tuple[Tensor, Tensor]:
        """The top cell after each step (B, T, H), and the cells after the last.

        The policy reads `reading` and the cells before the step; `hidden` is the vector that the step pushes.
        """
        tops = []
        for block in _iterate_blocks(hidden_BTH.shape[1]):
            operands = self._build_operands(reading_BTH[:, block], hidden_BTH[:, block], cells_BKH)
            tops_BTC, codes_BKC = StackMixture.apply(*operands, self.credits)  # type: ignore[no-untyped-call]
            values_BCH = torch.cat([cells_BKH, hidden_BTH[:, block]], dim=1)
            tops.append(torch.bmm(tops_BTC, values_BCH))
            cells_BKH = torch.bmm(codes_BKC, values_BCH)
        return torch.cat(tops, dim=1), cells_BKH

    @torch.no_grad()
    def trace_actions(
        self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The top cell after each step, and probabilities_BTA of its actions in the order of their names."""
        tops, actions = [], []
        for block in _iterate_blocks(hidden_BTH.shape[1]):
            step = reading_BTH[:, block], hidden_BTH[:, block], cells_BKH
            joint_TBJ3 = trace_steps(*self._build_operands(*step)).joint_TBJ3
            top_BTH, cells_BKH = self(*step)
            tops.append(top_BTH)
            actions.append(self._select_action_probabilities(joint_TBJ3.transpose(0, 1)))
        return torch.cat(tops, dim=1), torch.cat(actions, dim=1)

    def actions(self) -> tuple[StackAction, ...]:
        """stay, push, pop; in a multipop stack stay_0, push_0, stay_1, push_1 and so on up to K pops."""
        if self.last_pop is None:
            return SINGLE_ACTIONS
        return tuple(
            StackAction(f"{OUTCOMES[end]}_{pops}", pops, end == PUSH)
            for pops in range(len(self.shut))
            for end in (STAY, PUSH)
        )

    def _select_action_probabilities(self, joint_BTJ3: Tensor) -> Tensor:
        """Probabilities of the named actions; in a multipop stack the last pop, if any, counts as stay."""
        if self.last_pop is None:
            return joint_BTJ3.flatten(2)
        ends_BTJ2 = joint_BTJ3[..., [STAY, PUSH]]
        ends_BTJ2[:, :, -1, 0] += joint_BTJ3[:, :, -1, POP]
        return ends_BTJ2.flatten(2)

    def _build_operands(
        self, reading_BTH: Tensor, hidden_BTH: Tensor, cells_BKH: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The arguments of `trace_steps`, in the dtype of the parameters, also under autocast."""
        policy, exact = self.policy, self.policy.decision.weight.dtype
        return (
            policy.reading(reading_BTH).to(exact),
            policy.cells(hidden_BTH).to(exact),
            policy.cells(cells_BKH).to(exact),
            policy.decision.weight,
            policy.decision.bias + self.shut,
            self.effects,
        )


def _iterate_blocks(steps: int) -> Iterator[slice]:
    for first in range(0, steps, STEPS_PER_BLOCK):
        yield slice(first, first + STEPS_PER_BLOCK)
