"""The recurrence of the LSTM-network over whole sequences: a cell that attends over its own past states.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", section 3.2. Terms that
do not depend on the previous step (W_x x_t, the inputs' part of the gates) are computed before the loop, and
W_h h_i once per slot. One product multiplies h~_t by W and W_h~. The gradients of all weights are products
over the whole sequence after the loop. Steps write slots, keys and gates into buffers in place.

Backward recomputes the B W H hyperbolic tangents of each step. They fit into the cache, while the tangents of
all steps, B T^2 H / 2 numbers, would have to be read from memory. The gradients of the scores of a softmax
sum to zero, so the 1 in tanh' = 1 - tanh^2 cancels in every sum over slots. The code leaves it out, because
it would only lose digits.

Shapes: B batch, T time, X = T x B, S slots before the first step, N = S + T slots after the last, W slots of
a step's window, E input width, H width, D = 2H a slot (h_i, then c_i), F = 4H gates (output, input, forget,
candidate), P = 5H gates and the query of the next step.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memtune.models.compilation import leave_uncompiled

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class TapeWeights(NamedTuple):
    """W and its bias in equation 7 and the weights of equation 4, split by their factors x, h~ and h."""

    gates_input_FE: Tensor
    gates_bias_F: Tensor
    gates_attended_FH: Tensor
    query_input_HE: Tensor
    query_attended_HH: Tensor
    key_HH: Tensor
    score_H: Tensor

    def extend_gate_inputs(self) -> "TapeWeights":
        """Weights for inputs followed by a vector that is added to h~ in the gates and nowhere else."""
        gates_FX = torch.cat([self.gates_input_FE, self.gates_attended_FH], dim=1)
        unread_HH = torch.zeros_like(self.key_HH)
        return self._replace(
            gates_input_FE=gates_FX, query_input_HE=torch.cat([self.query_input_HE, unread_HH], dim=1)
        )


@leave_uncompiled  # it would unroll the loop for each length
def run_memory_tape(
    inputs_TBE: Tensor,
    weights: TapeWeights,
    tape_BSD: Tensor,
    attended_BH: Tensor,
    max_slots: int | None,
    added_TBH: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """tape_BND with the new slots, attended_TBH (h~_t), and the weights_BTN of each step, without gradient.

    `tape` holds at least one slot, `attended` is h~ of the previous step. A step reads the last `max_slots`
    slots; None reads all. `added` is added to each new memory c_t (equation 14). The recurrence runs in the
    dtype of the weights, also under autocast.
    """
    kind = weights.score_H
    with torch.autocast(kind.device.type, enabled=False):
        given = (inputs_TBE, tape_BSD, attended_BH, added_TBH)
        read = (tensor if tensor is None else tensor.to(kind.dtype) for tensor in given)
        outputs: tuple[Tensor, Tensor, Tensor] = _Recurrence.apply(*weights, *read, max_slots)  # type: ignore[no-untyped-call]
    return outputs


class _Inputs(NamedTuple):
    """The inputs of a pass: the weights and the values that it reads."""

    weights: TapeWeights
    inputs_TBE: Tensor
    tape_BSD: Tensor
    attended_BH: Tensor
    added_TBH: Tensor | None

    @classmethod
    def from_arguments(cls, tensors: tuple[Any, ...]) -> "_Inputs":
        """The inputs from the flat arguments of `_Recurrence`."""
        count = len(TapeWeights._fields)
        return cls(TapeWeights(*tensors[:count]), *tensors[count:])


class _Recurrence(torch.autograd.Function):
    """Forward fills the buffers, backward reads them from the last step to the first."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        tensors, ctx.limit = arguments[:-1], arguments[-1]
        trace = _run_steps(_Inputs.from_arguments(tensors), ctx.limit)
        ctx.save_for_backward(*tensors, *trace[:-1])
        ctx.mark_non_differentiable(trace.weights_BTN)
        ctx.set_materialize_grads(False)
        width = trace.keys_BNH.shape[2]
        return trace.tape_BND, trace.read_TBD[:, :, :width], trace.weights_BTN

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, tape_BND: Tensor | None, attended_TBH: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        kept = len(ctx.saved_tensors) - len(_Trace._fields) + 1
        inputs = _Inputs.from_arguments(ctx.saved_tensors[:kept])
        trace = _Trace._make([*ctx.saved_tensors[kept:], ctx.limit])
        with torch.autocast(inputs.attended_BH.device.type, enabled=False):
            gradients = _BackwardPass(inputs, trace, tape_BND, attended_TBH)
            return (*gradients.run(), None)


class _Trace(NamedTuple):
    """What a forward pass saves: per step, per slot, and per step and slot."""

    gates_TBP: Tensor
    first_query_BH: Tensor
    keys_BNH: Tensor
    weights_BTN: Tensor
    read_TBD: Tensor
    tape_BND: Tensor
    max_slots: int | None

    def window(self, step: int) -> slice:
        """The slots that a step reads."""
        _, steps, slots = self.weights_BTN.shape
        stop = slots - steps + step
        return slice(0 if self.max_slots is None else max(0, stop - self.max_slots), stop)

    def find_readers(self, slot: int) -> slice:
        """The steps that read a slot."""
        _, steps, slots = self.weights_BTN.shape
        first = slot - (slots - steps) + 1
        return slice(first, steps if self.max_slots is None else min(steps, first + self.max_slots))

    def compute_tangents(self, step: int, scratch_F: Tensor) -> Tensor:
        """tanh(key + query)_BWH of equation 4, written to the front of a flat buffer."""
        keys_BWH = self.keys_BNH[:, self.window(step)]
        query_BH = _select_query(step, self.gates_TBP, self.first_query_BH)
        out_BWH = scratch_F[: keys_BWH.numel()].view(keys_BWH.shape)
        return torch.add(keys_BWH, query_BH.unsqueeze(1), out=out_BWH).tanh_()

    def allocate_scratch(self) -> Tensor:
        """A flat buffer that holds the widest window."""
        batch, slots, width = self.keys_BNH.shape
        widest = slots if self.max_slots is None else min(slots, self.max_slots)
        return self.keys_BNH.new_empty(batch * widest * width)


def _select_query(step: int, gates_TBP: Tensor, first_BH: Tensor) -> Tensor:
    """The part of the gates' buffer that holds the query of a step, or the gradient of the query."""
    width = first_BH.shape[1]
    return gates_TBP[step - 1, :, 4 * width :] if step else first_BH


def _run_steps(inputs: _Inputs, max_slots: int | None) -> _Trace:
    """Equations 4 to 9, step by step."""
    trace = _allocate_trace(inputs, max_slots)
    gates_TBP, _, keys_BNH, _, read_TBD, tape_BND, _ = trace
    weights, width, carried = inputs.weights, keys_BNH.shape[2], inputs.tape_BSD.shape[1]
    attended_HP = torch.cat([weights.gates_attended_FH.t(), weights.query_attended_HH.t()], dim=1)
    key_HH, scratch_F = weights.key_HH.t().contiguous(), trace.allocate_scratch()
    keys_BNH[:, :carried] = inputs.tape_BSD[:, :, :width] @ key_HH
    for step, gates_BP in enumerate(gates_TBP):
        _attend(trace, step, weights.score_H, scratch_F)
        gates_BP.addmm_(read_TBD[step, :, :width], attended_HP)
        slot_BD = tape_BND[:, carried + step]
        added_BH = None if inputs.added_TBH is None else inputs.added_TBH[step]
        _write(gates_BP, read_TBD[step, :, width:], slot_BD, added_BH)
        torch.mm(slot_BD[:, :width], key_HH, out=keys_BNH[:, carried + step])
    return trace


def _allocate_trace(inputs: _Inputs, max_slots: int | None) -> _Trace:
    """Buffers in which gates and queries hold their terms of the inputs.

    The query of a step is in the row of the previous step, next to the gates that are computed with it.
    """
    (steps, batch, _), (_, carried, slot) = inputs.inputs_TBE.shape, inputs.tape_BSD.shape
    weights, new, width = inputs.weights, inputs.tape_BSD.new_empty, slot // 2
    gates_TBP = new(steps, batch, 5 * width)
    inputs_XE, gates_XP = inputs.inputs_TBE.flatten(0, 1), gates_TBP.flatten(0, 1)
    gates_XF, queries_XH = gates_XP[:, : 4 * width], gates_XP[:, 4 * width :]
    torch.addmm(weights.gates_bias_F, inputs_XE, weights.gates_input_FE.t(), out=gates_XF)
    torch.mm(inputs_XE[batch:], weights.query_input_HE.t(), out=queries_XH[:-batch])
    queries_XH[-batch:] = 0  # there is no next step
    first_BH = inputs_XE[:batch] @ weights.query_input_HE.t()
    tape_BND = new(batch, carried + steps, slot)
    tape_BND[:, :carried] = inputs.tape_BSD
    return _Trace(
        gates_TBP=gates_TBP,
        first_query_BH=first_BH.addmm_(inputs.attended_BH, weights.query_attended_HH.t()),
        keys_BNH=new(batch, carried + steps, width),
        weights_BTN=new(batch, steps, carried + steps).zero_(),
        read_TBD=new(steps, batch, slot),
        tape_BND=tape_BND,
        max_slots=max_slots,
    )


def _attend(trace: _Trace, step: int, score_H: Tensor, scratch_F: Tensor) -> None:
    """Equations 4 to 6: the weighted sum of the slots in the window of a step."""
    window = trace.window(step)
    tangents_BWH = trace.compute_tangents(step, scratch_F)
    scores_BW = torch.mv(tangents_BWH.flatten(0, 1), score_H).view(tangents_BWH.shape[:2])
    weights_BW = scores_BW.softmax(dim=1)
    trace.weights_BTN[:, step, window] = weights_BW
    read_B1D = trace.read_TBD[step].unsqueeze(1)
    torch.bmm(weights_BW.unsqueeze(1), trace.tape_BND[:, window], out=read_B1D)


def _write(gates_BP: Tensor, remembered_BH: Tensor, slot_BD: Tensor, added_BH: Tensor | None) -> None:
    """Equations 7 to 9, with 14 in place of 8 if `added` is given.

    Applies the activations to the gates in place and writes the slot of the step.
    """
    width = remembered_BH.shape[1]
    gates_BP[:, : 3 * width].sigmoid_()
    output_BH, input_BH, forget_BH, candidate_BH, _ = gates_BP.chunk(5, dim=1)
    candidate_BH.tanh_()
    hidden_BH, cell_BH = slot_BD.chunk(2, dim=1)
    torch.mul(forget_BH, remembered_BH, out=cell_BH).addcmul_(input_BH, candidate_BH)
    if added_BH is not None:
        cell_BH += added_BH
    torch.mul(output_BH, cell_BH.tanh(), out=hidden_BH)


class _BackwardPass:
    """Back-propagation through time: d loss / d each buffer, from the last step to the first."""

    def __init__(
        self, inputs: _Inputs, trace: _Trace, tape_BND: Tensor | None, attended_TBH: Tensor | None
    ) -> None:
        """Start from the gradients of the outputs; None for an output without a gradient."""
        self.inputs, self.trace = inputs, trace
        self.width, self.initial_slots = inputs.attended_BH.shape[1], inputs.tape_BSD.shape[1]
        self.weights = weights = inputs.weights
        self.attended_PH = torch.cat([weights.gates_attended_FH, weights.query_attended_HH])
        self.tape_BND = torch.zeros_like(self.trace.tape_BND) if tape_BND is None else tape_BND
        self.attended_TBH = attended_TBH
        self.gates_TBP = torch.empty_like(self.trace.gates_TBP)
        self.gates_TBP[-1, :, 4 * self.width :] = 0
        self.first_query_BH = torch.empty_like(inputs.attended_BH)
        self.read_TBD = torch.empty_like(self.trace.read_TBD)
        self.keys_BNH = torch.zeros_like(self.trace.keys_BNH)
        self.scores_BN = torch.zeros_like(self.trace.keys_BNH[:, :, 0])
        self.score_B1H = torch.zeros_like(inputs.attended_BH).unsqueeze(1)
        self.added_TBH = None if inputs.added_TBH is None else torch.empty_like(inputs.added_TBH)
        self.scratch_F = trace.allocate_scratch()

    def run(self) -> tuple[Tensor | None, ...]:
        """The gradients of the arguments of `_Recurrence`, in their order."""
        for step in reversed(range(len(self.gates_TBP))):
            self._backpropagate_write(step)
            self._backpropagate_attend(step)
        tape_BSD = self._compute_slot_gradients(slice(0, self.initial_slots), slice(0, len(self.gates_TBP)))
        attended_BH = self.first_query_BH @ self.weights.query_attended_HH
        return (
            *self._compute_weight_gradients(),
            self._compute_input_gradient(),
            tape_BSD,
            attended_BH,
            self.added_TBH,
        )

    def _compute_weight_gradients(self) -> TapeWeights:
        """Products over all steps; the query of a step is in the row of the previous step."""
        width, first_BH, batch = self.width, self.first_query_BH, len(self.first_query_BH)
        gates_XP, inputs_XE = self.gates_TBP.flatten(0, 1), self.inputs.inputs_TBE.flatten(0, 1)
        gates_XF, queries_XH = gates_XP[:, : 4 * width], gates_XP[:-batch, 4 * width :]
        attended_PH = gates_XP.t() @ self.trace.read_TBD[:, :, :width].flatten(0, 1)
        return TapeWeights(
            gates_input_FE=gates_XF.t() @ inputs_XE,
            gates_bias_F=gates_XF.sum(0),
            gates_attended_FH=attended_PH[: 4 * width],
            query_input_HE=(queries_XH.t() @ inputs_XE[batch:]).addmm_(first_BH.t(), inputs_XE[:batch]),
            query_attended_HH=attended_PH[4 * width :].addmm_(first_BH.t(), self.inputs.attended_BH),
            key_HH=self.keys_BNH.flatten(0, 1).t() @ self.trace.tape_BND[:, :, :width].flatten(0, 1),
            score_H=self.score_B1H.sum((0, 1)),
        )

    def _compute_input_gradient(self) -> Tensor:
        width, batch = self.width, len(self.first_query_BH)
        gates_XP = self.gates_TBP.flatten(0, 1)
        inputs_XE = gates_XP[:, : 4 * width] @ self.weights.gates_input_FE
        inputs_XE[:batch].addmm_(self.first_query_BH, self.weights.query_input_HE)
        inputs_XE[batch:].addmm_(gates_XP[:-batch, 4 * width :], self.weights.query_input_HE)
        return inputs_XE.view_as(self.inputs.inputs_TBE)

    def _backpropagate_write(self, step: int) -> None:
        """Equations 7 to 9 backward: from the slot of a step to its gates and to the sum it attended to."""
        width, slot = self.width, self.initial_slots + step
        gates_BP, read_BD = self.gates_TBP[step], self.read_TBD[step]
        slot_B1D = self._compute_slot_gradients(slice(slot, slot + 1), self.trace.find_readers(slot))
        hidden_BH, cell_BH = slot_B1D.squeeze(1).chunk(2, dim=1)
        output_BH, input_BH, forget_BH, candidate_BH, _ = self.trace.gates_TBP[step].chunk(5, dim=1)
        to_output_BH, to_input_BH, to_forget_BH, to_candidate_BH, _ = gates_BP.chunk(5, dim=1)
        tanh_BH = self.trace.tape_BND[:, slot, width:].tanh()
        cell_BH += tanh_backward(hidden_BH * output_BH, tanh_BH)
        if self.added_TBH is not None:
            self.added_TBH[step] = cell_BH
        torch.mul(hidden_BH, tanh_BH, out=to_output_BH)
        torch.mul(cell_BH, candidate_BH, out=to_input_BH)
        torch.mul(cell_BH, self.trace.read_TBD[step, :, width:], out=to_forget_BH)
        to_sigmoids_BG = gates_BP[:, : 3 * width]
        sigmoid_backward(
            to_sigmoids_BG, self.trace.gates_TBP[step, :, : 3 * width], grad_input=to_sigmoids_BG
        )
        tanh_backward(cell_BH * input_BH, candidate_BH, grad_input=to_candidate_BH)
        torch.mul(cell_BH, forget_BH, out=read_BD[:, width:])
        torch.mm(gates_BP, self.attended_PH, out=read_BD[:, :width])
        if self.attended_TBH is not None:
            read_BD[:, :width] += self.attended_TBH[step]

    def _compute_slot_gradients(self, slots: slice, readers: slice) -> Tensor:
        """The gradients of h and c in these slots, which the steps `readers` read.

        They are the sum of the gradients from the output tape, from the weighted sums and from the keys.
        """
        slots_BND = self.tape_BND[:, slots].clone()
        if readers.start < readers.stop:
            weights_BNR = self.trace.weights_BTN[:, readers, slots].transpose(1, 2).contiguous()
            slots_BND.baddbmm_(weights_BNR, self.read_TBD[readers].transpose(0, 1))
        keys_BNH = self.keys_BNH[:, slots]
        keys_BNH += self.scores_BN[:, slots].unsqueeze(2)
        keys_BNH *= self.weights.score_H
        slots_BND[:, :, : self.width] += keys_BNH @ self.weights.key_HH
        return slots_BND

    def _backpropagate_attend(self, step: int) -> None:
        """Equations 4 to 6 backward: from the weighted sum of a step to its query and its window's keys."""
        window = self.trace.window(step)
        read_B1D = self.read_TBD[step].unsqueeze(1)
        to_weights_BW = torch.bmm(read_B1D, self.trace.tape_BND[:, window].transpose(1, 2)).squeeze(1)
        weights_BW = self.trace.weights_BTN[:, step, window]
        shares_BW = weights_BW * to_weights_BW
        scores_BW = shares_BW - weights_BW * shares_BW.sum(dim=1, keepdim=True)
        scores_B1W = scores_BW.unsqueeze(1)
        tangents_BWH = self.trace.compute_tangents(step, self.scratch_F)
        self.score_B1H.baddbmm_(scores_B1W, tangents_BWH)
        squares_BWH = tangents_BWH.square_()
        self.scores_BN[:, window] += scores_BW
        self.keys_BNH[:, window].addcmul_(squares_BWH, scores_BW.unsqueeze(2), value=-1)
        squares_BH = torch.bmm(scores_B1W, squares_BWH).squeeze(1)
        query_BH = _select_query(step, self.gates_TBP, self.first_query_BH)
        torch.mul(squares_BH, -self.weights.score_H, out=query_BH)
