"""Sentiment of sentences and phrases in five classes, or in two classes without neutral examples.

Cheng, Dong and Lapata (2016), section 5.2, on the Stanford Sentiment Treebank (Socher et al. 2013). The
mean of the hidden states over the words of a phrase is classified. A phrase is read within its sentence, so
its states depend on the words before it. With two classes, neutral phrases and sentences with a neutral label
are left out.

Shapes: B sentences, T time, N labelled phrases.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from typing_extensions import override

from memtune.corpora.batching.batches import Positions
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.models.architecture import LanguageModelConfig
from memtune.models.classifiers import ClassifierConfig, SentenceClassifier
from memtune.tasks import classification

CLASS_BY_LABEL = {5: (0, 1, 2, 3, 4), 2: (0, 0, -1, 1, 1)}
"""Number of classes -> class of each label, from very negative to very positive; -1 leaves it out."""


class SentimentConfig(classification.ClassificationConfig):
    """Classify sentences by how positive they are."""

    kind: Literal["sentiment"] = "sentiment"
    words_per_label = 19  # the mean sentence of section 5.2
    classes: Literal[5, 2] = Field(
        5, description="Five classes, or positive against negative, neutral sentences and phrases left out"
    )
    phrases: Literal["root", "all"] = Field(
        "root",
        description='Labels used in training: "root", those of whole sentences, or "all", also those of '
        "phrases; evaluation uses whole sentences",
    )
    classifier_layers: classification.ClassifierLayers = Field(
        2, description="Number of ReLU layers before the linear output layer"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout of the classifier (section 5.2)")
    pretrained_vectors: classification.PretrainedVectors = True
    first_epoch_scale: float = Field(
        0.35,
        ge=0,
        description="Factor of the gradients of pretrained words in the first epoch; Adam cancels a constant "
        "factor except for its epsilon and weight decay",
    )

    @property
    @override
    def label(self) -> str:
        return f"sentiment in {self.classes} classes"

    @override
    def make_head(self, vocabulary_size: int) -> ClassifierConfig:
        return ClassifierConfig(classes=self.classes, layers=self.classifier_layers, dropout=self.dropout)

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> SentenceClassifier:
        head = self.make_head(vocabulary_size)
        return SentenceClassifier(self.require_network(model), vocabulary_size, head)

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> classification.Classification:
        splits = classification.find_annotated_splits(corpus, self.kind, protocol)
        return classification.Classification(
            _Phrases(corpus, "train", self.classes, self.phrases),
            {split: _Phrases(corpus, split, self.classes, "root") for split in splits},
            self.classes,
            protocol.batch_size,
            corpus.vectors if self.pretrained_vectors else None,
            self.first_epoch_scale,
        )


class _Phrases(classification.Examples):
    """Sentences with their labelled phrases."""

    def __init__(self, corpus: Corpus, split: str, classes: int, phrases: Literal["root", "all"]) -> None:
        table = corpus.annotations["sentiment"][split]
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        sentences, roots = columns["sentence"], columns["root"]
        labels = np.array(CLASS_BY_LABEL[classes])[columns["label"]]
        kept = np.isin(sentences, sentences[roots & (labels >= 0)]) & (labels >= 0)
        if phrases == "root":
            kept &= roots
        order = np.flatnonzero(kept)[np.argsort(sentences[kept], kind="stable")]
        self._split = corpus[split]
        self._spans_3N = np.stack([columns["start"], columns["stop"], labels])[:, order].astype(np.int64)
        self._sentences, self._firsts, self._counts = np.unique(
            sentences[order], return_index=True, return_counts=True
        )
        lengths = classification.count_words(self._split, self._sentences)
        self.lengths_E2 = np.stack([lengths, np.zeros_like(lengths)], axis=1)
        self.label_count = len(order)

    @override
    def batch(self, indices: Positions) -> classification.LabelledBatch:
        words_BT, _ = classification.pad_words(self._split, self._sentences[indices])
        counts = self._counts[indices]
        rows = np.repeat(np.arange(len(indices)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        spans = self._spans_3N[:, np.repeat(self._firsts[indices], counts) + within]
        starts_N, stops_N, labels_N = (torch.from_numpy(column) for column in spans.copy())
        return classification.LabelledBatch(
            (words_BT, torch.from_numpy(rows), starts_N, stops_N), labels_N, len(indices)
        )
