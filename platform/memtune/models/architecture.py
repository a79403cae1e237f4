"""The interface of every model family: its configuration, its model, and two functions over any model.

A family is one module with a configuration class and a final model class: a `NeuralLanguageModelConfig` and a
`NeuralLanguageModel` for a network, a `CountingConfig` and a `LanguageModel` for a model that learns by
counting. Training, search, evaluation and reports use families through this interface alone.

Shapes: B batch, T time, H hidden width, V vocabulary, N = B * T rows, or nodes of trees.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ConfigDict, Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.layers.tree_levels import Trees
from memtune.models.memories.memory_traces import AttentionTrace, MemoryTrace, StackUse
from memtune.models.memories.recent_words import keep_recent_words, make_empty_words
from memtune.models.outputs.output_config import NoOutputConfig, OutputConfig, SoftmaxConfig
from memtune.models.outputs.output_layer import OutputLayer
from memtune.plugins import PluginConfig

RecurrentState = dict[str, Tensor]
"""The state of a model between two pieces of a text; the first dimension of every tensor is the batch."""
Encode = Callable[[Tensor, RecurrentState], tuple[Tensor, RecurrentState]]
"""The function `NeuralLanguageModel.encode` of a network."""


class LanguageModelConfig(PluginConfig):
    """The configuration of one family: it builds the model and gives its size and its cost."""

    model_config = ConfigDict(allow_inf_nan=False)
    family: str
    is_trained_by_gradient: ClassVar[bool]
    """Whether an optimiser trains the model; a model that learns by counting is fitted once instead."""
    reads_trees: ClassVar[bool] = False
    """Whether the models read trees of words, so that they are a `TreeReader`."""
    memory_traces: ClassVar[tuple[MemoryTrace, ...]] = ()
    """What the models can show of their memory: the methods `trace_attention` and `measure_stack_use`."""

    @property
    def idle_fields(self) -> tuple[str, ...]:
        """Fields that change nothing beside the others, such as a second mixer that the pattern lacks."""
        return ()

    @property
    def reads_ahead(self) -> bool:
        """Whether the models see words after the predicted one, so that sentences must be read whole."""
        return False

    def require_network(self, purpose: str) -> "NeuralLanguageModelConfig":
        """This configuration, if it is that of a network; `purpose` says in the error what needs one.

        Raises ConfigurationError for a family that learns by counting.
        """
        raise ConfigurationError(
            f'{purpose} needs a network, and family = "{self.family}" learns by counting; use a '
            f'network such as family = "lstm"'
        )

    @abstractmethod
    def build(self, vocabulary_size: int) -> "LanguageModel":
        """A new, untrained model."""

    @abstractmethod
    def parameter_count(self, vocabulary_size: int) -> int:
        """Number of trained parameters by formula, without building a module; a shared table counts once."""

    @abstractmethod
    def multiply_adds(self, vocabulary_size: int) -> int:
        """Multiply-adds of the matrix products per predicted token: forward pass with the output layer."""

    @property
    def state_grows(self) -> bool:
        """Whether the state grows with the text; `state_size` is then that after a mean sentence."""
        return False

    @abstractmethod
    def state_size(self) -> int:
        """Numbers that the model carries from one word of a text to the next, once its memory is full."""

    @abstractmethod
    def describe(self) -> dict[str, str | int | float]:
        """The fields that distinguish two models of this family in a table."""

    def select_fields(self, *names: str) -> dict[str, str | int | float]:
        """The values of these fields by name, in this order."""
        return {name: getattr(self, name) for name in names}

    def describe_output(self) -> dict[str, str | int | float]:
        """The fields that distinguish the output layer from a full softmax in a table; {} without one."""
        return {}


class CountingConfig(LanguageModelConfig):
    """The configuration of a family that learns by counting, from a whole text at once.

    The models have no trained parameters and compute no matrix products.
    """

    is_trained_by_gradient: ClassVar[bool] = False

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
        """The model of token ids (T,); `starts` are the positions at which a sentence or a stream begins.

        Raises ConfigurationError for an empty text, ids outside the vocabulary, and positions that do not
        begin with 0 or are not strictly ascending.
        """


class NeuralLanguageModelConfig(LanguageModelConfig):
    """The configuration of one family of networks."""

    is_trained_by_gradient: ClassVar[bool] = True
    output: OutputConfig = Field(
        SoftmaxConfig(), description="The output layer, by its `kind` (see the output layers)"
    )

    @property
    @override
    def is_loaded(self) -> bool:
        return self.output.is_loaded

    @model_validator(mode="after")
    def _check_output(self) -> Self:
        if getattr(self, "tie_output", False) and not self.output.can_be_tied:
            raise ValueError(
                f"tie_output needs an output layer with a row as wide as an embedding for every word, "
                f'"{self.output.kind}" has none; set tie_output = false'
            )
        if getattr(self, "maximum_entropy", None) and not self.output.can_have_ngram_connections:
            raise ValueError(
                f'maximum_entropy has no connections to an output layer of kind "{self.output.kind}"; use '
                f'"softmax" or "class_factored"'
            )
        return self

    @property
    def has_exact_gradients(self) -> bool:
        """Whether the gradient is that of the loss; False where decisions add an estimate of theirs."""
        return True

    @property
    def hidden_width(self) -> int:
        """Width H of the hidden vectors that the output layer reads.

        Computed from the cost of a full softmax over one word, which is H, so no family has to state it.
        """
        outputs = SoftmaxConfig(), NoOutputConfig()
        softmax, none = (self.model_copy(update={"output": output}) for output in outputs)
        return softmax.multiply_adds(1) - none.multiply_adds(1)

    @override
    def require_network(self, purpose: str) -> "NeuralLanguageModelConfig":
        return self

    @override
    def describe_output(self) -> dict[str, str | int | float]:
        return self.output.describe()

    def count_extra_activations(self, length: int) -> int:
        """The most floats that training stores for each word of rows of `length` beyond the outputs of maps.

        The default is that of an attention: scores, weights, their gradient and the temporal term for each
        word of the row.
        """
        return 4 * length

    def find_classifier_problem(self) -> str | None:
        """Why a classifier cannot be trained over the hidden states and what to change; None if it can."""
        return None

    def find_width_scaling_problem(self, base_width: int) -> str | None:
        """Why muP cannot scale the model from `base_width`, and what to change; None if it can."""
        if not self.output.has_width_scaling:
            return f'not output.kind = "{self.output.kind}"; use "softmax"'
        base = self.model_copy(update={"width": base_width})
        if getattr(self, "tie_output", False) and base.hidden_width != self.hidden_width:
            return "not a tied output layer; set tie_output = false"
        return None

    @abstractmethod
    def build(self, vocabulary_size: int) -> "NeuralLanguageModel":
        """A new model; its parameters are drawn from torch's default generator."""


class Model(nn.Module, ABC):
    """The model of a trial: a language model, or a classifier over the body of one."""

    config: LanguageModelConfig
    vocabulary_size: int

    def allocate_buffers(self, weights: Mapping[str, Tensor]) -> None:
        """Give buffers whose size depends on the training text the shapes of these saved weights.

        A network has no such buffers and does nothing.
        """

    def on_validation(self, valid_costs: Sequence[float]) -> None:
        """Adapt the model to the costs of all validations so far; lower is better.

        The trainer calls it after each report and once more when it resumes a trial, so the effect must
        depend on these costs alone. It belongs into buffers: a CUDA graph of the body repeats Python values.
        """

    def wrap_body(self, wrap: Callable[["NeuralLanguageModel"], Encode]) -> None:
        """Replace `encode` of the network, or of each reader, by what `wrap` makes of it."""

    def require_network(self, purpose: str) -> "NeuralLanguageModel":
        """The network that reads the words: a language model itself, the body of a classifier.

        `purpose` says in the error what needs one. Raises ConfigurationError for a model that counts.
        """
        raise ConfigurationError(f'{purpose} needs a network, and family = "{self.config.family}" is none')

    def require_language_model(self, purpose: str) -> "LanguageModel":
        """This model, if it predicts words; `purpose` says in the error what needs one.

        Raises ConfigurationError for a classifier.
        """
        raise ConfigurationError(
            f"{purpose} needs a language model, and this one is a classifier; name a language model"
        )


class LanguageModel(Model):
    """A model of the next word."""

    @override
    def require_language_model(self, purpose: str) -> "LanguageModel":
        return self

    def set_word_counts(self, counts: Sequence[int]) -> None:
        """Give a new model the number of occurrences of each word in the training text, before training."""

    @abstractmethod
    def initial_state(self, batch_size: int) -> RecurrentState:
        """The state before the first word, on the device and with the dtype of the weights."""

    @abstractmethod
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """The result of the module's function `negative_log_likelihood`."""

    @abstractmethod
    def candidate_nats(
        self, inputs_BT: Tensor, asked_BT: Tensor, candidates_QC: Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """nats_QC of C candidates at each of the Q positions where `asked_BT` is true, and the last state.

        Positions are taken row by row; position (b, t) is the word after input (b, t), as in
        `negative_log_likelihood`. Computes no gradients.
        """

    def score_next_word(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """scores_BV, log probabilities up to a constant, of the word after the last, and the last state."""
        asked_BT = torch.zeros_like(tokens_BT, dtype=torch.bool)
        asked_BT[:, -1] = True
        words_BV = torch.arange(self.vocabulary_size, device=tokens_BT.device).expand(len(tokens_BT), -1)
        nats_BV, state = self.candidate_nats(tokens_BT, asked_BT, words_BV, state)
        return -nats_BV, state


class NeuralLanguageModel(LanguageModel):
    """A network: a body that reads words and an output layer over the vocabulary."""

    config: NeuralLanguageModelConfig
    output: OutputLayer

    @abstractmethod
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """hidden_BTH, the input of the output layer after each word, and the state after the last word.

        The returned state is attached to the autograd graph; truncated back-propagation must detach it.
        """

    @override
    def require_network(self, purpose: str) -> "NeuralLanguageModel":
        return self

    def trace_attention(self, tokens_BT: Tensor, state: RecurrentState) -> AttentionTrace:
        """The attention after each word, for the kind "attention" of the configuration's `memory_traces`.

        Raises ConfigurationError for a family without attention.
        """
        raise ConfigurationError(f'the inspection of attention does not cover family "{self.config.family}"')

    def measure_stack_use(self, tokens_BT: Tensor, state: RecurrentState) -> StackUse:
        """The actions and the contribution of the stack, for the kind "stack" of `memory_traces`.

        Raises ConfigurationError for a family without a stack.
        """
        raise ConfigurationError(f'the inspection of stacks does not cover family "{self.config.family}"')

    @override
    def set_word_counts(self, counts: Sequence[int]) -> None:
        self.output.set_word_counts(counts)

    def collect_contexts(self, tokens_BT: Tensor, state: RecurrentState) -> dict[str, Tensor]:
        """What the output layer reads of each word besides its hidden vector, by the names of arguments."""
        return {}

    def logits(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """logits_BTV of the word after each word, and the state after the last."""
        hidden_BTH, after = self.encode(tokens_BT, state)
        logits_BTV: Tensor = self.output(hidden_BTH, **self.collect_contexts(tokens_BT, state))
        return logits_BTV, after

    @override
    def score_next_word(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        logits_BTV, state = self.logits(tokens_BT, state)
        return logits_BTV[:, -1], state

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """The result of the module's function `negative_log_likelihood`.

        A family with decisions that are not differentiable adds their gradient estimate here; the value
        remains the negative log likelihood.
        """
        hidden_BTH, after = self.encode(inputs_BT, state)
        contexts = self.collect_contexts(inputs_BT, state)
        return self.sum_target_nats(hidden_BTH, targets_BT, mask_BT, **contexts), after

    @override
    @torch.no_grad()
    def candidate_nats(
        self, inputs_BT: Tensor, asked_BT: Tensor, candidates_QC: Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        hidden_BTH, after = self.encode(inputs_BT, state)
        hidden_QH, contexts = hidden_BTH[asked_BT], self.collect_contexts(inputs_BT, state)
        asked = {name: values[asked_BT] for name, values in contexts.items()}
        columns = [
            self.output.negative_log_likelihood_by_row(hidden_QH, candidates_Q.contiguous(), **asked)[1]
            for candidates_Q in candidates_QC.unbind(1)
        ]
        return torch.stack(columns, dim=1), after

    def sum_target_nats(
        self, hidden_BTH: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, **contexts: Tensor
    ) -> Tensor:
        """Summed nats of the targets where the mask is true; the output layer, the largest cost, reads no
        other rows. `contexts` are those of `collect_contexts`.
        """
        rows = [values.flatten(0, 1) for values in (hidden_BTH, targets_BT, *contexts.values())]
        if mask_BT is not None:
            rows = [values[mask_BT.flatten()] for values in rows]
        hidden_NH, targets_N, *read = rows
        return self.output.negative_log_likelihood(
            hidden_NH, targets_N, **dict(zip(contexts, read, strict=True))
        )

    @override
    def wrap_body(self, wrap: Callable[["NeuralLanguageModel"], Encode]) -> None:
        setattr(self, "encode", wrap(self))  # noqa: B010


class EmbeddingLanguageModel(NeuralLanguageModel):
    """A network that reads the rows of an embedding table, which its output layer may share.

    A subclass builds its body between `__init__` and `build_output`: initial values are drawn in this order.
    """

    def __init__(self, config: NeuralLanguageModelConfig, vocabulary_size: int, embedding_width: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size, embedding_width)

    def build_output(self, width: int) -> OutputLayer:
        """The output layer over hidden vectors of this width, tied where the configuration says so."""
        tied_to = self.embedding if getattr(self.config, "tie_output", False) else None
        return self.config.output.build(width, self.vocabulary_size, tied_to)


class WindowLanguageModel(NeuralLanguageModel):
    """A network whose prediction depends on the current word and at most `max_history_words` before it.

    Carried state: words (B, at most `max_history_words`).
    """

    max_history_words: int

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        return {"words": make_empty_words(batch_size, find_device(self))}

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """The result of the module's function `negative_log_likelihood`.

        Words before the first column with a true mask only enter the state: no hidden vector is computed
        after them, and they do not enter the statistics of batch norm.
        """
        if mask_BT is not None:
            first = int(mask_BT.any(0).int().argmax())
            words_BK = torch.cat([state["words"], inputs_BT[:, :first]], dim=1)
            state = {"words": keep_recent_words(words_BK, self.max_history_words)}
            inputs_BT, targets_BT, mask_BT = (
                all_BT[:, first:] for all_BT in (inputs_BT, targets_BT, mask_BT)
            )
        return super().negative_log_likelihood(inputs_BT, targets_BT, mask_BT, state)


@runtime_checkable
class TreeReader(Protocol):
    """A model that predicts a word from the words on the path from the root of a tree to it."""

    def read_trees(self, trees: Trees) -> Tensor:
        """hidden_NF, the input of the output layer for each node below level 0."""

    def tree_nats(self, trees: Trees, weights_N: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The sum of the nats of all nodes below level 0, each times its weight (None: all 1), and nats_N of
        each node, unweighted and detached from the autograd graph.
        """


def find_device(model: nn.Module) -> torch.device:
    """The device of a model's parameters or, where it counts, of its buffers."""
    tensors = chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def logits(
    model: NeuralLanguageModel, tokens_BT: Tensor, state: RecurrentState | None = None
) -> tuple[Tensor, RecurrentState]:
    """logits_BTV of the word after each word, and the state after the last; None starts a new text.

    The first word of a new text comes after `<eos>`, which is the first token then.
    """
    return model.logits(tokens_BT, state or model.initial_state(len(tokens_BT)))


def negative_log_likelihood(
    model: LanguageModel,
    inputs_BT: Tensor,
    targets_BT: Tensor,
    mask_BT: Tensor | None = None,
    state: RecurrentState | None = None,
) -> tuple[Tensor, RecurrentState]:
    """Summed nats (a scalar) of the targets where the mask is true, and the state after the last input.

    The logits of all rows never exist at the same time: see `memtune.models.outputs.output_layer`.
    """
    state = state or model.initial_state(len(inputs_BT))
    return model.negative_log_likelihood(inputs_BT, targets_BT, mask_BT, state)
