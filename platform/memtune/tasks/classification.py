"""Tasks that ask for a class: batches of labelled examples, their loss, and the share of right answers.

Batches hold examples of similar length, so that little is padding; in training examples share a batch by
chance, and batches come in random order, both anew in each epoch. Every example is read once an epoch.

Shapes: those of a batch's tensors are as the classifiers have them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle
from typing_extensions import override

from memtune.corpora.protocols import Protocol, SentenceProtocol
from memtune.corpora.store import Corpus, Split
from memtune.corpora.trees import sent
from memtune.errors import ConfigurationError, CorpusError
from memtune.models.classifiers import Classifier
from memtune.models.interface import Architecture, LanguageModelConfig, State
from memtune.objective import Objective
from memtune.tasks.interface import Metrics, Task
from memtune.tasks.language_modelling import perplexity
from memtune.tasks.pretrained import Pretrained

__all__ = [
    "Classification",
    "Examples",
    "LabelledBatch",
    "Positions",
    "annotated_splits",
    "network",
    "padded_words",
    "word_counts",
]

Positions = NDArray[np.int64]

POOL_BATCHES = 64
"""Batches' worth of shuffled examples that are sorted by length together."""

EVALUATION_WORDS = 4096
"""Words read at once in an evaluation, padding included."""


@dataclass(frozen=True)
class LabelledBatch:
    """What a classifier is called with, and the right classes."""

    arguments: tuple[Tensor, ...]
    labels_N: Tensor
    """int64."""
    rows: int
    """Examples: sentences, or pairs of them."""
    learning_rate_scale: float = 1.0

    @property
    def token_count(self) -> int:
        """Labels."""
        return len(self.labels_N)

    def to(self, device: torch.device) -> "LabelledBatch":
        """The same batch on a device; to a GPU without making the host wait."""
        if device.type == "cpu":
            return self
        *arguments, labels_N = (sent(tensor, device) for tensor in (*self.arguments, self.labels_N))
        return replace(self, arguments=tuple(arguments), labels_N=labels_N)


class Examples(ABC):
    """The labelled examples of a split."""

    lengths_E2: Positions
    """Words of each example's longest reading and, of a pair, of its other sentence."""
    label_count: int

    @abstractmethod
    def batch(self, chosen: Positions) -> LabelledBatch:
        """Some of the examples, by their indices."""

    def __len__(self) -> int:
        return len(self.lengths_E2)


class Classification(Task[Classifier, LabelledBatch]):
    """Labelled examples of a corpus: their batches, their loss, and the metrics of a split."""

    objective: Objective = "accuracy"

    def __init__(
        self,
        training: Examples,
        evaluated: Mapping[str, Examples],
        choices: int,
        batch_size: int,
        pretrained: Pretrained | None = None,
    ) -> None:
        self.training, self.evaluated, self.choices = training, evaluated, choices
        self._batch_size = batch_size
        self._pretrained = pretrained
        self._held_back: list[RemovableHandle] = []

    @property
    @override
    def epoch_tokens(self) -> int:
        return self.training.label_count

    @override
    def prepare(self, model: Classifier) -> None:
        if self._pretrained is not None:
            self._pretrained.start(model)

    @override
    def enter_epoch(self, model: Classifier, epoch: int) -> None:
        for handle in self._held_back:
            handle.remove()
        self._held_back = []
        if self._pretrained is not None and epoch == 0:
            self._held_back = self._pretrained.hold_back(model)

    @override
    def training_plan(self, seed: int, epoch: int) -> "_ExamplePlan":
        random = np.random.default_rng((seed, epoch))
        shuffled = random.permutation(len(self.training))
        order = _alike_together(self.training.lengths_E2, shuffled, self._batch_size * POOL_BATCHES)
        bounds = [*range(0, len(order), self._batch_size), len(order)]
        return _ExamplePlan(self.training, order, bounds, random.permutation(len(bounds) - 1))

    @override
    def loss(self, model: Classifier, batch: LabelledBatch, state: State | None) -> tuple[Tensor, State]:
        logits_NC = model(*batch.arguments)
        return cross_entropy(logits_NC.float(), batch.labels_N, reduction="sum"), {}

    @override
    @torch.inference_mode()
    def evaluate(self, model: Classifier, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of a split; they do not depend on the batch size."""
        if split not in self.evaluated:
            raise CorpusError(f'the corpus has no labels for "{split}"; it has {", ".join(self.evaluated)}')
        plan, place = _evaluation_plan(self.evaluated[split]), torch.device(device)
        nats, right = (torch.zeros((), dtype=torch.float64, device=place) for _ in range(2))
        training = model.training
        model.eval()
        for index in range(len(plan)):
            batch = plan.batch(index).to(place)
            logits_NC = model(*batch.arguments).double()
            nats += cross_entropy(logits_NC, batch.labels_N, reduction="sum")
            right += (logits_NC.argmax(1) == batch.labels_N).sum()
        model.train(training)
        asked = plan.token_count
        loss = nats.item() / asked
        return Metrics(
            loss=loss,
            perplexity=perplexity(loss),
            tokens=asked,
            accuracy=right.item() / asked,
            questions=asked,
        )


class _ExamplePlan:
    """Batches between bounds of an order of the examples, themselves in an order."""

    def __init__(self, examples: Examples, order: Positions, bounds: list[int], batches: Positions) -> None:
        self._examples, self._order, self._bounds, self._batches = examples, order, bounds, batches

    @property
    def token_count(self) -> int:
        """Labels of the whole plan."""
        return self._examples.label_count

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, index: int) -> LabelledBatch:
        """The batch at an index from 0, made without those before it."""
        place = self._batches[index]
        return self._examples.batch(self._order[self._bounds[place] : self._bounds[place + 1]])


def _alike_together(lengths_E2: Positions, shuffled: Positions, pool: int) -> Positions:
    """The examples by length, within each pool of shuffled ones."""
    pools = np.arange(len(shuffled)) // pool
    longest, other = lengths_E2[shuffled].T
    return shuffled[np.lexsort((other, longest, pools))]


def _evaluation_plan(examples: Examples) -> _ExamplePlan:
    """All examples by length, as many in a batch as words are allowed, at least one."""
    order = _alike_together(examples.lengths_E2, np.arange(len(examples)), len(examples))
    bounds = [0]
    longest = examples.lengths_E2[order, 0]
    while bounds[-1] < len(order):
        # Lengths ascend: the last example of a batch says how wide it is.
        first = bounds[-1]
        words = longest[first:] * np.arange(1, len(order) - first + 1)
        bounds.append(first + max(1, int(np.searchsorted(words, EVALUATION_WORDS, side="right"))))
    return _ExamplePlan(examples, order, bounds, np.arange(len(bounds) - 1))


def annotated_splits(corpus: Corpus, kind: str, protocol: Protocol) -> list[str]:
    """The splits with annotations of a kind, those to train on and to validate on among them.

    Raises CorpusError where these are lacking, ConfigurationError for a protocol that does not read sentence
    by sentence.
    """
    if not isinstance(protocol, SentenceProtocol) or protocol.variant != "complete":
        raise ConfigurationError(
            f"{kind} is asked of whole sentences, each read from its start; take protocol.kind = "
            f'"sentence" with variant = "complete"'
        )
    found = list(corpus.annotations.get(kind, {}))
    for split in ("train", "valid"):
        if split not in found:
            raise CorpusError(
                f'corpus "{corpus.name}" has no {kind} labels in its {split} split; import one that has '
                f"(memtune corpus import --help lists the formats)"
            )
    return found


def network(model: LanguageModelConfig, task: str) -> Architecture:
    """A family whose hidden states a head can read; a ConfigurationError for one that only counts."""
    if isinstance(model, Architecture):
        return model
    raise ConfigurationError(
        f'task.kind = "{task}" needs hidden states, family = "{model.family}" counts; take a network, as '
        f'family = "lstmn"'
    )


def word_counts(split: Split, sentences: Positions) -> Positions:
    """Words of sentences, `<eos>` not counted; a CorpusError for one that has none."""
    counts = split.lengths[sentences].astype(np.int64) - 1
    if not counts.all():
        empty = int(sentences[counts.argmin()])
        raise CorpusError(
            f"sentence {empty} of {split.name} has labels and no words; leave it out of the import"
        )
    return counts


def padded_words(split: Split, sentences: Positions) -> tuple[Tensor, Tensor]:
    """words_BT of sentences without their `<eos>`, padded on the right, and how many words_B each has."""
    lengths = split.lengths[sentences].astype(np.int64) - 1
    columns = np.arange(lengths.max())
    held_BT = columns < lengths[:, None]
    words_BT = split.gather(split.starts[sentences][:, None] + np.where(held_BT, columns, 0))
    return torch.from_numpy(words_BT), torch.from_numpy(lengths)
