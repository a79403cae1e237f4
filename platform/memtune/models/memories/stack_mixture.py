"""All steps of a continuous stack: mixtures of its cells, weighted by a policy that reads them.

Yogatama et al. (2018), section 2.1, equation 1, computed exactly but in another order. Every outcome moves
cells, so the sum over outcomes is one small matrix of mixing weights times the cells. A cell is linear in the
pushed vectors. The tape therefore stores no vector of width H for it, but two shorter ones: the Q projections
that the policy reads, and a code, the weights of the K initial cells and the T pushed states in the cell.

Shapes: B batch, T time, K cells (the first is the top), J decisions a step, P hidden units of the policy,
Q = 2 P projections (one half for a top cell, the other for the cell below it), C = K + T codes, D = Q + C
columns and R = K + 1 rows of the tape (the last row is the vector that the step can push), M = R^2 mixing
weights, Y = 3 J outcomes, N = B J.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memtune.models.memories.stack_policy import OUTCOMES, POP, PUSH, STAY

__all__ = ["StackMixture", "StackTrace", "build_outcome_effects", "build_pop_credits", "trace_steps"]


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
        tops_TBC, codes_BKC = (
            trace.tape_TBRD[1:, :, 0, projections:],
            trace.tape_TBRD[-1, :, :cells, projections:],
        )
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
