"""A differentiable stack of K cells: the mixture of the stacks that result from all its actions.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2.1. In a
single computation stack each step stays, pushes or pops. In a multipop adaptive stack each step pops any
number of times before it stays or pushes.

Equation 1 is computed exactly but in another order. Every outcome moves cells, so the sum over outcomes is
one small matrix of mixing weights times the cells. A cell is linear in the pushed vectors. The tape therefore
stores no vector of width H for it, but two shorter ones: the Q projections that the policy reads, and a code,
the weights of the K initial cells and the T pushed states in the cell.

Shapes: B batch, T time, H width, K cells (the first is the top), J decisions a step, A actions, P hidden
units of the policy, Q = 2 P projections (one half for a top cell, the other for the cell below it), C = K + T
codes, D = Q + C columns and R = K + 1 rows of the tape (the last row is the vector that the step can push),
M = R^2 mixing weights, Y = 3 J outcomes, N = B J.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import override

from memtune.models.compilation import leave_uncompiled
from memtune.models.memories.memory_traces import StackAction
from memtune.models.memories.stack_policy import OUTCOMES, POP, PUSH, SINGLE_ACTIONS, STAY, StackPolicy

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
    @leave_uncompiled
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


class StackTrace(NamedTuple):
    """The values that the steps save. Time is the first dimension; one step has the shapes without it."""

    tape_TBRD: Tensor
    """The cells before each step and the vector it can push; the last entry holds the final cells."""
    features_TBJP: Tensor
    """The policy's hidden units at each decision."""
    choices_TBJ3: Tensor
    """Probabilities of `OUTCOMES` at each decision."""
    joint_TBJ3: Tensor
    """`choices_TBJ3` times the probability of all pops before the decision."""
    mixing_TBM: Tensor
    """Weights of the tape's rows in the cells after the step; those of the last row are 0."""


class StackMixture(torch.autograd.Function):
    """Codes of the top cell after each step (B, T, C), and of all cells after the last (B, K, C).

    The arguments are those of `trace_steps` and the credits of the pops. Backward runs over the steps in
    reverse order and then computes the gradients of the weights as products over all steps.
    """

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        reading_BTP, pushes_BTQ, cells_BKQ, decision_3P, bias_J3, effects_YM, credits_YY = operands
        trace = trace_steps(reading_BTP, pushes_BTQ, cells_BKQ, decision_3P, bias_J3, effects_YM)
        ctx.save_for_backward(*trace, decision_3P, effects_YM, credits_YY)
        cells, projections = cells_BKQ.shape[1:]
        tops_TBC = trace.tape_TBRD[1:, :, 0, projections:]
        codes_BKC = trace.tape_TBRD[-1, :, :cells, projections:]
        return tops_TBC.transpose(0, 1).contiguous(), codes_BKC.contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, tops_BTC: Tensor, codes_BKC: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        *saved, decision_3P, effects_YM, credits_YY = ctx.saved_tensors
        trace = StackTrace(*saved)
        tape_TBRD, (cells, codes) = torch.zeros_like(trace.tape_TBRD), codes_BKC.shape[1:]
        tape_TBRD[1:, :, 0, -codes:] = tops_BTC.transpose(0, 1)
        tape_TBRD[-1, :, :cells, -codes:] += codes_BKC
        units_TBJP, logits_TBJ3 = _backpropagate_steps(trace, tape_TBRD, decision_3P, effects_YM, credits_YY)
        projections_TBRQ = tape_TBRD[:-1, :, :, :-codes]
        return (
            units_TBJP.sum(2).transpose(0, 1),
            projections_TBRQ[:, :, cells].transpose(0, 1),
            projections_TBRQ[0, :, :cells],
            logits_TBJ3.flatten(0, 2).t() @ trace.features_TBJP.flatten(0, 2),
            logits_TBJ3.sum((0, 1)),
            None,
            None,
        )


def trace_steps(
    reading_BTP: Tensor,
    pushes_BTQ: Tensor,
    cells_BKQ: Tensor,
    decision_3P: Tensor,
    bias_J3: Tensor,
    effects_YM: Tensor,
) -> StackTrace:
    """Run all steps from the projections of the text, of the vectors to push and of the initial cells.

    The steps run in the dtype of the arguments, also under autocast.
    """
    trace = _allocate_trace(reading_BTP, pushes_BTQ, cells_BKQ, len(bias_J3))
    reached_BJ = reading_BTP.new_ones(len(reading_BTP), len(bias_J3))
    bias_N3 = bias_J3.repeat(len(reading_BTP), 1)
    with torch.autocast(reading_BTP.device.type, enabled=False):
        for t in range(reading_BTP.shape[1]):
            cells_BRD, features_BJP, choices_BJ3, joint_BJ3, mixing_BM = (values[t] for values in trace)
            for projection, unit in _pair_projections(cells_BRD, features_BJP):
                unit.add_(projection)
            logits_N3 = torch.addmm(bias_N3, features_BJP.tanh_().flatten(0, 1), decision_3P.t())
            torch.softmax(logits_N3.view_as(choices_BJ3), 2, out=choices_BJ3)
            torch.cumprod(choices_BJ3[:, :-1, POP], 1, out=reached_BJ[:, 1:])
            torch.mul(choices_BJ3, reached_BJ.unsqueeze(2), out=joint_BJ3)
            torch.mm(joint_BJ3.flatten(1), effects_YM, out=mixing_BM)
            trace.tape_TBRD[t + 1].baddbmm_(_view_as_square(mixing_BM), cells_BRD)
    return trace


def _allocate_trace(reading_BTP: Tensor, pushes_BTQ: Tensor, cells_BKQ: Tensor, decisions: int) -> StackTrace:
    """Buffers with the values known before the loop: the initial cells, every push, the policy's reading."""
    (batch_size, steps, _), (_, cells, projections) = reading_BTP.shape, cells_BKQ.shape
    tape_TBRD = reading_BTP.new_zeros(steps + 1, batch_size, cells + 1, projections + cells + steps)
    codes_CC = torch.eye(cells + steps, dtype=tape_TBRD.dtype, device=tape_TBRD.device)
    tape_TBRD[0, :, :cells, :projections] = cells_BKQ
    tape_TBRD[0, :, :cells, projections:] = codes_CC[:cells]
    tape_TBRD[:-1, :, cells, :projections] = pushes_BTQ.transpose(0, 1)
    tape_TBRD[:-1, :, cells, projections:] = codes_CC[cells:].unsqueeze(1)
    features_TBJP = reading_BTP.transpose(0, 1).unsqueeze(2).repeat(1, 1, decisions, 1)
    choices_TBJ3, joint_TBJ3 = tape_TBRD.new_empty(2, steps, batch_size, decisions, len(OUTCOMES))
    mixing_TBM = tape_TBRD.new_empty(steps, batch_size, (cells + 1) ** 2)
    return StackTrace(tape_TBRD, features_TBJP, choices_TBJ3, joint_TBJ3, mixing_TBM)


def _backpropagate_steps(
    trace: StackTrace, tape_TBRD: Tensor, decision_3P: Tensor, effects_YM: Tensor, credits_YY: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the policy's units before their tanh, and of its logits.

    On entry `tape_TBRD` holds the gradients of the codes that forward returned; on return it holds the
    gradients of the whole tape.
    """
    units_TBJP, logits_TBJ3 = torch.empty_like(trace.features_TBJP), torch.empty_like(trace.choices_TBJ3)
    for t in reversed(range(len(units_TBJP))):
        cells_BRD, features_BJP, choices_BJ3, joint_BJ3, mixing_BM = (values[t] for values in trace)
        mixed_BRR = torch.bmm(tape_TBRD[t + 1], cells_BRD.transpose(1, 2))
        tape_TBRD[t].baddbmm_(_view_as_square(mixing_BM).transpose(1, 2), tape_TBRD[t + 1])
        outcomes_BY = torch.mm(mixed_BRR.flatten(1), effects_YM.t()).mul_(joint_BJ3.flatten(1))
        credited_BJ3 = torch.mm(outcomes_BY, credits_YY).view_as(choices_BJ3)
        total_BJ1 = credited_BJ3.sum(2, keepdim=True)
        torch.addcmul(credited_BJ3, choices_BJ3, total_BJ1, value=-1, out=logits_TBJ3[t])
        decided_NP = torch.mm(logits_TBJ3[t].flatten(0, 1), decision_3P)
        _tanh_backward(decided_NP.view_as(features_BJP), features_BJP, grad_input=units_TBJP[t])
        for projection, unit in _pair_projections(tape_TBRD[t], units_TBJP[t]):
            projection.add_(unit)
    return units_TBJP, logits_TBJ3


_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def _view_as_square(mixing_BM: Tensor) -> Tensor:
    rows = math.isqrt(mixing_BM.shape[1])
    return mixing_BM.view(-1, rows, rows)


def _pair_projections(cells_BRD: Tensor, units_BJP: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """Pairs of projections of cells and the hidden units of the policy to which they are added.

    After k pops the policy reads cells k and k + 1.
    """
    decisions, units = units_BJP.shape[1:]
    tops, nexts = (min(decisions, cells_BRD.shape[1] - skipped) for skipped in (1, 2))
    return (
        (cells_BRD[:, :tops, :units], units_BJP[:, :tops]),
        (cells_BRD[:, 1 : nexts + 1, units : 2 * units], units_BJP[:, :nexts]),
    )


def build_outcome_effects(cells: int, decisions: int) -> Tensor:
    """effects_YM: 1 if an outcome of a decision moves an old row of the tape to a new row, otherwise 0.

    With one decision per step, its pop is an outcome; with more, a pop leads to the next decision. The pop of
    the last decision moves nothing, because the stack is empty.
    """
    effects = torch.zeros(decisions, len(OUTCOMES), cells + 1, cells + 1)
    for pops in range(decisions):
        kept = cells - pops
        effects[pops, STAY, :kept, pops:cells] = torch.eye(kept)
        effects[pops, PUSH, 0, cells] = 1
        pushed_down = min(kept, cells - 1)
        effects[pops, PUSH, 1 : pushed_down + 1, pops : pops + pushed_down] = torch.eye(pushed_down)
    if decisions == 1:
        effects[0, POP, : cells - 1, 1:cells] = torch.eye(cells - 1)
    return effects.flatten(2).flatten(0, 1)


def build_pop_credits(decisions: int) -> Tensor:
    """credits_YY: 1 for an outcome and itself and for an outcome and every pop before it, otherwise 0."""
    credits = torch.eye(decisions * len(OUTCOMES)).view(decisions, len(OUTCOMES), decisions, len(OUTCOMES))
    for pops in range(decisions):
        credits[pops + 1 :, :, pops, POP] = 1
    return credits.flatten(2).flatten(0, 1)
