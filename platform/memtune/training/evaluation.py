"""Evaluation of a model that is already trained: from memory, or from a folder alone."""

from pathlib import Path

import torch

from memtune.corpora.protocols import Protocol
from memtune.corpora.store import Corpus
from memtune.errors import CheckpointError
from memtune.models.interface import LanguageModel
from memtune.tasks import LanguageModelling, Metrics
from memtune.training.weights import load_model

__all__ = ["evaluate"]


def evaluate(
    model: LanguageModel | Path,
    corpus: Corpus,
    protocol: Protocol,
    split: str,
    device: str | torch.device = "cpu",
) -> Metrics:
    """The metrics of a model, or of one saved in a folder, on a split read through a protocol.

    Every predicted token counts once, and the result does not depend on the protocol's batch size. Raises a
    CheckpointError when the folder holds no model or the vocabularies differ in size.
    """
    loaded = load_model(model) if isinstance(model, Path) else model
    if loaded.vocabulary_size != len(corpus.vocabulary):
        raise CheckpointError(
            f"the model predicts {loaded.vocabulary_size} words, "
            f'corpus "{corpus.name}" has {len(corpus.vocabulary)}; take the corpus it was trained on'
        )
    return LanguageModelling(corpus, protocol).evaluate(loaded.to(device), split, device)
