"""Evaluation of a model that is already trained: from memory, or from a folder alone."""

from pathlib import Path

import torch

from memtune.corpora.protocols import Protocol
from memtune.corpora.store import Corpus
from memtune.errors import CheckpointError, ConfigurationError
from memtune.models.interface import LanguageModel, Model
from memtune.tasks import (
    ContinuousCache,
    LanguageModellingConfig,
    Metrics,
    QuestionTask,
    TaskConfig,
    evaluate_with_cache,
)
from memtune.training.weights import load_model

__all__ = ["evaluate"]


def evaluate(
    model: Model | Path,
    corpus: Corpus,
    protocol: Protocol,
    split: str,
    device: str | torch.device = "cpu",
    cache: ContinuousCache | None = None,
    task: TaskConfig | None = None,
) -> Metrics:
    """The metrics of a model, or of one saved in a folder, on a split read through a protocol.

    Every prediction of the task, by default language modelling, counts once, and the result does not depend
    on the protocol's batch size. With a cache the split is read in the order of its text; questions are
    answered without. Raises a
    CheckpointError when the folder holds no model or the vocabularies differ in size, a ConfigurationError
    for a cache on a model without hidden states.
    """
    loaded = load_model(model) if isinstance(model, Path) else model
    if loaded.vocabulary_size != len(corpus.vocabulary):
        raise CheckpointError(
            f"the model knows {loaded.vocabulary_size} words, "
            f'corpus "{corpus.name}" has {len(corpus.vocabulary)}; take the corpus it was trained on'
        )
    opened = (task or LanguageModellingConfig()).open(corpus, protocol)
    if cache is None:
        return opened.evaluate(loaded.to(device), split, device)
    if not isinstance(loaded, LanguageModel):
        raise ConfigurationError("a cache remembers words to predict, and this model predicts none")
    metrics = evaluate_with_cache(loaded.to(device), corpus, protocol, split, cache, device)
    return opened.judged(metrics, loaded, split, device) if isinstance(opened, QuestionTask) else metrics
