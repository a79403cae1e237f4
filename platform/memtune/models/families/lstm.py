"""The LSTM language model: embedding, a stack of LSTM layers, softmax.

The baseline of Tran, Bisazza and Monz (2016), "Recurrent Memory Networks for Language Modeling", sections 2
and 4.2; with other settings, that of Zaremba, Sutskever and Vinyals (2014).

Shapes: B batch, T time, L layers, E width of the embeddings, H width, V vocabulary.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModel, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.layers.placed_dropout import DropoutPlacement
from memtune.models.layers.regularisation import Regularisation
from memtune.models.layers.shared_fields import InputForgetBias, Probability, TieOutput, VariationalDropout
from memtune.models.maximum_entropy import NgramConnections, add_ngram_connections
from memtune.models.narrow_embeddings import NarrowEmbeddingsConfig


class LSTMConfig(NarrowEmbeddingsConfig):
    """An LSTM language model; the defaults are the one-layer baseline of Tran et al. (2016), table 2."""

    family: Literal["lstm"] = "lstm"
    width: int = Field(128, ge=1, description="Width of every layer, and of the embeddings (section 4.2)")
    layers: int = Field(1, ge=1, description="LSTM layers")
    dropout: Probability = Field(0.0, description="Probability that a value is dropped (section 6)")
    dropout_placement: DropoutPlacement = "between"
    recurrent_dropout: Probability = Field(
        0.0, description="Dropout of a step's candidate, never of the cell (Semeniuta et al. 2016)"
    )
    variational_dropout: VariationalDropout = 0.0
    variational_recurrent_dropout: Probability = Field(
        0.0,
        description="Dropout of the hidden state that the gates read, one mask per sequence (Gal and "
        "Ghahramani 2016)",
    )
    zoneout_cell: Probability = Field(
        0.0, description="Probability that a cell stays as it was (Krueger et al. 2017)"
    )
    zoneout_hidden: Probability = Field(0.0, description="The same of a hidden unit")
    maximum_entropy: NgramConnections = None
    tie_output: TieOutput = False
    initial_range: float = Field(
        0.05, ge=0, le=100, description="Every parameter starts in U(-range, range) (section 4.2)"
    )
    forget_bias: InputForgetBias = 1.0

    @override
    def build(self, vocabulary_size: int) -> NeuralLanguageModel:
        return add_ngram_connections(LSTMLanguageModel(self, vocabulary_size), self.maximum_entropy)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        stack = LSTMStack.count_parameters(self.input_width, self.width, self.layers)
        output = self.output.parameter_count(self.width, vocabulary_size, self.tie_output)
        connections = self.maximum_entropy.size if self.maximum_entropy else 0
        return vocabulary_size * self.input_width + stack + output + connections

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        stack = LSTMStack.count_multiply_adds(self.input_width, self.width, self.layers)
        return stack + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each layer, and the words of the n-gram connections."""
        words = self.maximum_entropy.carried_words if self.maximum_entropy else 0
        return 2 * self.layers * self.width + words

    @override
    def describe(self) -> dict[str, str | int | float]:
        fields = self.select_fields("width", "layers", "dropout")
        return fields | self.regularisation.collect_nonzero()

    @property
    def regularisation(self) -> Regularisation:
        """The dropout and zoneout within the layers."""
        return Regularisation(
            self.recurrent_dropout,
            self.variational_dropout,
            self.variational_recurrent_dropout,
            self.zoneout_cell,
            self.zoneout_hidden,
        )


class LSTMLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden and cell, both (B, L, H)."""

    config: LSTMConfig

    def __init__(self, config: LSTMConfig, vocabulary_size: int) -> None:
        super().__init__(config, vocabulary_size, config.input_width)
        self.stack = LSTMStack(
            config.input_width,
            config.width,
            config.layers,
            config.dropout,
            config.dropout_placement,
            config.regularisation,
        )
        self.output = self.build_output(config.width)
        initialise_uniform(self, config.initial_range)
        self.stack.set_forget_bias(config.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        return self.stack.initial_state(batch_size)

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        result: tuple[Tensor, RecurrentState] = self.stack(self.embedding(tokens_BT), state)
        return result
