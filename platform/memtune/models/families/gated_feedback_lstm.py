"""The gated-feedback LSTM language model: every layer reads the previous states of all layers, through gates.

Chung, Gulcehre, Cho and Bengio (2015), "Gated Feedback Recurrent Neural Networks", section 3. Layer j reads
x, the state of layer j - 1 at the same step or the embedding, and h*, the previous states of all layers put
side by side. Its input, forget and output gates are those of a stacked LSTM; in its candidate

    g_ij = sigmoid(w_ij . x_t + u_ij . h*_{t-1})
    candidate_t = tanh(W x_t + sum over i of g_ij U_ij h_{t-1} of layer i + b)

a global reset gate g, one number for each pair of layers and without a bias, lets the signal from layer i to
layer j pass. The gLSTM of Cheng, Dong and Lapata (2016), table 1, has the sizes `width=300,
embedding_width=150, layers=3`.

Shapes: B batch, T time, E input width of a layer, L layers, U = L - 1 layers above the first, H width,
A = 4H + L sums of a layer (candidate, output, input, forget, reset gates), C outputs of a layer's previous
state (see `memtune.models.layers.gated_feedback`), V vocabulary.
"""

from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModel, RecurrentState
from memtune.models.layers.gated_feedback import run_gated_feedback
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.lstm_stack import DropoutPlacement
from memtune.models.layers.shared_fields import Dropout, ForgetBias, InitialRange, TieOutput
from memtune.models.narrow_embeddings import NarrowEmbeddingsConfig

__all__ = ["GatedFeedbackLSTMConfig", "GatedFeedbackLSTMLanguageModel"]


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
    dropout_placement: DropoutPlacement = Field(
        "between",
        description='Dropout between layers ("between"; one layer has none) or of the '
        'top layer\'s state too ("after"); the feedback is never dropped',
    )
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
        return {"width": self.width, "layers": self.layers, "dropout": self.dropout}

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
        self.width = width
        self.gates = nn.Linear(input_width, 4 * width)
        self.recurrent = nn.Linear(width, 3 * width, bias=False)
        self.feedback = nn.Parameter(torch.empty(layers, width, width))
        self.reset_input = nn.Linear(input_width, layers, bias=False)
        self.reset_states = nn.Linear(layers * width, layers, bias=False)

    @torch.no_grad()
    def set_forget_bias(self, value: float) -> None:
        """Set the forget gate's slice of the bias of the gates."""
        self.gates.bias[-self.width :] = value

    def stack_input_weights(self) -> tuple[Tensor, Tensor]:
        """weight_AE and bias_A of the layer's input; the reset gates have no bias, so theirs is zero."""
        weight_AE = torch.cat([self.gates.weight, self.reset_input.weight])
        return weight_AE, functional.pad(self.gates.bias, (0, len(self.feedback)))


class GatedFeedbackLSTMLanguageModel(NeuralLanguageModel):
    """Carried state: hidden and cell, both (B, L, H)."""

    config: GatedFeedbackLSTMConfig

    def __init__(self, config: GatedFeedbackLSTMConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        width, input_width = config.width, config.input_width
        self.embedding = nn.Embedding(vocabulary_size, input_width)
        layers = [
            GatedFeedbackLayer(width if index else input_width, width, config.layers)
            for index in range(config.layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(config.dropout)
        self.output = config.output.build(
            width, vocabulary_size, self.embedding if config.tie_output else None
        )
        initialise_uniform(self, config.initial_range)
        for layer in layers:
            layer.set_forget_bias(config.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        shape = (batch_size, self.config.layers, self.config.width)
        return {name: self.embedding.weight.new_zeros(shape) for name in ("hidden", "cell")}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        sums = [layer.stack_input_weights() for layer in self._list_layers()]
        first_AE, first_A = sums[0]
        top_TBH, hidden_LBH, cell_LBH = run_gated_feedback(
            functional.linear(self.embedding(tokens_BT.t()), first_AE, first_A),
            _stack_or_empty(
                [weight_AH for weight_AH, _ in sums[1:]], (len(first_A), self.config.width), first_A
            ),
            _stack_or_empty([bias_A for _, bias_A in sums[1:]], (len(first_A),), first_A),
            self._build_state_weight(),
            state["hidden"].transpose(0, 1),
            state["cell"].transpose(0, 1),
            self._draw_mask(tokens_BT),
        )
        top_BTH = top_TBH.transpose(0, 1)
        after = {"hidden": hidden_LBH.transpose(0, 1), "cell": cell_LBH.transpose(0, 1)}
        return self.dropout(top_BTH) if self.config.dropout_placement == "after" else top_BTH, after

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

    def _draw_mask(self, tokens_BT: Tensor) -> Tensor | None:
        """mask_UTBH of dropout between layers; None if nothing is dropped."""
        upper = self.config.layers - 1
        if not self.training or not self.config.dropout or not upper:
            return None
        mask_UTBH: Tensor = self.dropout(
            self.embedding.weight.new_ones(upper, *tokens_BT.t().shape, self.config.width)
        )
        return mask_UTBH


def _stack_or_empty(tensors: list[Tensor], shape: tuple[int, ...], like: Tensor) -> Tensor:
    """The stacked tensors of the layers above the first; an empty tensor if there is no such layer."""
    return torch.stack(tensors) if tensors else like.new_empty(0, *shape)
