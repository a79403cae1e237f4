"""What a model is asked: a task owns its data, its loss and its metrics."""

from memtune.tasks.language_modelling import LanguageModelling, Metrics, perplexity

__all__ = ["LanguageModelling", "Metrics", "perplexity"]
