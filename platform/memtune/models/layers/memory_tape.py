"""The recurrence of the LSTM-network over whole sequences: a cell that reads all it has written.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", section 3.2. What does
not wait for the step before comes in ready (W_x x_t and the inputs' part of the gates), W_h h_i is computed
once per slot, W and W_h~ meet h~_t in one product, and the gradients of all weights are products over the
whole sequence after the loop. Steps write slots, keys and gates into buffers in place.

Backward computes the B W H hyperbolic tangents of a step again: they stay in the cache, while those of all
steps together, B T^2 H / 2, would be fetched from memory. The gradients of a softmax's scores sum to zero, so
the 1 in tanh' = 1 - tanh^2 is left out wherever slots are summed: it would only cost digits.

Shapes: B batch, T time, S slots before the first step, N = S + T slots after the last, W slots of a step's
window, H width, D = 2H a slot (h_i, then c_i), F = 4H gates (output, input, forget, candidate), P = 5H gates
and the query of the next step.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["read_and_write"]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it would unroll the loop for each length
def read_and_write(
    gates_TBF: Tensor,
    queries_TBH: Tensor,
    gate_weight_FH: Tensor,
    query_weight_HH: Tensor,
    key_weight_HH: Tensor,
    score_H: Tensor,
    tape_BSD: Tensor,
    attended_BH: Tensor,
    limit: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """tape_BND with the new slots, attended_TBH (h~_t), and the weights_BTN of each step, without gradient.

    `gates` and `queries` are what the inputs give to equations 7 and 4; the weights are W (its part on h~),
    W_h~, W_h and v; `tape` holds at least one slot, `attended` is h~ of the step before. A step reads the
    last `limit` slots, all where it is None. Runs in the weights' type, under autocast too.
    """
    tensors = (gates_TBF, queries_TBH, gate_weight_FH, query_weight_HH, key_weight_HH, score_H)
    with torch.autocast(score_H.device.type, enabled=False):
        cast = [tensor.to(score_H.dtype) for tensor in (*tensors, tape_BSD, attended_BH)]
        outputs: tuple[Tensor, Tensor, Tensor] = _Recurrence.apply(*cast, limit)  # type: ignore[no-untyped-call]
    return outputs


class _Inputs(NamedTuple):
    """The tensors of `read_and_write`, in its order."""

    gates_TBF: Tensor
    queries_TBH: Tensor
    gate_weight_FH: Tensor
    query_weight_HH: Tensor
    key_weight_HH: Tensor
    score_H: Tensor
    tape_BSD: Tensor
    attended_BH: Tensor


class _Recurrence(torch.autograd.Function):
    """Forward fills the buffers, backward reads them from the last step to the first."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        inputs, ctx.limit = _Inputs(*arguments[:-1]), arguments[-1]
        buffers = _read(inputs, ctx.limit)
        ctx.save_for_backward(*inputs, *buffers)
        ctx.mark_non_differentiable(buffers.weights_BTN)
        ctx.set_materialize_grads(False)
        return buffers.tape_BND, buffers.read_TBD[:, :, : inputs.score_H.numel()], buffers.weights_BTN

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, tape_BND: Tensor | None, attended_TBH: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        saved, count = ctx.saved_tensors, len(_Inputs._fields)
        inputs = _Inputs(*saved[:count])
        trace = _Trace(_Buffers(*saved[count:]), ctx.limit)
        with torch.autocast(inputs.score_H.device.type, enabled=False):
            gradients = _Gradients(inputs, trace, tape_BND, attended_TBH)
            return (*gradients.of_inputs(), None)


class _Buffers(NamedTuple):
    """All a pass leaves behind: per step, per slot, and per step and slot."""

    gates_TBP: Tensor
    first_query_BH: Tensor
    keys_BNH: Tensor
    weights_BTN: Tensor
    read_TBD: Tensor
    tape_BND: Tensor


@dataclass(frozen=True)
class _Trace:
    """The buffers and how they are to be read."""

    buffers: _Buffers
    limit: int | None

    def window(self, step: int) -> slice:
        """The slots that a step reads."""
        _, steps, slots = self.buffers.weights_BTN.shape
        stop = slots - steps + step
        return slice(0 if self.limit is None else max(0, stop - self.limit), stop)

    def readers(self, slot: int) -> slice:
        """The steps that read a slot written by a step."""
        _, steps, slots = self.buffers.weights_BTN.shape
        first = slot - (slots - steps) + 1
        return slice(first, steps if self.limit is None else min(steps, first + self.limit))

    def tangents(self, step: int, scratch_F: Tensor) -> Tensor:
        """tanh(key + query)_BWH of equation 4, written to the front of a flat buffer."""
        keys_BWH = self.buffers.keys_BNH[:, self.window(step)]
        query_BH = _query_of(step, self.buffers.gates_TBP, self.buffers.first_query_BH)
        out_BWH = scratch_F[: keys_BWH.numel()].view(keys_BWH.shape)
        return torch.add(keys_BWH, query_BH.unsqueeze(1), out=out_BWH).tanh_()

    def scratch(self) -> Tensor:
        """A flat buffer that holds the widest window."""
        batch, slots, width = self.buffers.keys_BNH.shape
        widest = slots if self.limit is None else min(slots, self.limit)
        return self.buffers.keys_BNH.new_empty(batch * widest * width)


def _query_of(step: int, gates_TBP: Tensor, first_BH: Tensor) -> Tensor:
    """The part of the gates' buffer that holds the query of a step, or its gradient."""
    width = first_BH.shape[1]
    return gates_TBP[step - 1, :, 4 * width :] if step else first_BH


def _read(inputs: _Inputs, limit: int | None) -> _Buffers:
    """Equations 4 to 9, step by step."""
    trace = _Trace(_new_buffers(inputs), limit)
    gates_TBP, _, keys_BNH, _, read_TBD, tape_BND = trace.buffers
    width, carried = inputs.score_H.numel(), inputs.tape_BSD.shape[1]
    weight_HP = torch.cat([inputs.gate_weight_FH.t(), inputs.query_weight_HH.t()], dim=1)
    key_weight_HH = inputs.key_weight_HH.t().contiguous()
    scratch_F = trace.scratch()
    keys_BNH[:, :carried] = inputs.tape_BSD[:, :, :width] @ key_weight_HH
    for step, gates_BP in enumerate(gates_TBP):
        _attend(trace, step, inputs.score_H, scratch_F)
        gates_BP.addmm_(read_TBD[step, :, :width], weight_HP)
        slot_BD = tape_BND[:, carried + step]
        _write(gates_BP, read_TBD[step, :, width:], slot_BD)
        torch.mm(slot_BD[:, :width], key_weight_HH, out=keys_BNH[:, carried + step])
    return trace.buffers


def _new_buffers(inputs: _Inputs) -> _Buffers:
    """Gates and queries as the inputs give them, the query of a step beside the gates of the one before."""
    (steps, batch, width), carried = inputs.queries_TBH.shape, inputs.tape_BSD.shape[1]
    new = inputs.score_H.new_empty
    gates_TBP = new(steps, batch, 5 * width)
    gates_TBP[:, :, : 4 * width] = inputs.gates_TBF
    gates_TBP[:-1, :, 4 * width :] = inputs.queries_TBH[1:]
    gates_TBP[-1, :, 4 * width :] = 0  # there is no next step
    tape_BND = new(batch, carried + steps, 2 * width)
    tape_BND[:, :carried] = inputs.tape_BSD
    return _Buffers(
        gates_TBP=gates_TBP,
        first_query_BH=torch.addmm(inputs.queries_TBH[0], inputs.attended_BH, inputs.query_weight_HH.t()),
        keys_BNH=new(batch, carried + steps, width),
        weights_BTN=inputs.score_H.new_zeros(batch, steps, carried + steps),
        read_TBD=new(steps, batch, 2 * width),
        tape_BND=tape_BND,
    )


def _attend(trace: _Trace, step: int, score_H: Tensor, scratch_F: Tensor) -> None:
    """Equations 4 to 6: what the step reads from its window."""
    window, buffers = trace.window(step), trace.buffers
    tangents_BWH = trace.tangents(step, scratch_F)
    scores_BW = torch.mv(tangents_BWH.flatten(0, 1), score_H).view(tangents_BWH.shape[:2])
    weights_BW = scores_BW.softmax(dim=1)
    buffers.weights_BTN[:, step, window] = weights_BW
    read_B1D = buffers.read_TBD[step].unsqueeze(1)
    torch.bmm(weights_BW.unsqueeze(1), buffers.tape_BND[:, window], out=read_B1D)


def _write(gates_BP: Tensor, remembered_BH: Tensor, slot_BD: Tensor) -> None:
    """Equations 7 to 9: the gates' functions in place, and the step's slot."""
    width = remembered_BH.shape[1]
    gates_BP[:, : 3 * width].sigmoid_()
    output_BH, input_BH, forget_BH, candidate_BH, _ = gates_BP.chunk(5, dim=1)
    candidate_BH.tanh_()
    hidden_BH, cell_BH = slot_BD.chunk(2, dim=1)
    torch.mul(forget_BH, remembered_BH, out=cell_BH).addcmul_(input_BH, candidate_BH)
    torch.mul(output_BH, cell_BH.tanh(), out=hidden_BH)


class _Gradients:
    """Back-propagation through time: d loss / d each buffer, from the last step to the first."""

    def __init__(
        self, inputs: _Inputs, trace: _Trace, tape_BND: Tensor | None, attended_TBH: Tensor | None
    ) -> None:
        """From the gradients of the outputs; None where nobody read one."""
        self.inputs, self.trace, self.kept = inputs, trace, trace.buffers
        self.width, self.carried = inputs.score_H.numel(), inputs.tape_BSD.shape[1]
        self.gate_weight_PH = torch.cat([inputs.gate_weight_FH, inputs.query_weight_HH])
        self.tape_BND = torch.zeros_like(self.kept.tape_BND) if tape_BND is None else tape_BND
        self.attended_TBH = attended_TBH
        self.gates_TBP = torch.empty_like(self.kept.gates_TBP)
        self.gates_TBP[-1, :, 4 * self.width :] = 0
        self.first_query_BH = torch.empty_like(inputs.attended_BH)
        self.read_TBD = torch.empty_like(self.kept.read_TBD)
        self.keys_BNH = torch.zeros_like(self.kept.keys_BNH)
        self.scores_BN = torch.zeros_like(self.kept.keys_BNH[:, :, 0])
        self.score_B1H = inputs.score_H.new_zeros(len(inputs.attended_BH), 1, self.width)
        self.scratch_F = trace.scratch()

    def of_inputs(self) -> tuple[Tensor, ...]:
        """In the order of `_Inputs`."""
        for step in reversed(range(len(self.gates_TBP))):
            self._write(step)
            self._attend(step)
        tape_BSD = self._slots(slice(0, self.carried), slice(0, len(self.gates_TBP)))
        first_BH, width = self.first_query_BH, self.width
        next_TBH = self.gates_TBP[:-1, :, 4 * width :]
        weight_PH = self.gates_TBP.flatten(0, 1).t() @ self.kept.read_TBD[:, :, :width].flatten(0, 1)
        weight_PH[4 * width :].addmm_(first_BH.t(), self.inputs.attended_BH)
        return (
            self.gates_TBP[:, :, : 4 * width],
            torch.cat([first_BH.unsqueeze(0), next_TBH]),
            weight_PH[: 4 * width],
            weight_PH[4 * width :],
            self.keys_BNH.flatten(0, 1).t() @ self.kept.tape_BND[:, :, :width].flatten(0, 1),
            self.score_B1H.sum((0, 1)),
            tape_BSD,
            first_BH @ self.inputs.query_weight_HH,
        )

    def _write(self, step: int) -> None:
        """Equations 7 to 9, from the step's slot to its gates and to what it read."""
        width, slot = self.width, self.carried + step
        gates_BP, read_BD = self.gates_TBP[step], self.read_TBD[step]
        slot_B1D = self._slots(slice(slot, slot + 1), self.trace.readers(slot))
        hidden_BH, cell_BH = slot_B1D.squeeze(1).chunk(2, dim=1)
        output_BH, input_BH, forget_BH, candidate_BH, _ = self.kept.gates_TBP[step].chunk(5, dim=1)
        to_output_BH, to_input_BH, to_forget_BH, to_candidate_BH, _ = gates_BP.chunk(5, dim=1)
        tanh_BH = self.kept.tape_BND[:, slot, width:].tanh()
        cell_BH.addcmul_(hidden_BH * output_BH, 1 - tanh_BH.square())
        torch.mul(hidden_BH, tanh_BH, out=to_output_BH)
        torch.mul(cell_BH, candidate_BH, out=to_input_BH)
        torch.mul(cell_BH, self.kept.read_TBD[step, :, width:], out=to_forget_BH)
        sigmoids_BG = self.kept.gates_TBP[step, :, : 3 * width]
        gates_BP[:, : 3 * width].mul_(torch.addcmul(sigmoids_BG, sigmoids_BG, sigmoids_BG, value=-1))
        torch.mul(cell_BH * input_BH, 1 - candidate_BH.square(), out=to_candidate_BH)
        torch.mul(cell_BH, forget_BH, out=read_BD[:, width:])
        torch.mm(gates_BP, self.gate_weight_PH, out=read_BD[:, :width])
        if self.attended_TBH is not None:
            read_BD[:, :width] += self.attended_TBH[step]

    def _slots(self, slots: slice, readers: slice) -> Tensor:
        """Of h and c of slots that `readers` read: from outside, from what was read, and from their keys."""
        slots_BND = self.tape_BND[:, slots].clone()
        if readers.start < readers.stop:
            weights_BNR = self.kept.weights_BTN[:, readers, slots].transpose(1, 2).contiguous()
            slots_BND.baddbmm_(weights_BNR, self.read_TBD[readers].transpose(0, 1))
        keys_BNH = self.keys_BNH[:, slots]
        keys_BNH += self.scores_BN[:, slots].unsqueeze(2)
        keys_BNH *= self.inputs.score_H
        slots_BND[:, :, : self.width] += keys_BNH @ self.inputs.key_weight_HH
        return slots_BND

    def _attend(self, step: int) -> None:
        """Equations 4 to 6, from what the step read to its window's keys and its query."""
        window = self.trace.window(step)
        read_B1D = self.read_TBD[step].unsqueeze(1)
        to_weights_BW = torch.bmm(read_B1D, self.kept.tape_BND[:, window].transpose(1, 2)).squeeze(1)
        weights_BW = self.kept.weights_BTN[:, step, window]
        shares_BW = weights_BW * to_weights_BW
        scores_BW = shares_BW - weights_BW * shares_BW.sum(dim=1, keepdim=True)
        scores_B1W = scores_BW.unsqueeze(1)
        tangents_BWH = self.trace.tangents(step, self.scratch_F)
        self.score_B1H.baddbmm_(scores_B1W, tangents_BWH)
        squares_BWH = tangents_BWH.square_()
        self.scores_BN[:, window] += scores_BW
        self.keys_BNH[:, window].addcmul_(squares_BWH, scores_BW.unsqueeze(2), value=-1)
        squares_BH = torch.bmm(scores_B1W, squares_BWH).squeeze(1)
        query_BH = _query_of(step, self.gates_TBP, self.first_query_BH)
        torch.mul(squares_BH, -self.inputs.score_H, out=query_BH)
