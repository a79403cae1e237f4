"""Natural language inference: does a premise entail its hypothesis, contradict it, or neither.

Cheng, Dong and Lapata (2016), section 5.3, on the Stanford corpus (Bowman et al. 2015). Two sentences are
read apart by a body of any family, or by two LSTM-networks in shallow or deep fusion (section 4).
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from typing_extensions import override

from memtune.corpora.protocols import Protocol
from memtune.corpora.store import Corpus
from memtune.models.classifiers import Classifier, ClassifierConfig
from memtune.models.fused_pairs import PairReading
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

__all__ = ["InferenceConfig"]

CLASSES = 3


class InferenceConfig(TaskConfig, PairReading):
    """Tell entailment, neutrality and contradiction of two sentences apart."""

    kind: Literal["inference"] = "inference"
    objective: Literal["accuracy"] = "accuracy"
    classifier_layers: int = Field(
        2, ge=0, description="Layers of ReLU below the last, linear one: 3 d^2 of the printed sizes"
    )
    dropout: float = Field(0.2, ge=0, lt=1, description="Of the classifier; Cheng chose from 0.1 to 0.4")
    pretrained_vectors: bool = Field(
        True, description="Whether embeddings start as the corpus' pretrained vectors, where it has some"
    )
    first_epoch_scale: float = Field(
        0.0,
        ge=0,
        description="What the gradient of pretrained words is multiplied by in the first epoch: 0 leaves "
        "them as they are, but for weight decay",
    )

    @property
    @override
    def label(self) -> str:
        return "inference"

    @property
    def head(self) -> ClassifierConfig:
        """The classifier over the two means."""
        return ClassifierConfig(classes=CLASSES, layers=self.classifier_layers, dropout=self.dropout)

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> Classifier:
        return self.classifier(network(model, self.kind), vocabulary_size, self.head)

    @override
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        return self.pair_parameter_count(network(model, self.kind), vocabulary_size, self.head)

    @override
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        return self.pair_multiply_adds(network(model, self.kind), self.head)

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> Classification:
        splits = annotated_splits(corpus, self.kind, protocol)
        evaluated = {split: _Pairs(corpus, split) for split in splits}
        start = pretrained(corpus, self.first_epoch_scale) if self.pretrained_vectors else None
        return Classification(evaluated["train"], evaluated, CLASSES, protocol.batch_size, start)


class _Pairs(Examples):
    """Pairs of sentences, each with its label."""

    def __init__(self, corpus: Corpus, split: str) -> None:
        table = corpus.annotations["inference"][split]
        premises, hypotheses, labels = (
            table.column(name).to_numpy().astype(np.int64) for name in ("premise", "hypothesis", "label")
        )
        self._split = corpus[split]
        self._premises, self._hypotheses, self._labels = premises, hypotheses, labels
        lengths = [word_counts(self._split, sentences) for sentences in (premises, hypotheses)]
        self.lengths_E2 = np.sort(np.stack(lengths, axis=1), axis=1)[:, ::-1]
        self.label_count = len(labels)

    @override
    def batch(self, chosen: Positions) -> LabelledBatch:
        premises = padded_words(self._split, self._premises[chosen])
        hypotheses = padded_words(self._split, self._hypotheses[chosen])
        return LabelledBatch((*premises, *hypotheses), torch.from_numpy(self._labels[chosen]), len(chosen))
