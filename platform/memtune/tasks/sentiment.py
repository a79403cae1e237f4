"""Sentiment of sentences and phrases: five classes, or two without the neutral ones.

Cheng, Dong and Lapata (2016), section 5.2, on the Stanford Sentiment Treebank (Socher et al. 2013). The
states after the words of a phrase are averaged and classified; a phrase is read in its sentence, so its
states know the words before it. Two classes leave out sentences whose own label is neutral, and neutral
phrases.

Shapes: B sentences, T time, N labelled phrases.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from memtune.corpora.protocols import Protocol
from memtune.corpora.store import Corpus, Split
from memtune.models.classifiers import ClassifierConfig, SentenceClassifier, bare, hidden_width
from memtune.models.interface import LanguageModelConfig
from memtune.tasks.classification import (
    Classification,
    Examples,
    LabelledBatch,
    Positions,
    annotated_splits,
    network,
    padded_words,
    word_counts,
)
from memtune.tasks.interface import TaskConfig
from memtune.tasks.pretrained import pretrained

__all__ = ["SentimentConfig"]

MEAN_WORDS = 19
"""Words a sentence (section 5.2)."""
CLASSES = {5: (0, 1, 2, 3, 4), 2: (0, 0, -1, 1, 1)}
"""By number of classes: the class of each label, from very negative to very positive; -1 is left out."""


class SentimentConfig(TaskConfig):
    """Tell how positive a sentence is."""

    kind: Literal["sentiment"] = "sentiment"
    objective: Literal["accuracy"] = "accuracy"
    classes: Literal[5, 2] = Field(5, description="Five classes, or positive against negative")
    phrases: Literal["root", "all"] = Field(
        "root",
        description='What training learns from: "root", whole sentences, or "all" labelled phrases too; '
        "evaluation is of whole sentences",
    )
    classifier_layers: int = Field(2, ge=0, description="Layers of ReLU below the last, linear one")
    dropout: float = Field(0.5, ge=0, lt=1, description="Of the classifier (section 5.2)")
    pretrained_vectors: bool = Field(
        True, description="Whether embeddings start as the corpus' pretrained vectors, where it has some"
    )
    first_epoch_scale: float = Field(
        0.35,
        ge=0,
        description="What the gradient of pretrained words is multiplied by in the first epoch; Adam cancels "
        "a constant factor but for its epsilon and weight decay",
    )

    @property
    @override
    def label(self) -> str:
        return f"sentiment in {self.classes} classes"

    @property
    def head(self) -> ClassifierConfig:
        """The classifier over the mean state."""
        return ClassifierConfig(classes=self.classes, layers=self.classifier_layers, dropout=self.dropout)

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> SentenceClassifier:
        return SentenceClassifier(network(model, self.kind), vocabulary_size, self.head)

    @override
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        body = network(model, self.kind)
        width = hidden_width(body)
        return bare(body).parameter_count(vocabulary_size) + self.head.parameter_count(width, width)

    @override
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        body = network(model, self.kind)
        width = hidden_width(body)
        return bare(body).multiply_adds(1) + self.head.multiply_adds(width, width) // MEAN_WORDS

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> Classification:
        splits = annotated_splits(corpus, self.kind, protocol)
        return Classification(
            self._examples(corpus, "train", self.phrases),
            {split: self._examples(corpus, split, "root") for split in splits},
            self.classes,
            protocol.batch_size,
            pretrained(corpus, self.first_epoch_scale) if self.pretrained_vectors else None,
        )

    def _examples(self, corpus: Corpus, split: str, phrases: str) -> "_Phrases":
        table = corpus.annotations["sentiment"][split]
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        classes = np.array(CLASSES[self.classes])[columns["label"]]
        roots = columns["root"]
        kept = np.isin(columns["sentence"], columns["sentence"][roots & (classes >= 0)]) & (classes >= 0)
        if phrases == "root":
            kept &= roots
        names = ("sentence", "start", "stop")
        sentences, starts, stops = (columns[name][kept].astype(np.int64) for name in names)
        return _Phrases(corpus[split], sentences, starts, stops, classes[kept])


class _Phrases(Examples):
    """Sentences with the labelled phrases of each."""

    def __init__(
        self,
        split: Split,
        sentences_N: Positions,
        starts_N: Positions,
        stops_N: Positions,
        labels_N: NDArray[np.int64],
    ) -> None:
        order = np.argsort(sentences_N, kind="stable")
        self._split = split
        self._spans_3N = np.stack([starts_N, stops_N, labels_N])[:, order]
        self._sentences, self._firsts, self._counts = np.unique(
            sentences_N[order], return_index=True, return_counts=True
        )
        lengths = word_counts(split, self._sentences)
        self.lengths_E2 = np.stack([lengths, np.zeros_like(lengths)], axis=1)
        self.label_count = len(labels_N)

    @override
    def batch(self, chosen: Positions) -> LabelledBatch:
        words_BT, _ = padded_words(self._split, self._sentences[chosen])
        counts = self._counts[chosen]
        rows = np.repeat(np.arange(len(chosen)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        spans = self._spans_3N[:, np.repeat(self._firsts[chosen], counts) + within]
        starts_N, stops_N, labels_N = (torch.from_numpy(column) for column in spans.copy())
        return LabelledBatch((words_BT, torch.from_numpy(rows), starts_N, stops_N), labels_N, len(chosen))
