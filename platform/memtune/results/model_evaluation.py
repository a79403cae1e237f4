"""Evaluation of registered models and of trials."""

from dataclasses import dataclass
from typing import Literal

from memtune.corpora import Corpus
from memtune.corpora.batching.protocols import Protocol
from memtune.errors import ConfigurationError
from memtune.models.architecture import LanguageModel, Model
from memtune.results.model_sources import open_model
from memtune.settings import Settings
from memtune.tasks import CacheGrid, ContinuousCache, Metrics, tune_cache
from memtune.tracking import record_evaluation
from memtune.training import evaluate

__all__ = ["EvaluationResult", "evaluate_model"]


@dataclass(frozen=True)
class EvaluationResult:
    """A model's metrics on one split."""

    model: str
    """The version's URI, or the trial as the user named it."""
    label: str
    """Protocol and task; figures compare only under one label."""
    split: str
    metrics: Metrics
    ideal_perplexity: float | None
    """The perplexity that no model of this split can beat, where it is known."""
    cache: ContinuousCache | None = None
    """The cache that the model was evaluated with."""
    unit: Literal["tokens", "examples"] = "tokens"
    """What is predicted; a classifier predicts examples, which have no perplexity."""


def evaluate_model(
    name: str,
    split: str = "valid",
    *,
    device: str = "cpu",
    cache: ContinuousCache | CacheGrid | None = None,
    settings: Settings | None = None,
) -> EvaluationResult:
    """Evaluate a registered version or a trial on a split, under the protocol it was trained with.

    `name` is as in `open_model`: `models:/ptb@champion`, `models:/ptb/3`, `STUDY#7` or a run's id. A network
    may be given a cache, or a grid of which the best cache on the validation split is taken. Each access to
    the test split is recorded, with its figures; those under a cache apart from those without. Raises the
    errors of `open_model`, and ConfigurationError for a cache on a model without hidden states.
    """
    settings = settings or Settings.from_environment()
    opened = open_model(name, settings, device)
    corpus, config = opened.corpus, opened.config
    chosen = _choose_cache(cache, opened.model, corpus, config.protocol, device)
    opened.record_access(split)
    metrics = evaluate(opened.model, corpus, config.protocol, split, device, chosen, config.task)
    if split == "test":
        figures_name = f"{split}_{chosen.label}" if chosen else split
        figures = metrics.model_dump(exclude_none=True)
        record_evaluation(settings.tracking_uri, opened.run_id, figures_name, figures, opened.version)
    ideal = corpus.manifest.ideal.get(split) if corpus.manifest.ideal else None
    unit = config.task.prediction_unit
    return EvaluationResult(opened.name, config.label, split, metrics, ideal, chosen, unit)


def _choose_cache(
    cache: ContinuousCache | CacheGrid | None, model: Model, corpus: Corpus, protocol: Protocol, device: str
) -> ContinuousCache | None:
    """The given cache, or the best of a grid on the validation split."""
    if not isinstance(cache, CacheGrid):
        return cache
    if not isinstance(model, LanguageModel):
        raise ConfigurationError("a cache remembers words to predict, and this model predicts none")
    return tune_cache(model, corpus, protocol, cache, device)
