"""What a model is asked: a task owns its data, its loss and its metrics."""

from memtune.tasks.continuous_cache import CacheGrid, ContinuousCache, evaluate_with_cache, tune_cache
from memtune.tasks.language_modelling import LanguageModelling, Metrics, perplexity

__all__ = [
    "CacheGrid",
    "ContinuousCache",
    "LanguageModelling",
    "Metrics",
    "evaluate_with_cache",
    "perplexity",
    "tune_cache",
]
