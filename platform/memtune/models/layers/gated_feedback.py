"""The recurrence of a gated-feedback LSTM stack over whole sequences.

Chung, Gulcehre, Cho and Bengio (2015), "Gated Feedback Recurrent Neural Networks", section 3. Every layer
reads the previous states of all layers, so the outer loop runs over time and the inner loop over layers. One
batched product per step computes all terms of the previous states: the gates of each state's own layer, its
signal to the candidate of every layer, and its term in every global reset gate. The gradients of the weights
are products over the whole sequence after the loop.

Shapes: B batch, T time, S = T + 1 states with that before the first step, L layers, U = L - 1 layers above
the first, H width, A = 4H + L sums of a layer (candidate, output, input, forget, reset gates), C = 3H + L H +
L L outputs of a state (its layer's gates, signals to the layers, parts of the layers' reset gates).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["run_gated_feedback"]

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it would unroll the loop for each length
def run_gated_feedback(
    first_TBA: Tensor,
    upper_UAH: Tensor,
    bias_UA: Tensor,
    state_LCH: Tensor,
    hidden_LBH: Tensor,
    cell_LBH: Tensor,
    mask_UTBH: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """hidden_TBH of the top layer, and hidden_LBH and cell_LBH after the last step.

    `first` are the terms of the inputs in the sums of the first layer. `upper` and `bias` compute the sums of
    the layers above from the state below, after dropout with `mask` if it is given. `state` is the weight of
    the states before a step. The recurrence runs in the dtype of the weights, also under autocast.
    """
    tensors = (first_TBA, upper_UAH, bias_UA, state_LCH, hidden_LBH, cell_LBH, mask_UTBH)
    with torch.autocast(state_LCH.device.type, enabled=False):
        cast = (None if tensor is None else tensor.to(state_LCH.dtype) for tensor in tensors)
        outputs: tuple[Tensor, Tensor, Tensor] = _Recurrence.apply(*cast)  # type: ignore[no-untyped-call]
    return outputs


class _Trace(NamedTuple):
    """Values that forward saves for backward: the activated sums, the outputs of states, and the states."""

    sums_LTBA: Tensor
    given_LTBC: Tensor
    hidden_LSBH: Tensor
    cell_LSBH: Tensor


class _Recurrence(torch.autograd.Function):
    """Forward runs over steps from the first and layers from the bottom; backward runs in reverse order."""

    @staticmethod
    def forward(
        ctx: Any,
        first_TBA: Tensor,
        upper_UAH: Tensor,
        bias_UA: Tensor,
        state_LCH: Tensor,
        hidden_LBH: Tensor,
        cell_LBH: Tensor,
        mask_UTBH: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        trace = _allocate_trace(first_TBA, state_LCH, hidden_LBH, cell_LBH)
        upper_UHA = upper_UAH.transpose(1, 2).contiguous()
        state_LHC = state_LCH.transpose(1, 2).contiguous()
        for step in range(len(first_TBA)):
            trace.given_LTBC[:, step] = torch.bmm(trace.hidden_LSBH[:, step], state_LHC)
            for layer in range(len(state_LHC)):
                if layer:
                    below_BH = trace.hidden_LSBH[layer - 1, step + 1]
                    if mask_UTBH is not None:
                        below_BH = below_BH * mask_UTBH[layer - 1, step]
                    sums_BA = trace.sums_LTBA[layer, step]
                    torch.addmm(bias_UA[layer - 1], below_BH, upper_UHA[layer - 1], out=sums_BA)
                _update(trace, layer, step)
        ctx.save_for_backward(upper_UAH, state_LCH, mask_UTBH, *trace)
        ctx.set_materialize_grads(False)
        return trace.hidden_LSBH[-1, 1:], trace.hidden_LSBH[:, -1].clone(), trace.cell_LSBH[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        upper_UAH, state_LCH, mask_UTBH, *trace = ctx.saved_tensors
        with torch.autocast(state_LCH.device.type, enabled=False):
            return (*_BackwardPass(upper_UAH, state_LCH, mask_UTBH, _Trace(*trace)).run(*gradients), None)


def _allocate_trace(first_TBA: Tensor, state_LCH: Tensor, hidden_LBH: Tensor, cell_LBH: Tensor) -> _Trace:
    (steps, batch, sums), (layers, given, width) = first_TBA.shape, state_LCH.shape
    new = first_TBA.new_empty
    trace = _Trace(
        sums_LTBA=new(layers, steps, batch, sums),
        given_LTBC=new(layers, steps, batch, given),
        hidden_LSBH=new(layers, steps + 1, batch, width),
        cell_LSBH=new(layers, steps + 1, batch, width),
    )
    trace.sums_LTBA[0] = first_TBA
    trace.hidden_LSBH[:, 0], trace.cell_LSBH[:, 0] = hidden_LBH, cell_LBH
    return trace


def _slice_signals(given_LBC: Tensor, layer: int, width: int) -> Tensor:
    """The signal of each state for the candidate of a layer, LBH, before the reset gates."""
    return given_LBC[:, :, (3 + layer) * width : (4 + layer) * width]


def _slice_resets(given_LBC: Tensor, layer: int) -> Tensor:
    """The term of each state in the reset gates of a layer, LBL."""
    layers = len(given_LBC)
    first = given_LBC.shape[2] - (layers - layer) * layers
    return given_LBC[:, :, first : first + layers]


def _update(trace: _Trace, layer: int, step: int) -> None:
    """Compute a layer's gates, candidate and new state from its sums and the terms of the previous states."""
    sums_BA, given_LBC, width = trace.sums_LTBA[layer, step], trace.given_LTBC[:, step], _find_width(trace)
    sums_BA[:, width : 4 * width] += given_LBC[layer, :, : 3 * width]
    sums_BA[:, 4 * width :] += _slice_resets(given_LBC, layer).sum(0)
    sums_BA[:, width:].sigmoid_()
    candidate_BH, output_BH, input_BH, forget_BH = sums_BA[:, : 4 * width].chunk(4, dim=1)
    resets_LB1 = sums_BA[:, 4 * width :].t().unsqueeze(2)
    candidate_BH += (resets_LB1 * _slice_signals(given_LBC, layer, width)).sum(0)
    candidate_BH.tanh_()
    cell_SBH = trace.cell_LSBH[layer]
    torch.mul(forget_BH, cell_SBH[step], out=cell_SBH[step + 1]).addcmul_(input_BH, candidate_BH)
    torch.mul(output_BH, cell_SBH[step + 1].tanh(), out=trace.hidden_LSBH[layer, step + 1])


def _find_width(trace: _Trace) -> int:
    return trace.cell_LSBH.shape[3]


class _BackwardPass:
    """Back-propagation through time: steps from the last, layers from the top."""

    def __init__(self, upper_UAH: Tensor, state_LCH: Tensor, mask_UTBH: Tensor | None, trace: _Trace) -> None:
        self.upper_UAH, self.mask_UTBH, self.trace, self.width = (
            upper_UAH,
            mask_UTBH,
            trace,
            _find_width(trace),
        )
        self.state_LCH = state_LCH
        self.sums_LTBA = torch.empty_like(trace.sums_LTBA)
        self.given_LTBC = torch.empty_like(trace.given_LTBC)
        self.cell_LBH = torch.zeros_like(trace.cell_LSBH[:, 0])

    def run(
        self, top_TBH: Tensor | None, hidden_LBH: Tensor | None, cell_LBH: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The gradients of all arguments except the mask, in their order, from those of the outputs."""
        if cell_LBH is not None:
            self.cell_LBH += cell_LBH
        hidden_LBH = torch.zeros_like(self.cell_LBH) if hidden_LBH is None else hidden_LBH.clone()
        for step in reversed(range(self.sums_LTBA.shape[1])):
            if top_TBH is not None:
                hidden_LBH[-1] += top_TBH[step]
            for layer in reversed(range(len(hidden_LBH))):
                self._backpropagate_update(layer, step, hidden_LBH[layer])
                if layer:
                    hidden_LBH[layer - 1] += self._compute_below_gradient(layer, step)
            hidden_LBH = torch.bmm(self.given_LTBC[:, step], self.state_LCH)
        states_LXH = self.trace.hidden_LSBH[:, :-1].flatten(1, 2)
        return (
            self.sums_LTBA[0],
            *self._compute_upper_gradients(),
            torch.bmm(self.given_LTBC.flatten(1, 2).transpose(1, 2), states_LXH),
            hidden_LBH,
            self.cell_LBH,
        )

    def _backpropagate_update(self, layer: int, step: int, hidden_BH: Tensor) -> None:
        """Pass the gradient of a layer's state on to its sums and to the terms of the previous states."""
        width, kept_BA, sums_BA = self.width, self.trace.sums_LTBA[layer, step], self.sums_LTBA[layer, step]
        cell_BH, cell_SBH = self.cell_LBH[layer], self.trace.cell_LSBH[layer]
        candidate_BH, output_BH, input_BH, forget_BH = kept_BA[:, : 4 * width].chunk(4, dim=1)
        to_candidate_BH, to_output_BH, to_input_BH, to_forget_BH = sums_BA[:, : 4 * width].chunk(4, dim=1)
        tanh_BH = cell_SBH[step + 1].tanh()
        cell_BH += tanh_backward(hidden_BH * output_BH, tanh_BH)
        torch.mul(hidden_BH, tanh_BH, out=to_output_BH)
        torch.mul(cell_BH, candidate_BH, out=to_input_BH)
        torch.mul(cell_BH, cell_SBH[step], out=to_forget_BH)
        tanh_backward(cell_BH * input_BH, candidate_BH, grad_input=to_candidate_BH)
        cell_BH *= forget_BH
        given_LBC, to_given_LBC = self.trace.given_LTBC[:, step], self.given_LTBC[:, step]
        resets_LB1 = kept_BA[:, 4 * width :].t().unsqueeze(2)
        _slice_signals(to_given_LBC, layer, width).copy_(resets_LB1 * to_candidate_BH)
        sums_BA[:, 4 * width :] = (_slice_signals(given_LBC, layer, width) * to_candidate_BH).sum(2).t()
        sigmoid_backward(sums_BA[:, width:], kept_BA[:, width:], grad_input=sums_BA[:, width:])
        to_given_LBC[layer, :, : 3 * width] = sums_BA[:, width : 4 * width]
        _slice_resets(to_given_LBC, layer).copy_(sums_BA[:, 4 * width :].expand(len(to_given_LBC), -1, -1))

    def _compute_below_gradient(self, layer: int, step: int) -> Tensor:
        """The gradient of the state below, through the sums of a layer."""
        below_BH = self.sums_LTBA[layer, step] @ self.upper_UAH[layer - 1]
        return below_BH if self.mask_UTBH is None else below_BH * self.mask_UTBH[layer - 1, step]

    def _compute_upper_gradients(self) -> tuple[Tensor, Tensor]:
        """The gradients of the weights and biases that compute sums from the state below."""
        sums_UXA, below_UTBH = self.sums_LTBA[1:].flatten(1, 2), self.trace.hidden_LSBH[:-1, 1:]
        if self.mask_UTBH is not None:
            below_UTBH = below_UTBH * self.mask_UTBH
        return torch.bmm(sums_UXA.transpose(1, 2), below_UTBH.flatten(1, 2)), sums_UXA.sum(1)
