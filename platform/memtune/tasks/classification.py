"""Classification: batches of labelled examples, their loss and their accuracy.

A batch holds examples of similar length, which keeps the padding small. Each training epoch shuffles the
examples within and between batches and reads every example once.

Embeddings may start with the corpus' pretrained vectors (Cheng, Dong and Lapata 2016, "Long Short-Term
Memory-Networks for Machine Reading", sections 5.2 and 5.3): in the first epoch the gradients of words with a
pretrained vector are scaled down (sentiment) or zero (inference). The other words have random vectors and
train at the full rate.

Shapes: E examples, N labels, C classes, B sentences, T time, V vocabulary. The classifiers define the shapes
of a batch's other tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle
from typing_extensions import override

from memtune.corpora.batching.batches import DeviceBatch, Positions, TaskPlan, cut_by_length
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus, Split
from memtune.corpora.store.vocabulary import Vectors
from memtune.errors import ConfigurationError, CorpusError
from memtune.models.architecture import LanguageModelConfig, NeuralLanguageModelConfig, RecurrentState
from memtune.models.classifiers import Classifier, ClassifierConfig, strip_output_layer
from memtune.objective import Objective
from memtune.tasks.item_costs import ItemCosts, count_best_candidates, credit_choices, evaluation_mode
from memtune.tasks.language_modelling import perplexity
from memtune.tasks.task import Metrics, Task, TaskConfig

SORTING_POOL_BATCHES = 64
"""Number of batches in a pool; shuffled examples are sorted by length within a pool."""

EVALUATION_BATCH_WORDS = 4096
"""Largest number of words in an evaluation batch, padding included."""

ClassifierLayers = Annotated[int, Field(ge=0, json_schema_extra={"unit": "layers"})]
PretrainedVectors = Annotated[
    bool,
    Field(description="Whether the corpus' pretrained vectors initialise the embeddings, if it has any"),
]


@dataclass(frozen=True)
class LabelledBatch(DeviceBatch):
    """The arguments of a classifier and the correct classes."""

    arguments: tuple[Tensor, ...]
    labels_N: Tensor
    """Correct class of each label, int64."""
    rows: int
    """Number of examples: sentences, or pairs of sentences."""
    learning_rate_scale: float = 1.0

    @property
    def token_count(self) -> int:
        """Number of labels."""
        return len(self.labels_N)


class Examples(ABC):
    """The labelled examples of a split."""

    lengths_E2: Positions
    """Words of the longer and of the shorter sentence of each pair; 0 in column 2 for a single sentence."""
    label_count: int

    @abstractmethod
    def batch(self, indices: Positions) -> LabelledBatch:
        """The batch of the examples at these indices."""

    def __len__(self) -> int:
        return len(self.lengths_E2)


class ClassificationConfig(TaskConfig):
    """A task over labelled examples, annotations of the task's kind."""

    objective: Literal[Objective.ACCURACY] = Objective.ACCURACY
    prediction_unit = "examples"

    words_per_label: ClassVar[int] = 1
    """Words that are read for each label, in the count of multiply-adds."""

    @override
    @abstractmethod
    def open(self, corpus: Corpus, protocol: Protocol) -> "Classification":
        """The labelled examples of a corpus."""

    @abstractmethod
    def make_head(self, vocabulary_size: int) -> ClassifierConfig:
        """The classifier over states, or over their means."""

    def require_network(self, model: LanguageModelConfig) -> NeuralLanguageModelConfig:
        """The body. Raises ConfigurationError for a family that learns by counting."""
        return model.require_network(f'task.kind = "{self.kind}"')

    @override
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        body, head = self.require_network(model), self.make_head(vocabulary_size)
        width = body.hidden_width
        return strip_output_layer(body).parameter_count(vocabulary_size) + head.parameter_count(width, width)

    @override
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        body, head = self.require_network(model), self.make_head(vocabulary_size)
        per_label = head.multiply_adds(body.hidden_width, body.hidden_width)
        return strip_output_layer(body).multiply_adds(1) + per_label // self.words_per_label

    @override
    def is_evaluable(self, corpus: Corpus, protocol: Protocol, split: str) -> bool:
        return split in corpus.annotations.get(self.kind, {})


@dataclass(eq=False)
class Classification(Task[Classifier, LabelledBatch]):
    """Labelled examples of a corpus: their batches, their loss, and the metrics of a split."""

    training_examples: Examples
    evaluation_examples: Mapping[str, Examples]
    outcome_count: int
    batch_size: int
    vectors: Vectors | None = None
    """The initial embeddings of words."""
    first_epoch_scale: float = 1.0
    """The factor of the gradients of these embeddings in the first epoch."""
    _gradient_hooks: list[RemovableHandle] = field(default_factory=list, init=False)
    objective = Objective.ACCURACY

    def __post_init__(self) -> None:
        """Raises CorpusError where no label of training or validation counts."""
        _require_labels("train", self.training_examples)
        _require_labels("valid", self.evaluation_examples["valid"])

    @cached_property
    def chance(self) -> float:
        """The validation accuracy of the best constant answer."""
        examples = self.evaluation_examples["valid"]
        labels_N = examples.batch(np.arange(len(examples))).labels_N
        return labels_N.bincount().max().item() / len(labels_N)

    @property
    @override
    def epoch_tokens(self) -> int:
        return self.training_examples.label_count

    @override
    def initialise_model(self, model: Classifier) -> None:
        """Copy the corpus' vectors into the embeddings. Raises ConfigurationError for another width."""
        if self.vectors is None:
            return
        values_VE = torch.from_numpy(np.array(self.vectors.values_VE))
        width = values_VE.shape[1]
        for table in model.find_embedding_tables():
            if table.embedding_dim != width:
                raise ConfigurationError(
                    f"the corpus' vectors have width {width}, the embeddings {table.embedding_dim}; "
                    f"set model.embedding_width = {width}, or task.pretrained_vectors = false"
                )
            with torch.no_grad():
                table.weight.copy_(values_VE)

    @override
    def on_epoch_start(self, model: Classifier, epoch: int) -> None:
        for handle in self._gradient_hooks:
            handle.remove()
        self._gradient_hooks = []
        if self.vectors is None or epoch:
            return
        known_V1 = torch.from_numpy(np.array(self.vectors.known_V)).unsqueeze(1)
        factors_V1 = torch.where(known_V1, self.first_epoch_scale, 1.0)
        self._gradient_hooks = [
            table.weight.register_hook(partial(_scale_rows, factors_V1.to(table.weight)))  # type: ignore[no-untyped-call]
            for table in model.find_embedding_tables()
        ]

    @override
    def training_plan(self, seed: int, epoch: int) -> TaskPlan[LabelledBatch]:
        random, examples = np.random.default_rng((seed, epoch)), self.training_examples
        shuffled = random.permutation(len(examples))
        order = _sort_within_pools(examples.lengths_E2, shuffled, self.batch_size * SORTING_POOL_BATCHES)
        bounds = np.append(np.arange(0, len(order), self.batch_size), len(order))
        batches = random.permutation(len(bounds) - 1)
        return TaskPlan(bounds, examples.label_count, examples.batch, order, batches)

    @override
    def loss(
        self, model: Classifier, batch: LabelledBatch, state: RecurrentState | None
    ) -> tuple[Tensor, RecurrentState]:
        logits_NC = model(*batch.arguments)
        return cross_entropy(logits_NC.float(), batch.labels_N, reduction="sum"), {}

    @override
    @torch.inference_mode()
    def evaluate(self, model: Classifier, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of a split, whatever the batch size. Raises CorpusError for a split without labels."""
        nats_N, credits_N, is_tied_N = self._answer_examples(model, split, torch.device(device))
        labels = len(nats_N)
        loss = nats_N.sum().item() / labels
        return Metrics(
            loss=loss,
            perplexity=perplexity(loss),
            tokens=labels,
            accuracy=credits_N.sum().item() / labels,
            questions=labels,
            ties=int(is_tied_N.sum().item()),
        )

    @override
    @torch.inference_mode()
    def compute_item_costs(
        self, model: Classifier, split: str, device: str | torch.device = "cpu"
    ) -> ItemCosts:
        _, credits_N, _ = self._answer_examples(model, split, torch.device(device))
        return ItemCosts("examples", 1 - credits_N.cpu().numpy(), np.ones(len(credits_N), np.int64))

    def _answer_examples(
        self, model: Classifier, split: str, place: torch.device
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Nats and credit of each label of a split in float64, and whether its best classes tie, all (N,)."""
        if split not in self.evaluation_examples:
            raise CorpusError(
                f'the corpus has no labels for "{split}"; it has {", ".join(self.evaluation_examples)}'
            )
        examples = self.evaluation_examples[split]
        _require_labels(split, examples)
        order = _sort_within_pools(examples.lengths_E2, np.arange(len(examples)), len(examples))
        bounds = cut_by_length(examples.lengths_E2[order, 0], EVALUATION_BATCH_WORDS)
        plan = TaskPlan(bounds, examples.label_count, examples.batch, order)
        answers: list[tuple[Tensor, Tensor, Tensor]] = []
        with evaluation_mode(model):
            for index in range(len(plan)):
                batch = plan.batch(index).to(place)
                logits_NC = model(*batch.arguments).double()
                nats_N = cross_entropy(logits_NC, batch.labels_N, reduction="none")
                credits_N = credit_choices(-logits_NC, batch.labels_N)
                answers.append((nats_N, credits_N, count_best_candidates(-logits_NC) > 1))
        nats, credits, ties = zip(*answers, strict=True)
        return torch.cat(nats), torch.cat(credits), torch.cat(ties)


def _require_labels(split: str, examples: Examples) -> None:
    if not examples.label_count:
        raise CorpusError(
            f"no label of the {split} split counts: neutral sentences do not in two classes, and _ asks "
            "nothing in a probe; import a split with other labels"
        )


def _scale_rows(factors_V1: Tensor, gradient_VE: Tensor) -> Tensor:
    """A gradient, dense or sparse with one row per token read, with its rows scaled."""
    if not gradient_VE.is_sparse:
        return gradient_VE * factors_V1
    indices_1N = gradient_VE._indices()
    values_NE = gradient_VE._values() * factors_V1[indices_1N[0]]
    return torch.sparse_coo_tensor(indices_1N, values_NE, gradient_VE.shape, check_invariants=False)


def _sort_within_pools(lengths_E2: Positions, shuffled: Positions, pool: int) -> Positions:
    """Shuffled examples sorted by length within each pool of `pool` examples."""
    pools = np.arange(len(shuffled)) // pool
    longest, other = lengths_E2[shuffled].T
    return shuffled[np.lexsort((other, longest, pools))]


def find_annotated_splits(corpus: Corpus, kind: str, protocol: Protocol) -> list[str]:
    """The splits with annotations of a kind, `train` and `valid` included.

    Raises CorpusError when `train` or `valid` has none, and ConfigurationError for a protocol that does not
    read complete sentences.
    """
    require_whole_sentences(kind, protocol)
    splits = list(corpus.annotations.get(kind, {}))
    for split in ("train", "valid"):
        if split not in splits:
            raise CorpusError(
                f'corpus "{corpus.name}" has no {kind} labels in its {split} split; import a corpus with '
                f"labels (memtune corpus import --help lists the formats)"
            )
    return splits


def require_whole_sentences(kind: str, protocol: Protocol) -> None:
    """Raise ConfigurationError for a protocol that does not read complete sentences."""
    if protocol.kind != "sentence" or protocol.variant != "complete":
        raise ConfigurationError(
            f"{kind} classifies whole sentences, each read from its start; set protocol.kind = "
            f'"sentence" with variant = "complete"'
        )


def count_words(split: Split, sentences: Positions) -> Positions:
    """Words of each sentence without `<eos>`; raises CorpusError for an empty sentence."""
    counts = split.lengths[sentences].astype(np.int64) - 1
    if not counts.all():
        empty = int(sentences[counts.argmin()])
        raise CorpusError(
            f"sentence {empty} of {split.name} has a label but no words; remove it from the imported file"
        )
    return counts


def pad_words(split: Split, sentences: Positions) -> tuple[Tensor, Tensor]:
    """Words of sentences without `<eos>`, (B, T) with padding on the right, and their lengths, (B,)."""
    lengths = split.lengths[sentences].astype(np.int64) - 1
    words_BT, _ = split.gather_sentences(sentences, lengths)
    return torch.from_numpy(words_BT), torch.from_numpy(lengths)
