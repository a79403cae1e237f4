"""What every language model and every family's configuration answers, and the two questions asked of them.

A family is one module: a configuration and a final class. A network's are an `Architecture` and a
`NeuralLanguageModel`; what is no network, and learns by no gradient, answers the wider `LanguageModelConfig`
and `LanguageModel` alone. Whatever trains, searches, evaluates or analyses knows the families only through
this interface.

Shapes: B batch, T time, H hidden width, V vocabulary, N = B * T rows, or nodes of trees.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.layers.output import OutputLayer
from memtune.models.layers.recent_words import no_words, recent_words
from memtune.models.layers.tree_levels import Trees
from memtune.models.outputs import OutputConfig, SoftmaxConfig
from memtune.values import Value

__all__ = [
    "Architecture",
    "Attentive",
    "CountingConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "Model",
    "NeuralLanguageModel",
    "State",
    "TreeReader",
    "WindowLanguageModel",
    "logits",
    "negative_log_likelihood",
]

State = dict[str, Tensor]
"""What a model carries from one piece of a text to the next; every tensor has the batch dimension first."""


class LanguageModelConfig(Value, ABC):
    """The configuration of one family: enough to rebuild the model, its size and its cost."""

    family: str
    reads_trees: ClassVar[bool] = False
    """Whether its models read trees of words: they are a `TreeReader`."""

    @property
    def reads_ahead(self) -> bool:
        """Whether its models see words after the one to predict: a sentence must be read in one piece."""
        return False

    @abstractmethod
    def build(self, vocabulary_size: int) -> "LanguageModel":
        """A new model that has learnt nothing."""

    @abstractmethod
    def parameter_count(self, vocabulary_size: int) -> int:
        """Number of trained parameters, shared ones once, by formula: no module is built."""

    @abstractmethod
    def multiply_adds(self, vocabulary_size: int) -> int:
        """Multiply-adds of the matrix products per predicted token, forward, output layer included."""

    @abstractmethod
    def describe(self) -> dict[str, str | int | float]:
        """The few parameters by which a table tells two models of this family apart."""


class CountingConfig(LanguageModelConfig):
    """The configuration of a family that learns by counting, from the whole of a text at once.

    It trains no parameter and multiplies no matrices.
    """

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        return 0

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return 0

    @abstractmethod
    def fit(
        self, tokens: npt.NDArray[np.integer], starts: npt.NDArray[np.integer], vocabulary_size: int
    ) -> "LanguageModel":
        """The model of a text of token ids (T,) that begins anew at each of the positions `starts`.

        Raises ConfigurationError for an empty text, ids outside of the vocabulary, and positions that do not
        begin with 0 or do not rise.
        """


class Architecture(LanguageModelConfig):
    """The configuration of one family of networks."""

    output: OutputConfig = Field(
        SoftmaxConfig(), description="The output layer, by its `kind` (see the output layers)"
    )

    @model_validator(mode="after")
    def _output_layer_fits(self) -> Self:
        if getattr(self, "tie_output", False) and not self.output.can_be_tied:
            raise ValueError(
                f"tie_output needs an output layer with a row as wide as an embedding for every word, "
                f'"{self.output.kind}" has none; take tie_output = false'
            )
        if getattr(self, "maximum_entropy", None) and not self.output.can_be_connected:
            raise ValueError(
                f'maximum_entropy has no connections to an output layer of kind "{self.output.kind}"; take '
                f'"softmax" or "class_factored"'
            )
        return self

    def kept_per_pair(self) -> int:
        """Floats that training keeps for each pair of words of a row, at most.

        Here those of an attention: scores, weights, their gradient and the temporal term.
        """
        return 4

    def unfit_as_body(self) -> str | None:
        """Why no classifier can be trained over the hidden states, with a way out; None where one can."""
        return None

    @abstractmethod
    def build(self, vocabulary_size: int) -> "NeuralLanguageModel":
        """A new model with its initial parameters, drawn from torch's default generator."""


class Model(nn.Module, ABC):
    """What a trial trains: a language model, or a head over the body of one."""

    config: LanguageModelConfig
    vocabulary_size: int

    def make_room(self, weights: Mapping[str, Tensor]) -> None:
        """Give what only the text that was learnt tells the size of the shape of these weights.

        A network has nothing of the kind.
        """

    def heed(self, valid_costs: Sequence[float]) -> None:
        """Hear what every validation so far came to, lower is better; a schedule may turn on it.

        It is told after each report, and once more when a trial goes on: what is decided must depend on
        these costs alone.
        """

    def compile_body(self) -> None:
        """Have torch.compile compile what reads the words."""


class LanguageModel(Model):
    """A model of the next word."""

    @abstractmethod
    def initial_state(self, batch_size: int) -> State:
        """The state before the first word, on the device and in the type of the weights."""

    @abstractmethod
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: State
    ) -> tuple[Tensor, State]:
        """What the function of this name gives."""

    @abstractmethod
    def candidate_nats(
        self, inputs_BT: Tensor, asked_BT: Tensor, candidates_QC: Tensor, state: State
    ) -> tuple[Tensor, State]:
        """nats_QC of C words at each of the Q places, row by row, where `asked_BT` is true; no gradients.

        A place is the word after an input, as in `negative_log_likelihood`; with it the state after the last.
        """


class NeuralLanguageModel(LanguageModel):
    """A network: a body that reads words and an output layer over the vocabulary."""

    config: Architecture
    output: OutputLayer

    @abstractmethod
    def encode(self, tokens_BT: Tensor, state: State) -> tuple[Tensor, State]:
        """hidden_BTH, what the output layer reads after each word, and the state after the last word.

        The returned state is still attached to the graph; whoever truncates back-propagation detaches it.
        """

    def logits(self, tokens_BT: Tensor, state: State) -> tuple[Tensor, State]:
        """logits_BTV of the word after each word, and the state after the last."""
        hidden_BTH, state = self.encode(tokens_BT, state)
        logits_BTV: Tensor = self.output(hidden_BTH)
        return logits_BTV, state

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: State
    ) -> tuple[Tensor, State]:
        """What the function of this name gives.

        A family that takes decisions no gradient passes through adds what teaches them to the gradient here;
        the value is that of the likelihood all the same.
        """
        hidden_BTH, state = self.encode(inputs_BT, state)
        return self.counted_nats(hidden_BTH, targets_BT, mask_BT), state

    @override
    @torch.no_grad()
    def candidate_nats(
        self, inputs_BT: Tensor, asked_BT: Tensor, candidates_QC: Tensor, state: State
    ) -> tuple[Tensor, State]:
        hidden_BTH, state = self.encode(inputs_BT, state)
        hidden_QH = hidden_BTH[asked_BT]
        columns = [
            self.output.negative_log_likelihood_by_row(hidden_QH, candidates_Q.contiguous())[1]
            for candidates_Q in candidates_QC.unbind(1)
        ]
        return torch.stack(columns, dim=1), state

    def counted_nats(self, hidden_BTH: Tensor, targets_BT: Tensor, mask_BT: Tensor | None) -> Tensor:
        """Summed nats of the targets that count; the output layer costs most and sees their rows alone."""
        hidden_NH, targets_N = hidden_BTH.flatten(0, 1), targets_BT.flatten()
        if mask_BT is not None:
            counted_N = mask_BT.flatten()
            hidden_NH, targets_N = hidden_NH[counted_N], targets_N[counted_N]
        return self.output.negative_log_likelihood(hidden_NH, targets_N)

    @override
    def compile_body(self) -> None:
        setattr(self, "encode", torch.compile(self.encode, dynamic=True))  # noqa: B010


class WindowLanguageModel(NeuralLanguageModel):
    """A network that sees no further back than the words in its state: `words`, (B, at most `remembered`)."""

    remembered: int

    @override
    def initial_state(self, batch_size: int) -> State:
        return {"words": no_words(batch_size, next(self.parameters()).device)}

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: State
    ) -> tuple[Tensor, State]:
        """What the function of this name gives.

        Words before the first one that counts are only remembered: nothing is computed after them, and batch
        norm takes no account of them.
        """
        if mask_BT is not None:
            first = int(mask_BT.any(0).int().argmax())
            words_BK = torch.cat([state["words"], inputs_BT[:, :first]], dim=1)
            state = {"words": recent_words(words_BK, self.remembered)}
            inputs_BT, targets_BT, mask_BT = (
                all_BT[:, first:] for all_BT in (inputs_BT, targets_BT, mask_BT)
            )
        return super().negative_log_likelihood(inputs_BT, targets_BT, mask_BT, state)


@runtime_checkable
class Attentive(Protocol):
    """A model whose attention over the past can be read."""

    def attention(self, tokens_BT: Tensor, state: State) -> Tensor:
        """weights_BTn over the n slots after each word, the most recent slot last, 0 where there is none."""


@runtime_checkable
class TreeReader(Protocol):
    """A model that predicts words from the path down a tree to them."""

    def read_trees(self, trees: Trees) -> Tensor:
        """hidden_NF, what the output layer reads to predict each node below level 0."""

    def tree_nats(self, trees: Trees, weights_N: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Nats of the words of all nodes below level 0, each times its weight (None: all 1), as a sum; and
        nats_N of each node, unweighted and cut from the graph."""


def logits(model: NeuralLanguageModel, tokens_BT: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """logits_BTV of the word after each word, and the state after the last; without a state a text starts."""
    return model.logits(tokens_BT, state or model.initial_state(len(tokens_BT)))


def negative_log_likelihood(
    model: LanguageModel,
    inputs_BT: Tensor,
    targets_BT: Tensor,
    mask_BT: Tensor | None = None,
    state: State | None = None,
) -> tuple[Tensor, State]:
    """Summed nats (a scalar) of the targets where the mask is true, and the state after the last input.

    The logits of all rows never exist at once: see `memtune.models.layers.output`.
    """
    state = state or model.initial_state(len(inputs_BT))
    return model.negative_log_likelihood(inputs_BT, targets_BT, mask_BT, state)
