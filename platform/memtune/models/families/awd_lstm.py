"""The AWD-LSTM: LSTM layers with weight drop, and dropout with one mask per sequence between them.

Merity, Keskar and Socher (2017), "Regularizing and Optimizing LSTM Language Models", sections 2 to 4. The
optimiser of the paper is `nt_asgd`; its random lengths are `random_lengths` of the `stream` protocol. Weight
drop (section 2) sets random weights from hidden state to gates to zero, the same weights at every step of
every row, so the layers can run on the fused kernels. All other masks are those of Gal and Ghahramani (2016):
words are dropped from the embedding table, and units from the inputs of each layer and of the output layer,
with one mask for each row of a batch.

Activation regularisation (section 4.6) adds to the loss of each token the squares of the input of the output
layer and of the differences between the last layer's steps, both as means over a batch. Only the gradient
contains it: the loss that a model returns is the likelihood.

Shapes: B batch, T time, E embedding width, H width of a layer, G = 4 H gates, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.lstm_stack import LSTMStack, run_fused_lstm
from memtune.models.layers.regularisation import apply_mask, draw_dropout_mask
from memtune.models.layers.shared_fields import Probability


class AWDLSTMConfig(NeuralLanguageModelConfig):
    """An AWD-LSTM; the defaults are the released settings for Penn Treebank."""

    family: Literal["awd_lstm"] = "awd_lstm"
    embedding_width: int = Field(
        400, ge=1, description="Width of the embeddings and of the last layer (section 4.5)"
    )
    width: int = Field(1150, ge=1, description="Width of every layer but the last (section 5)")
    layers: int = Field(3, ge=1, description="LSTM layers (section 5)")
    weight_drop: Probability = Field(
        0.5, description="Probability that a recurrent weight is dropped (section 2)"
    )
    embedding_dropout: Probability = Field(
        0.1, description="Probability that a word is dropped at all its positions (section 4.3)"
    )
    input_dropout: Probability = Field(
        0.4, description="Probability that a unit of the embeddings is dropped (section 4.2)"
    )
    hidden_dropout: Probability = Field(0.25, description="The same between two layers (section 4.2)")
    output_dropout: Probability = Field(0.4, description="The same after the last layer (section 4.2)")
    activation_regularisation: float = Field(
        2.0,
        ge=0,
        description="alpha: weight of the mean square of the last layer's dropped output (section 4.6)",
    )
    temporal_regularisation: float = Field(
        1.0, ge=0, description="beta: weight of the mean square of its steps, undropped (section 4.6)"
    )
    tie_output: bool = Field(
        True, description="The output layer's weight is the embedding table (section 4.4)"
    )
    initial_range: float = Field(
        0.1,
        ge=0,
        le=100,
        description="Embeddings and output layer start in U(-range, range), a layer of H units in "
        "U(-1/sqrt(H), 1/sqrt(H)) (section 5)",
    )

    @property
    def widths(self) -> list[int]:
        """The width of the embeddings, then the width of each layer."""
        return [self.embedding_width, *[self.width] * (self.layers - 1), self.embedding_width]

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The input width and the output width of each layer."""
        return list(zip(self.widths, self.widths[1:], strict=False))

    @override
    def build(self, vocabulary_size: int) -> "AWDLSTMLanguageModel":
        return AWDLSTMLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        layers = sum(LSTMStack.count_parameters(*sizes, 1) for sizes in self.sizes)
        output = self.output.parameter_count(self.embedding_width, vocabulary_size, self.tie_output)
        return vocabulary_size * self.embedding_width + layers + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        layers = sum(LSTMStack.count_multiply_adds(*sizes, 1) for sizes in self.sizes)
        return layers + self.output.multiply_adds(self.embedding_width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each layer."""
        return 2 * sum(self.widths[1:])

    @override
    def describe(self) -> dict[str, str | int | float]:
        sizes = self.select_fields("embedding_width", "width", "layers")
        return sizes | self.select_fields("weight_drop", "input_dropout", "hidden_dropout", "output_dropout")


@dataclass(frozen=True)
class _Masks:
    """The dropout masks of one forward pass; None stands for 1."""

    words_V: Tensor | None
    recurrent_GH: list[Tensor | None]
    read_B1H: list[Tensor | None]
    """The masks of the inputs of each layer and of the output layer."""


class AWDLSTMLanguageModel(EmbeddingLanguageModel):
    """Carried state: the hidden state and the cell of each layer, (B, H)."""

    config: AWDLSTMConfig

    def __init__(self, config: AWDLSTMConfig, vocabulary_size: int) -> None:
        width = config.embedding_width
        super().__init__(config, vocabulary_size, width)
        self.layers = nn.ModuleList(nn.LSTM(*size, batch_first=True) for size in config.sizes)
        self.output = self.build_output(width)
        initialise_uniform(self, config.initial_range)
        for layer, units in zip(self.layers, config.widths[1:], strict=True):
            initialise_uniform(layer, units**-0.5)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        zeros = self.embedding.weight.new_zeros
        return {
            f"{name}_{layer}": zeros(batch_size, width)
            for layer, width in enumerate(self.config.widths[1:])
            for name in ("hidden", "cell")
        }

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        _, shown_BTE, after = self._run_layers(tokens_BT, state)
        return shown_BTE, after

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """Summed nats; in training their gradient includes that of the activation regularisation."""
        last_BTE, shown_BTE, after = self._run_layers(inputs_BT, state)
        nats = self.sum_target_nats(shown_BTE, targets_BT, mask_BT)
        if self.training and torch.is_grad_enabled():
            penalty = self._compute_penalty(last_BTE, shown_BTE, mask_BT)
            nats = nats + (penalty - penalty.detach())
        return nats, after

    def _run_layers(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor, RecurrentState]:
        """The output of the last layer, the same after dropout, and the state after the last word."""
        masks = self._draw_masks(len(tokens_BT))
        values_BTH = self.embedding(tokens_BT)
        if masks.words_V is not None:
            values_BTH = values_BTH * masks.words_V[tokens_BT].unsqueeze(2)
        after: RecurrentState = {}
        for index, layer in enumerate(self.layers):
            weight_GE, recurrent_GH, *biases_G = layer.parameters()
            values_BTH, after[f"hidden_{index}"], after[f"cell_{index}"] = run_fused_lstm(
                apply_mask(values_BTH, masks.read_B1H[index]),
                state[f"hidden_{index}"],
                state[f"cell_{index}"],
                [weight_GE, apply_mask(recurrent_GH, masks.recurrent_GH[index]), *biases_G],
            )
        return values_BTH, apply_mask(values_BTH, masks.read_B1H[-1]), after

    def _draw_masks(self, rows: int) -> _Masks:
        """New masks from torch's default generator in training; no masks in evaluation."""
        config, like = self.config, self.embedding.weight
        between = [config.hidden_dropout] * (config.layers - 1)
        rates = [config.input_dropout, *between, config.output_dropout]
        return _Masks(
            draw_dropout_mask(like, (self.vocabulary_size,), config.embedding_dropout, self.training),
            [
                draw_dropout_mask(like, (4 * width, width), config.weight_drop, self.training)
                for width in config.widths[1:]
            ],
            [
                draw_dropout_mask(like, (rows, 1, width), rate, self.training)
                for width, rate in zip(config.widths, rates, strict=True)
            ],
        )

    def _compute_penalty(self, last_BTE: Tensor, dropped_BTE: Tensor, mask_BT: Tensor | None) -> Tensor:
        """Activation regularisation: its mean over the tokens with a true mask, times their number.

        The nats are a sum over tokens too, so alpha and beta have the same weight as in the paper.
        """
        weights_BT = last_BTE.new_ones(last_BTE.shape[:2]) if mask_BT is None else mask_BT.to(last_BTE.dtype)
        squares_BT = dropped_BTE.square().mean(2)
        steps_BT = (last_BTE[:, 1:] - last_BTE[:, :-1]).square().mean(2)
        pairs_BT = weights_BT[:, 1:] * weights_BT[:, :-1]
        mean_step = (steps_BT * pairs_BT).sum() / pairs_BT.sum().clamp(min=1)
        return (
            self.config.activation_regularisation * (squares_BT * weights_BT).sum()
            + self.config.temporal_regularisation * mean_step * weights_BT.sum()
        )
