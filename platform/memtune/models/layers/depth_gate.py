"""The recurrence of a depth-gated LSTM layer over whole sequences.

Yao, Cohn, Vylomova, Duh and Dyer (2015), "Depth-Gated LSTM": a separate gate adds the memory of the layer
below to the memory of this layer. Layers run one after the other, so the terms from the layer below are
computed for all time steps before the loop. A step adds R h and the term of the previous memory in the depth
gate. The gradients of the weights are products over the whole sequence after the loop.

Shapes: B batch, T time, H width, F = 4H gates (output, input, forget, candidate), G gates with the depth gate
before them (5H), or without (4H).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

__all__ = ["apply_gate_weight", "run_depth_gated_layer"]

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def apply_gate_weight(memory_H: Tensor, weight: Tensor) -> Tensor:
    """The term of a memory in the depth gate: w * c for a vector, W c for a matrix."""
    return memory_H * weight if weight.dim() == 1 else functional.linear(memory_H, weight)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it would unroll the loop for each length
def run_depth_gated_layer(
    gates_TBG: Tensor,
    recurrent_FH: Tensor,
    hidden_BH: Tensor,
    cell_BH: Tensor,
    lower_TBH: Tensor | None = None,
    cell_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """hidden_TBH and cell_TBH after each step, from `hidden` and `cell` before the first.

    `gates` are the terms that do not depend on this layer's past. `lower` is the memory of the layer below
    and `cell_weight` the weight of the previous memory in the depth gate; both are None for a layer without a
    depth gate. The recurrence runs in the dtype of the weights, also under autocast.
    """
    kind = recurrent_FH
    with torch.autocast(kind.device.type, enabled=False):
        tensors = (gates_TBG, recurrent_FH, hidden_BH, cell_BH, lower_TBH, cell_weight)
        cast = (None if tensor is None else tensor.to(kind.dtype) for tensor in tensors)
        outputs: tuple[Tensor, Tensor] = _Recurrence.apply(*cast)  # type: ignore[no-untyped-call]
    return outputs


class _Recurrence(torch.autograd.Function):
    """The steps of the layer; row 0 of the hidden and cell buffers is the state before the first step."""

    @staticmethod
    def forward(
        ctx: Any,
        gates_TBG: Tensor,
        recurrent_FH: Tensor,
        hidden_BH: Tensor,
        cell_BH: Tensor,
        lower_TBH: Tensor | None,
        cell_weight: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        steps, (_, width) = len(gates_TBG), recurrent_FH.shape
        gates_TBG = gates_TBG.clone(memory_format=torch.contiguous_format)
        hidden_SBH, cell_SBH = hidden_BH.new_empty(2, steps + 1, *hidden_BH.shape).unbind()
        hidden_SBH[0], cell_SBH[0] = hidden_BH, cell_BH
        recurrent_HF = recurrent_FH.t().contiguous()
        for step, gates_BG in enumerate(gates_TBG):
            before_BH, after_BH = cell_SBH[step], cell_SBH[step + 1]
            gates_BG[:, -4 * width :].addmm_(hidden_SBH[step], recurrent_HF)
            if cell_weight is not None:
                gates_BG[:, :width] += apply_gate_weight(before_BH, cell_weight)
            gates_BG[:, :-width].sigmoid_()
            gates_BG[:, -width:].tanh_()
            output_BH, input_BH, forget_BH, candidate_BH = gates_BG[:, -4 * width :].chunk(4, dim=1)
            torch.mul(forget_BH, before_BH, out=after_BH).addcmul_(input_BH, candidate_BH)
            if lower_TBH is not None:
                after_BH.addcmul_(gates_BG[:, :width], lower_TBH[step])
            torch.mul(output_BH, after_BH.tanh(), out=hidden_SBH[step + 1])
        ctx.save_for_backward(gates_TBG, recurrent_FH, hidden_SBH, cell_SBH, lower_TBH, cell_weight)
        ctx.set_materialize_grads(False)
        return hidden_SBH[1:], cell_SBH[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, hidden_TBH: Tensor | None, cell_TBH: Tensor | None) -> tuple[Tensor | None, ...]:
        with torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
            return _BackwardPass(*ctx.saved_tensors).run(hidden_TBH, cell_TBH)


class _BackwardPass:
    """Back-propagation through time, from the tensors that forward saved."""

    def __init__(
        self,
        gates_TBG: Tensor,
        recurrent_FH: Tensor,
        hidden_SBH: Tensor,
        cell_SBH: Tensor,
        lower_TBH: Tensor | None,
        cell_weight: Tensor | None,
    ) -> None:
        self.kept_TBG, self.recurrent_FH = gates_TBG, recurrent_FH
        self.hidden_SBH, self.cell_SBH = hidden_SBH, cell_SBH
        self.lower_TBH, self.cell_weight = lower_TBH, cell_weight
        self.width = recurrent_FH.shape[1]
        self.gates_TBG = torch.empty_like(gates_TBG)
        self.to_lower_TBH = None if lower_TBH is None else torch.empty_like(lower_TBH)

    def run(self, hidden_TBH: Tensor | None, cell_TBH: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of the function's arguments, in their order, from the gradients of its outputs."""
        hidden_BH, cell_BH = torch.zeros_like(self.cell_SBH[:2]).unbind()
        for step in reversed(range(len(self.gates_TBG))):
            if hidden_TBH is not None:
                hidden_BH += hidden_TBH[step]
            if cell_TBH is not None:
                cell_BH += cell_TBH[step]
            hidden_BH, cell_BH = self._backpropagate_step(step, hidden_BH, cell_BH)
        gates_XF = self.gates_TBG[:, :, -4 * self.width :].flatten(0, 1)
        recurrent_FH = gates_XF.t() @ self.hidden_SBH[:-1].flatten(0, 1)
        return (
            self.gates_TBG,
            recurrent_FH,
            hidden_BH,
            cell_BH,
            self.to_lower_TBH,
            self._compute_cell_weight_gradient(),
        )

    def _backpropagate_step(self, step: int, hidden_BH: Tensor, cell_BH: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the gates of a step and of the states before it, from those of its states."""
        width, gates_BG, kept_BG = self.width, self.gates_TBG[step], self.kept_TBG[step]
        to_output_BH, to_input_BH, to_forget_BH, to_candidate_BH = gates_BG[:, -4 * width :].chunk(4, dim=1)
        output_BH, input_BH, forget_BH, candidate_BH = kept_BG[:, -4 * width :].chunk(4, dim=1)
        tanh_BH = self.cell_SBH[step + 1].tanh()
        cell_BH += tanh_backward(hidden_BH * output_BH, tanh_BH)
        torch.mul(hidden_BH, tanh_BH, out=to_output_BH)
        torch.mul(cell_BH, candidate_BH, out=to_input_BH)
        torch.mul(cell_BH, self.cell_SBH[step], out=to_forget_BH)
        if self.lower_TBH is not None and self.to_lower_TBH is not None:
            torch.mul(cell_BH, self.lower_TBH[step], out=gates_BG[:, :width])
            torch.mul(cell_BH, kept_BG[:, :width], out=self.to_lower_TBH[step])
        sigmoid_backward(gates_BG[:, :-width], kept_BG[:, :-width], grad_input=gates_BG[:, :-width])
        tanh_backward(cell_BH * input_BH, candidate_BH, grad_input=to_candidate_BH)
        cell_BH *= forget_BH
        if self.cell_weight is not None:
            cell_BH += apply_gate_weight(gates_BG[:, :width], self.cell_weight.t())
        return gates_BG[:, -4 * width :] @ self.recurrent_FH, cell_BH

    def _compute_cell_weight_gradient(self) -> Tensor | None:
        if self.cell_weight is None:
            return None
        gates_XH = self.gates_TBG[:, :, : self.width].flatten(0, 1)
        cells_XH = self.cell_SBH[:-1].flatten(0, 1)
        return (gates_XH * cells_XH).sum(0) if self.cell_weight.dim() == 1 else gates_XH.t() @ cells_XH
