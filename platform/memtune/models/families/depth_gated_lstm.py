"""The depth-gated LSTM language model: LSTM layers whose memories are linked from layer to layer by a gate.

Yao, Cohn, Vylomova, Duh and Dyer (2015), "Depth-Gated LSTM". With x the input of a layer, c' the memory of
the layer below at the same step and c the memory of this layer:

    d_t = sigmoid(W_d x_t + w_c * c_{t-1} + w_l * c'_t + b_d)
    c_t = d_t * c'_t + f_t * c_{t-1} + i_t * tanh(W x_t + R h_{t-1} + b)

The other gates are those of the standard LSTM, without peepholes, as in the dLSTM of Cheng, Dong and Lapata
(2016), table 1, whose sizes are `width=300, embedding_width=150, layers=3`.

Layers run one after the other, so the terms from the layer below are computed for all time steps before the
loop. A step adds R h and the term of the previous memory in the depth gate. The gradients of the weights are
products over the whole sequence after the loop.

Shapes: B batch, T time, E input width of a layer, L layers, H width, F = 4H gates (output, input, forget,
candidate), G gates with the depth gate before them (5H), or without (4H), V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Literal

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
from memtune.models.layers.shared_fields import Dropout, ForgetBias, InitialRange, TieOutput
from memtune.models.narrow_embeddings import NarrowEmbeddingsConfig

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def apply_gate_weight(memory_H: Tensor, weight: Tensor) -> Tensor:
    """The term of a memory in the depth gate: w * c for a vector, W c for a matrix."""
    return memory_H * weight if weight.dim() == 1 else functional.linear(memory_H, weight)


@leave_uncompiled  # it would unroll the loop for each length
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


@dataclass
class _BackwardPass:
    """Back-propagation through time, from the tensors that forward saved."""

    kept_TBG: Tensor
    recurrent_FH: Tensor
    hidden_SBH: Tensor
    cell_SBH: Tensor
    lower_TBH: Tensor | None
    cell_weight: Tensor | None

    def __post_init__(self) -> None:
        self.width = self.recurrent_FH.shape[1]
        self.gates_TBG = torch.empty_like(self.kept_TBG)
        self.to_lower_TBH = None if self.lower_TBH is None else torch.empty_like(self.lower_TBH)

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
        cell_weight = None
        if self.cell_weight is not None:
            gates_XH = self.gates_TBG[:, :, : self.width].flatten(0, 1)
            cells_XH = self.cell_SBH[:-1].flatten(0, 1)
            is_vector = self.cell_weight.dim() == 1
            cell_weight = (gates_XH * cells_XH).sum(0) if is_vector else gates_XH.t() @ cells_XH
        return self.gates_TBG, recurrent_FH, hidden_BH, cell_BH, self.to_lower_TBH, cell_weight

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


GateWeights = Literal["diagonal", "full"]


class DepthGatedLSTMConfig(NarrowEmbeddingsConfig):
    """A depth-gated LSTM language model; the defaults are the dLSTM of Cheng et al. (2016), table 1, with
    embeddings as wide as the layers.
    """

    family: Literal["depth_gated_lstm"] = "depth_gated_lstm"
    width: int = Field(300, ge=1, description="Width of every layer (Cheng, section 5.1)")
    layers: int = Field(3, ge=1, description="LSTM layers; one without `link_input` is a plain LSTM")
    gate_weights: GateWeights = Field(
        "diagonal",
        description='How memories enter the depth gate: "diagonal", one weight per unit (Yao), or "full", a '
        "matrix, as in Cheng's released code",
    )
    link_input: bool = Field(
        False,
        description="Whether the first layer too has a depth gate, which gates a projection of the "
        "embedding (Yao's own code); otherwise only memories of adjacent layers are linked",
    )
    dropout: Dropout = 0.0
    dropout_placement: DropoutPlacement = "between"
    tie_output: TieOutput = False
    initial_range: InitialRange = 0.05
    forget_bias: ForgetBias = 1.0

    @override
    def build(self, vocabulary_size: int) -> "DepthGatedLSTMLanguageModel":
        return DepthGatedLSTMLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        output = self.output.parameter_count(self.width, vocabulary_size, self.tie_output)
        biases = 4 * self.layers + self.layers - 1 + self.link_input  # all but the first have a depth gate
        vectors = self._gate_memory_count if self.gate_weights == "diagonal" else 0
        own = self._count_matrix_entries() + (biases + vectors) * self.width
        return vocabulary_size * self.input_width + own + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return self._count_matrix_entries() + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each layer."""
        return 2 * self.layers * self.width

    @override
    def describe(self) -> dict[str, str | int | float]:
        fields = self.select_fields("width", "layers", "gate_weights", "link_input", "dropout")
        return fields | {"link_input": int(self.link_input)}

    @property
    def _gate_memory_count(self) -> int:
        """Memories that enter depth gates: the layer's own and, above the first, that of the layer below."""
        return 2 * (self.layers - 1) + self.link_input

    def _count_matrix_entries(self) -> int:
        """Entries of the matrices of all layers; each matrix has one product per word."""
        width, upper = self.width, self.layers - 1
        first = self.input_width * (4 + 2 * self.link_input)  # the depth gate and its projected input
        memories = self._gate_memory_count * width if self.gate_weights == "full" else 0
        return width * (first + upper * 5 * width + self.layers * 4 * width + memories)


class DepthGatedLayer(nn.Module):
    """One layer over whole sequences; rows of the gates are depth, output, input, forget and candidate."""

    def __init__(
        self, input_width: int, width: int, kind: GateWeights, first: bool, depth_gate: bool
    ) -> None:
        """The first layer has no memory below it; its depth gate, if any, gates a projected input."""
        super().__init__()
        size = (width,) if kind == "diagonal" else (width, width)
        self.width = width
        self.gates = nn.Linear(input_width, (5 if depth_gate else 4) * width)
        self.recurrent = nn.Linear(width, 4 * width, bias=False)
        self.value = nn.Linear(input_width, width, bias=False) if depth_gate and first else None
        self.cell_weight = nn.Parameter(torch.empty(size)) if depth_gate else None
        self.lower_weight = None if first else nn.Parameter(torch.empty(size))

    def forward(
        self, inputs_TBE: Tensor, lower_TBH: Tensor | None, hidden_BH: Tensor, cell_BH: Tensor
    ) -> tuple[Tensor, Tensor]:
        """hidden_TBH and cell_TBH; `lower` is the memory of the layer below, None in the first layer."""
        gates_TBG = self.gates(inputs_TBE)
        if lower_TBH is not None and self.lower_weight is not None:
            share_TBH = apply_gate_weight(lower_TBH, self.lower_weight)
            gates_TBG = torch.cat(
                [gates_TBG[:, :, : self.width] + share_TBH, gates_TBG[:, :, self.width :]], dim=2
            )
        elif self.value is not None:
            lower_TBH = self.value(inputs_TBE)
        outputs: tuple[Tensor, Tensor] = run_depth_gated_layer(
            gates_TBG, self.recurrent.weight, hidden_BH, cell_BH, lower_TBH, self.cell_weight
        )
        return outputs


class DepthGatedLSTMLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden and cell, both (B, L, H)."""

    config: DepthGatedLSTMConfig

    def __init__(self, config: DepthGatedLSTMConfig, vocabulary_size: int) -> None:
        width, input_width = config.width, config.input_width
        super().__init__(config, vocabulary_size, input_width)
        first = DepthGatedLayer(input_width, width, config.gate_weights, True, config.link_input)
        upper = [
            DepthGatedLayer(width, width, config.gate_weights, False, True) for _ in range(config.layers - 1)
        ]
        self.layers = nn.ModuleList([first, *upper])
        self.dropout = PlacedDropout(config.dropout, config.dropout_placement)
        self.output = self.build_output(width)
        initialise_uniform(self, config.initial_range)
        for layer in (first, *upper):
            nn.init.constant_(layer.gates.bias[-2 * width : -width], config.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        shape = (batch_size, self.config.layers, self.config.width)
        return {name: self.embedding.weight.new_zeros(shape) for name in ("hidden", "cell")}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        inputs_TBE, lower_TBH = self.dropout.input(self.embedding(tokens_BT.t())), None
        hidden, cell = [], []
        for index, layer in enumerate(self.layers):
            inputs_TBE, lower_TBH = layer(
                inputs_TBE, lower_TBH, state["hidden"][:, index], state["cell"][:, index]
            )
            hidden.append(inputs_TBE[-1])
            cell.append(lower_TBH[-1])
            is_last = index + 1 == len(self.layers)
            inputs_TBE = (self.dropout.output if is_last else self.dropout.between)(inputs_TBE)
        after = {"hidden": torch.stack(hidden, dim=1), "cell": torch.stack(cell, dim=1)}
        return inputs_TBE.transpose(0, 1), after
