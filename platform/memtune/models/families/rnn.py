"""The simple recurrent language model: embedding, a stack of Elman layers, softmax.

Elman (1990), "Finding Structure in Time"; as a language model Mikolov et al. (2010), "Recurrent neural
network based language model". Each layer is h_t = f(W x_t + R h_{t-1} + b), with tanh, the logistic sigmoid
or a rectifier for f, from h = 0.

Shapes: B batch, T time, L layers, E input width of a layer, H width, V vocabulary.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModel, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.placed_dropout import DropoutPlacement, PlacedDropout
from memtune.models.layers.regularisation import LayerMasks, Regularisation, apply_mask, apply_zoneout
from memtune.models.layers.shared_fields import (
    Dropout,
    InitialRange,
    Probability,
    TieOutput,
    VariationalDropout,
)
from memtune.models.maximum_entropy import NgramConnections, add_ngram_connections
from memtune.models.narrow_embeddings import NarrowEmbeddingsConfig

Activation = Literal["tanh", "sigmoid", "relu"]


class RNNConfig(NarrowEmbeddingsConfig):
    """A simple recurrent language model; the defaults are one layer of tanh units."""

    family: Literal["rnn"] = "rnn"
    width: int = Field(128, ge=1, description="Width of every layer, and of the embeddings")
    layers: int = Field(1, ge=1, description="Elman layers")
    activation: Activation = Field(
        "tanh", description='f: "tanh" (Elman), "sigmoid" (Mikolov et al. 2010) or "relu"'
    )
    dropout: Dropout = 0.0
    dropout_placement: DropoutPlacement = "between"
    recurrent_dropout: Probability = Field(
        0.0, description="Dropout of a step's candidate (Semeniuta et al. 2016), here the whole new state"
    )
    variational_dropout: VariationalDropout = 0.0
    variational_recurrent_dropout: Probability = Field(
        0.0,
        description="Dropout of the state that a layer reads, one mask per sequence (Gal and "
        "Ghahramani 2016)",
    )
    zoneout: Probability = Field(
        0.0, description="Probability that a unit keeps its previous value (Krueger et al. 2017)"
    )
    maximum_entropy: NgramConnections = None
    tie_output: TieOutput = False
    initial_range: InitialRange = 0.05

    @override
    def build(self, vocabulary_size: int) -> NeuralLanguageModel:
        return add_ngram_connections(RNNLanguageModel(self, vocabulary_size), self.maximum_entropy)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        stack = self._count_matrix_entries() + 2 * self.layers * self.width
        output = self.output.parameter_count(self.width, vocabulary_size, self.tie_output)
        connections = self.maximum_entropy.size if self.maximum_entropy else 0
        return vocabulary_size * self.input_width + stack + output + connections

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return self._count_matrix_entries() + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state of each layer, and the words of the n-gram connections."""
        words = self.maximum_entropy.carried_words if self.maximum_entropy else 0
        return self.layers * self.width + words

    @override
    def describe(self) -> dict[str, str | int | float]:
        fields = self.select_fields("width", "layers", "activation", "dropout")
        return fields | self.regularisation.collect_nonzero()

    def _count_matrix_entries(self) -> int:
        """Entries of the matrices W and R of all layers."""
        return self.width * (self.input_width + (2 * self.layers - 1) * self.width)

    @property
    def regularisation(self) -> Regularisation:
        """The dropout and zoneout within the layers."""
        return Regularisation(
            recurrent_dropout=self.recurrent_dropout,
            variational_dropout=self.variational_dropout,
            variational_recurrent_dropout=self.variational_recurrent_dropout,
            zoneout_hidden=self.zoneout,
        )


class RNNLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden, (B, L, H)."""

    config: RNNConfig

    def __init__(self, config: RNNConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size, config.input_width)
        self.layers = nn.ModuleList(
            _ElmanLayer(config.width if index else config.input_width, config.width, config.activation)
            for index in range(config.layers)
        )
        self.dropout = PlacedDropout(config.dropout, config.dropout_placement)
        self.output = self.build_output(config.width)
        initialise_uniform(self, config.initial_range)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        shape = (batch_size, self.config.layers, self.config.width)
        return {"hidden": self.embedding.weight.new_zeros(shape)}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        read_BTE = self.dropout.input(self.embedding(tokens_BT))
        masks, output_B1H = self.config.regularisation.draw_stack_masks(
            read_BTE, self.config.width, self.config.layers, self.training
        )
        last_BH = []
        for index, layer in enumerate(self.layers):
            hidden_BTH = layer(read_BTE, state["hidden"][:, index], masks[index])
            last_BH.append(hidden_BTH[:, -1])
            is_last = index + 1 == self.config.layers
            read_BTE = (self.dropout.output if is_last else self.dropout.between)(hidden_BTH)
        return apply_mask(read_BTE, output_B1H), {"hidden": torch.stack(last_BH, dim=1)}


class _ElmanLayer(nn.Module):
    """One layer, on the fused kernels of the device if its masks allow it; b is the sum of two biases."""

    def __init__(self, input_width: int, width: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.rnn = nn.RNN(
            input_width, width, nonlinearity="relu" if activation == "relu" else "tanh", batch_first=True
        )

    @override
    def forward(self, inputs_BTE: Tensor, hidden_BH: Tensor, masks: LayerMasks) -> Tensor:
        """The hidden vectors after each input, (B, T, H), starting from `hidden`."""
        inputs_BTE = apply_mask(inputs_BTE, masks.input_B1E)
        if masks.has_step_masks:
            return self._run_steps(inputs_BTE, hidden_BH, masks)
        hidden_1BH = hidden_BH.unsqueeze(0).contiguous()
        if self.activation == "sigmoid":
            return self._run_sigmoid(inputs_BTE, hidden_1BH)
        outputs_BTH: Tensor
        outputs_BTH, _ = self.rnn(inputs_BTE, hidden_1BH)
        return outputs_BTH

    def _run_steps(self, inputs_BTE: Tensor, hidden_BH: Tensor, masks: LayerMasks) -> Tensor:
        weight_HE, recurrent_HH, bias_H, recurrent_bias_H = self.rnn.parameters()
        sums_TBH = functional.linear(inputs_BTE.transpose(0, 1), weight_HE, bias_H + recurrent_bias_H)
        activation = getattr(torch, self.activation)
        outputs = []
        for step, sum_BH in enumerate(sums_TBH.unbind()):
            read_BH = apply_mask(hidden_BH, masks.state_BH)
            reached_BH = activation(torch.addmm(sum_BH, read_BH, recurrent_HH.t()))
            reached_BH = apply_mask(reached_BH, masks.candidate_TBH, step)
            hidden_BH = apply_zoneout(reached_BH, hidden_BH, masks.kept_hidden_TBH, step)
            outputs.append(hidden_BH)
        return torch.stack(outputs, dim=1)

    def _run_sigmoid(self, inputs_BTE: Tensor, hidden_1BH: Tensor) -> Tensor:
        """Run sigmoid units on the kernels of tanh units: sigmoid(a) = (1 + g) / 2 with g = tanh(a / 2).

        The fused kernels have no sigmoid. In terms of g, the layer has tanh units with the weights W / 2 and
        R / 4 and the bias (b + R 1/2) / 2.
        """
        weight_HE, recurrent_HH, *biases_H = self.rnn.parameters()
        bias_H = (sum(biases_H) + recurrent_HH.sum(1) / 2) / 2
        weights = [weight_HE / 2, recurrent_HH / 4, bias_H, torch.zeros_like(bias_H)]
        options = (True, 1, 0.0, self.training, False, True)  # biases, layers, dropout, ..., batch first
        tanh_BTH, _ = torch.rnn_tanh(inputs_BTE, 2 * hidden_1BH - 1, weights, *options)
        return (1 + tanh_BTH) / 2
