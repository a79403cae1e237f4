"""The gated-feedback LSTM language model: every layer reads the previous states of all layers, through gates.

Chung, Gulcehre, Cho and Bengio (2015), "Gated Feedback Recurrent Neural Networks", section 3. Layer j reads
x, the state of layer j - 1 at the same step or the embedding, and h*, the previous states of all layers put
side by side. Its input, forget and output gates are those of a stacked LSTM; in its candidate

    g_ij = sigmoid(w_ij . x_t + u_ij . h*_{t-1})
    candidate_t = tanh(W x_t + sum over i of g_ij U_ij h_{t-1} of layer i + b)

a global reset gate g, one number for each pair of layers and without a bias, lets the signal from layer i to
layer j pass. The gLSTM of Cheng, Dong and Lapata (2016), table 1, has the sizes `width=300,
embedding_width=150, layers=3`.

The outer loop runs over time and the inner loop over layers. One batched product per step computes all terms
of the previous states: the gates of each state's own layer, its signal to the candidate of every layer, and
its term in every global reset gate. The gradients of the weights are products over the whole sequence after
the loop.

Shapes: B batch, T time, S = T + 1 states with that before the first step, E input width of a layer, L layers,
U = L - 1 layers above the first, H width, A = 4H + L sums of a layer (candidate, output, input, forget, reset
gates), C = 3H + L H + L L outputs of a state (its layer's gates, signals to the layers, parts of the layers'
reset gates), V vocabulary.
"""

from typing import Any, Literal, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, RecurrentState
from memtune.models.compilation import leave_uncompiled
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.placed_dropout import DropoutPlacement, PlacedDropout
from memtune.models.layers.regularisation import draw_dropout_mask
from memtune.models.layers.shared_fields import Dropout, ForgetBias, InitialRange, TieOutput
from memtune.models.narrow_embeddings import NarrowEmbeddingsConfig

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


@leave_uncompiled  # it would unroll the loop for each length
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
        (steps, batch, sums), (layers, given, width) = first_TBA.shape, state_LCH.shape
        trace = _Trace(
            sums_LTBA=first_TBA.new_empty(layers, steps, batch, sums),
            given_LTBC=first_TBA.new_empty(layers, steps, batch, given),
            hidden_LSBH=first_TBA.new_empty(layers, steps + 1, batch, width),
            cell_LSBH=first_TBA.new_empty(layers, steps + 1, batch, width),
        )
        trace.sums_LTBA[0] = first_TBA
        trace.hidden_LSBH[:, 0], trace.cell_LSBH[:, 0] = hidden_LBH, cell_LBH
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
    sums_BA, given_LBC = trace.sums_LTBA[layer, step], trace.given_LTBC[:, step]
    cell_SBH, width = trace.cell_LSBH[layer], trace.cell_LSBH.shape[3]
    sums_BA[:, width : 4 * width] += given_LBC[layer, :, : 3 * width]
    sums_BA[:, 4 * width :] += _slice_resets(given_LBC, layer).sum(0)
    sums_BA[:, width:].sigmoid_()
    candidate_BH, output_BH, input_BH, forget_BH = sums_BA[:, : 4 * width].chunk(4, dim=1)
    resets_LB1 = sums_BA[:, 4 * width :].t().unsqueeze(2)
    candidate_BH += (resets_LB1 * _slice_signals(given_LBC, layer, width)).sum(0)
    candidate_BH.tanh_()
    torch.mul(forget_BH, cell_SBH[step], out=cell_SBH[step + 1]).addcmul_(input_BH, candidate_BH)
    torch.mul(output_BH, cell_SBH[step + 1].tanh(), out=trace.hidden_LSBH[layer, step + 1])


class _BackwardPass:
    """Back-propagation through time: steps from the last, layers from the top."""

    def __init__(self, upper_UAH: Tensor, state_LCH: Tensor, mask_UTBH: Tensor | None, trace: _Trace) -> None:
        self.upper_UAH, self.state_LCH, self.mask_UTBH = upper_UAH, state_LCH, mask_UTBH
        self.trace, self.width = trace, state_LCH.shape[2]
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
                    below_BH = self.sums_LTBA[layer, step] @ self.upper_UAH[layer - 1]
                    if self.mask_UTBH is not None:
                        below_BH = below_BH * self.mask_UTBH[layer - 1, step]
                    hidden_LBH[layer - 1] += below_BH
            hidden_LBH = torch.bmm(self.given_LTBC[:, step], self.state_LCH)
        states_LXH = self.trace.hidden_LSBH[:, :-1].flatten(1, 2)
        sums_UXA, below_UTBH = self.sums_LTBA[1:].flatten(1, 2), self.trace.hidden_LSBH[:-1, 1:]
        if self.mask_UTBH is not None:
            below_UTBH = below_UTBH * self.mask_UTBH
        return (
            self.sums_LTBA[0],
            torch.bmm(sums_UXA.transpose(1, 2), below_UTBH.flatten(1, 2)),
            sums_UXA.sum(1),
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


class GatedFeedbackLSTMConfig(NarrowEmbeddingsConfig):
    """A gated-feedback LSTM language model; the defaults are the gLSTM of Cheng et al. (2016), table 1, but
    for embeddings as wide as the layers.
    """

    family: Literal["gated_feedback_lstm"] = "gated_feedback_lstm"
    width: int = Field(300, ge=1, description="Width of every layer (Cheng, section 5.1)")
    layers: int = Field(
        3, ge=1, description="LSTM layers; every layer reads the previous states of all layers"
    )
    dropout: Dropout = 0.0
    dropout_placement: DropoutPlacement = "between"
    tie_output: TieOutput = False
    initial_range: InitialRange = 0.05
    forget_bias: ForgetBias = 1.0

    @override
    def build(self, vocabulary_size: int) -> "GatedFeedbackLSTMLanguageModel":
        return GatedFeedbackLSTMLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        biases = 4 * self.layers * self.width
        output = self.output.parameter_count(self.width, vocabulary_size, self.tie_output)
        return vocabulary_size * self.input_width + self._count_matrix_entries() + biases + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return self._count_matrix_entries() + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each layer."""
        return 2 * self.layers * self.width

    @override
    def describe(self) -> dict[str, str | int | float]:
        return self.select_fields("width", "layers", "dropout")

    def _count_matrix_entries(self) -> int:
        """Entries of the matrices of all layers; each matrix has one product per word."""
        width, layers = self.width, self.layers
        below = (4 * width + layers) * (self.input_width + (layers - 1) * width)
        return below + layers * width * (3 * width + layers * width + layers * layers)


class GatedFeedbackLayer(nn.Module):
    """The parameters of one layer; rows of the gates are candidate, output, input and forget."""

    def __init__(self, input_width: int, width: int, layers: int) -> None:
        """`layers` is the number of layers whose states it reads."""
        super().__init__()
        self.gates = nn.Linear(input_width, 4 * width)
        self.recurrent = nn.Linear(width, 3 * width, bias=False)
        self.feedback = nn.Parameter(torch.empty(layers, width, width))
        self.reset_input = nn.Linear(input_width, layers, bias=False)
        self.reset_states = nn.Linear(layers * width, layers, bias=False)

    def stack_input_weights(self) -> tuple[Tensor, Tensor]:
        """weight_AE and bias_A of the layer's input; the reset gates have no bias, so theirs is zero."""
        weight_AE = torch.cat([self.gates.weight, self.reset_input.weight])
        return weight_AE, functional.pad(self.gates.bias, (0, len(self.feedback)))


class GatedFeedbackLSTMLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden and cell, both (B, L, H)."""

    config: GatedFeedbackLSTMConfig

    def __init__(self, config: GatedFeedbackLSTMConfig, vocabulary_size: int) -> None:
        width, input_width = config.width, config.input_width
        super().__init__(config, vocabulary_size, input_width)
        layers = [
            GatedFeedbackLayer(width if index else input_width, width, config.layers)
            for index in range(config.layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.dropout = PlacedDropout(config.dropout, config.dropout_placement)
        self.output = self.build_output(width)
        initialise_uniform(self, config.initial_range)
        for layer in layers:
            nn.init.constant_(layer.gates.bias[-width:], config.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        shape = (batch_size, self.config.layers, self.config.width)
        return {name: self.embedding.weight.new_zeros(shape) for name in ("hidden", "cell")}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        sums = [layer.stack_input_weights() for layer in self._list_layers()]
        (first_AE, first_A), upper = sums[0], [weight_AH for weight_AH, _ in sums[1:]]
        none_UAH = first_A.new_empty(0, len(first_A), self.config.width)
        between_UTBH = (self.config.layers - 1, *tokens_BT.t().shape, self.config.width)
        top_TBH, hidden_LBH, cell_LBH = run_gated_feedback(
            functional.linear(self.dropout.input(self.embedding(tokens_BT.t())), first_AE, first_A),
            torch.stack(upper) if upper else none_UAH,
            torch.stack([bias_A for _, bias_A in sums])[1:],
            self._build_state_weight(),
            state["hidden"].transpose(0, 1),
            state["cell"].transpose(0, 1),
            draw_dropout_mask(self.embedding.weight, between_UTBH, self.config.dropout, self.training),
        )
        after = {"hidden": hidden_LBH.transpose(0, 1), "cell": cell_LBH.transpose(0, 1)}
        return self.dropout.output(top_TBH.transpose(0, 1)), after

    def _list_layers(self) -> list[GatedFeedbackLayer]:
        return cast(list[GatedFeedbackLayer], list(self.layers))

    def _build_state_weight(self) -> Tensor:
        """state_LCH: the weight of the previous state of each layer, in all sums that read it."""
        layers, width = self._list_layers(), self.config.width
        weights = []
        for index, layer in enumerate(layers):
            signals = [reader.feedback[index] for reader in layers]
            own = slice(index * width, (index + 1) * width)
            resets = [reader.reset_states.weight[:, own] for reader in layers]
            weights.append(torch.cat([layer.recurrent.weight, *signals, *resets]))
        return torch.stack(weights)
