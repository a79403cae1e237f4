"""Attention of one sequence over all slots of another: a hypothesis attends over its premise.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", section 4, equations 10
to 12. The scores depend on the current word and on the previous attended vector, but on no state of the
reader. All attention steps therefore run before the first step of the reader. Terms that do not depend on the
previous step (W_gamma gamma_j once per slot, W_x x_t) are computed before the loop.

Backward recomputes the hyperbolic tangents of each step and leaves out the 1 in tanh' = 1 - tanh^2;
`memories.memory_tape` says why.

Shapes: B batch, T time, M slots of the source, H width of the attention, D width of a slot (gamma_j, H wide,
then alpha_j).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memtune.models.compilation import leave_uncompiled


@leave_uncompiled  # it would unroll the loop for each length
def attend_to_source(
    queries_TBH: Tensor,
    keys_BMH: Tensor,
    slots_BMD: Tensor,
    score_H: Tensor,
    recurrent_HH: Tensor | None,
    mask_BM: Tensor,
) -> tuple[Tensor, Tensor]:
    """attended_TBD (gamma~_t, then alpha~_t), and the weights_BTM of each step, without gradient.

    `queries` are W_x x_t, `keys` W_gamma gamma_j, and `recurrent` is W_gamma~, None for equation 10 without
    this term. Before the first step gamma~ is zero. Slots with a false mask have weight 0; each source needs
    at least one slot with a true mask. The attention runs in the dtype of `score`, also under autocast.
    """
    kind = score_H
    with torch.autocast(kind.device.type, enabled=False):
        given = (queries_TBH, keys_BMH, slots_BMD, score_H, recurrent_HH)
        cast = (tensor if tensor is None else tensor.to(kind.dtype) for tensor in given)
        outputs: tuple[Tensor, Tensor] = _SourceAttention.apply(*cast, mask_BM)  # type: ignore[no-untyped-call]
    return outputs


class _SourceAttention(torch.autograd.Function):
    """Forward runs over the steps in order, backward from the last step to the first."""

    @staticmethod
    def forward(
        ctx: Any,
        queries_TBH: Tensor,
        keys_BMH: Tensor,
        slots_BMD: Tensor,
        score_H: Tensor,
        recurrent_HH: Tensor | None,
        mask_BM: Tensor,
    ) -> tuple[Tensor, Tensor]:
        (steps, _, width), (batch, slots, slot) = queries_TBH.shape, slots_BMD.shape
        queries_TBH = queries_TBH.clone()
        absent_BM = ~mask_BM
        attended_TBD = slots_BMD.new_empty(steps, batch, slot)
        weights_TBM = slots_BMD.new_empty(steps, batch, slots)
        scratch_BMH = torch.empty_like(keys_BMH)
        for step, query_BH in enumerate(queries_TBH):
            if step and recurrent_HH is not None:
                query_BH.addmm_(attended_TBD[step - 1, :, :width], recurrent_HH.t())
            tangents_BMH = _compute_tangents(keys_BMH, query_BH, scratch_BMH)
            scores_BM = torch.mv(tangents_BMH.flatten(0, 1), score_H).view(batch, slots)
            weights_BM = scores_BM.masked_fill_(absent_BM, -torch.inf).softmax(dim=1)
            weights_TBM[step] = weights_BM
            torch.bmm(weights_BM.unsqueeze(1), slots_BMD, out=attended_TBD[step].unsqueeze(1))
        ctx.save_for_backward(
            queries_TBH, keys_BMH, slots_BMD, score_H, recurrent_HH, attended_TBD, weights_TBM
        )
        weights_BTM = weights_TBM.transpose(0, 1)
        ctx.mark_non_differentiable(weights_BTM)
        return attended_TBD, weights_BTM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, attended_TBD: Tensor, _: None) -> tuple[Tensor | None, ...]:
        with torch.autocast(attended_TBD.device.type, enabled=False):
            return (*_backpropagate(ctx.saved_tensors, attended_TBD), None)


def _backpropagate(kept: tuple[Any, ...], to_attended_TBD: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of the first five arguments of `_SourceAttention`, from the gradient of `attended`.

    `kept` are the tensors that forward saved; its queries include every term of equation 10.
    """
    queries_TBH, keys_BMH, slots_BMD, score_H, recurrent_HH, attended_TBD, weights_TBM = kept
    width = score_H.shape[0]
    to_attended_TBD = to_attended_TBD.clone()
    to_queries_TBH = torch.empty_like(queries_TBH)
    to_keys_BMH, scratch_BMH = torch.zeros_like(keys_BMH), torch.empty_like(keys_BMH)
    to_scores_BM, to_score_B1H = torch.zeros_like(weights_TBM[0]), torch.zeros_like(keys_BMH[:, :1])
    for step in reversed(range(len(queries_TBH))):
        to_weights_BM = torch.bmm(slots_BMD, to_attended_TBD[step].unsqueeze(2)).squeeze(2)
        shares_BM = weights_TBM[step] * to_weights_BM
        scores_BM = shares_BM - weights_TBM[step] * shares_BM.sum(dim=1, keepdim=True)
        tangents_BMH = _compute_tangents(keys_BMH, queries_TBH[step], scratch_BMH)
        to_score_B1H.baddbmm_(scores_BM.unsqueeze(1), tangents_BMH)
        squares_BMH = tangents_BMH.square_()
        to_scores_BM += scores_BM
        to_keys_BMH.addcmul_(squares_BMH, scores_BM.unsqueeze(2), value=-1)
        squares_BH = torch.bmm(scores_BM.unsqueeze(1), squares_BMH).squeeze(1)
        torch.mul(squares_BH, -score_H, out=to_queries_TBH[step])
        if step and recurrent_HH is not None:
            to_attended_TBD[step - 1, :, :width] += to_queries_TBH[step] @ recurrent_HH
    to_keys_BMH += to_scores_BM.unsqueeze(2)
    to_keys_BMH *= score_H
    to_slots_BMD = torch.bmm(weights_TBM.permute(1, 2, 0), to_attended_TBD.transpose(0, 1))
    to_recurrent_HH = None
    if recurrent_HH is not None:
        before_XH = attended_TBD[:-1, :, :width].flatten(0, 1)
        to_recurrent_HH = to_queries_TBH[1:].flatten(0, 1).t() @ before_XH
    return to_queries_TBH, to_keys_BMH, to_slots_BMD, to_score_B1H.sum((0, 1)), to_recurrent_HH


def _compute_tangents(keys_BMH: Tensor, query_BH: Tensor, out_BMH: Tensor) -> Tensor:
    """tanh(key + query) of equation 10, written to a buffer."""
    return torch.add(keys_BMH, query_BH.unsqueeze(1), out=out_BMH).tanh_()
