"""Evaluation of a trained model, given in memory or in a folder."""

from pathlib import Path

import torch

from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.errors import CheckpointError
from memtune.models.architecture import Model
from memtune.tasks import ContinuousCache, LanguageModellingConfig, Metrics, TaskConfig, evaluate_with_cache
from memtune.training.weight_files import load_model


def evaluate(
    model: Model | Path,
    corpus: Corpus,
    protocol: Protocol,
    split: str,
    device: str | torch.device = "cpu",
    cache: ContinuousCache | None = None,
    task: TaskConfig | None = None,
) -> Metrics:
    """The metrics of a model, given in memory or in a folder, on a split read through a protocol.

    Every prediction of the task (default: language modelling) counts once. The result does not depend on the
    protocol's batch size. With a cache the split is read in the order of its text, and questions are answered
    without the cache. Raises CheckpointError when the folder holds no model or the vocabularies differ in
    size, and ConfigurationError for a cache on a model without hidden states.
    """
    loaded = load_model(model) if isinstance(model, Path) else model
    if loaded.vocabulary_size != len(corpus.vocabulary):
        raise CheckpointError(
            f"the model has a vocabulary of {loaded.vocabulary_size} words, "
            f'corpus "{corpus.name}" of {len(corpus.vocabulary)}; use the corpus it was trained on'
        )
    opened = (task or LanguageModellingConfig()).open(corpus, protocol)
    if cache is None:
        return opened.evaluate(loaded.to(device), split, device)
    language_model = loaded.require_language_model("a cache")
    metrics = evaluate_with_cache(language_model.to(device), corpus, protocol, split, cache, device)
    return opened.add_accuracy(metrics, loaded, split, device)
