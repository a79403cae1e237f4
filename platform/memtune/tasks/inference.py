"""Natural language inference: a premise entails its hypothesis, contradicts it, or is neutral.

Cheng, Dong and Lapata (2016), section 5.3, on the Stanford corpus (Bowman et al. 2015). A network of any
family reads the two sentences separately, or two LSTM-networks read them in shallow or deep fusion
(section 4).
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
from memtune.models.classifiers import Classifier, ClassifierConfig
from memtune.models.fused_pairs import PairReadingConfig
from memtune.tasks import classification

CLASS_COUNT = 3


class InferenceConfig(classification.ClassificationConfig, PairReadingConfig):
    """Classify pairs of sentences as entailment, neutral or contradiction."""

    kind: Literal["inference"] = "inference"
    classifier_layers: classification.ClassifierLayers = Field(
        2, description="Number of ReLU layers before the linear output layer: 3 d^2 of the published sizes"
    )
    dropout: float = Field(
        0.2, ge=0, lt=1, description="Dropout of the classifier; Cheng et al. searched from 0.1 to 0.4"
    )
    pretrained_vectors: classification.PretrainedVectors = True
    first_epoch_scale: float = Field(
        0.0,
        ge=0,
        description="Factor of the gradients of pretrained words in the first epoch; with 0 only weight "
        "decay changes them",
    )

    @override
    def make_head(self, vocabulary_size: int) -> ClassifierConfig:
        return ClassifierConfig(classes=CLASS_COUNT, layers=self.classifier_layers, dropout=self.dropout)

    @override
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> Classifier:
        head = self.make_head(vocabulary_size)
        return self.build_classifier(self.require_network(model), vocabulary_size, head)

    @override
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        head = self.make_head(vocabulary_size)
        return self.pair_parameter_count(self.require_network(model), vocabulary_size, head)

    @override
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        return self.pair_multiply_adds(self.require_network(model), self.make_head(vocabulary_size))

    @override
    def open(self, corpus: Corpus, protocol: Protocol) -> classification.Classification:
        splits = classification.find_annotated_splits(corpus, self.kind, protocol)
        pairs = {split: _Pairs(corpus, split) for split in splits}
        vectors = corpus.vectors if self.pretrained_vectors else None
        return classification.Classification(
            pairs["train"], pairs, CLASS_COUNT, protocol.batch_size, vectors, self.first_epoch_scale
        )


class _Pairs(classification.Examples):
    """The labelled pairs of sentences of a split."""

    def __init__(self, corpus: Corpus, split: str) -> None:
        table = corpus.annotations["inference"][split]
        premises, hypotheses, labels = (
            table.column(name).to_numpy().astype(np.int64) for name in ("premise", "hypothesis", "label")
        )
        self._split = corpus[split]
        self._premises, self._hypotheses, self._labels = premises, hypotheses, labels
        lengths = [classification.count_words(self._split, sentences) for sentences in (premises, hypotheses)]
        self.lengths_E2 = np.sort(np.stack(lengths, axis=1), axis=1)[:, ::-1]
        self.label_count = len(labels)

    @override
    def batch(self, indices: Positions) -> classification.LabelledBatch:
        premises = classification.pad_words(self._split, self._premises[indices])
        hypotheses = classification.pad_words(self._split, self._hypotheses[indices])
        return classification.LabelledBatch(
            (*premises, *hypotheses), torch.from_numpy(self._labels[indices]), len(indices)
        )
