"""The sizes of a trial, by formula: nothing is built."""

from memtune.corpora import Corpus
from memtune.training.memory_footprint import estimate_memory, find_longest_row
from memtune.training.trial_config import TrialConfig
from memtune.values import Value


class TrialSizes(Value):
    """What a model takes, whatever it has learnt."""

    parameters: int
    multiply_adds: int
    """Of the forward pass per predicted token, the output layer included."""
    state: int
    """Numbers carried from one word to the next."""
    memory: int | None
    """Estimated bytes that training holds during a step; None for a model that counts."""


def compute_sizes(config: TrialConfig, corpus: Corpus) -> TrialSizes:
    """The sizes of a trial on a corpus."""
    vocabulary_size, memory = len(corpus.vocabulary), None
    if config.model.is_trained_by_gradient:
        longest = find_longest_row(config.protocol, corpus["train"])
        memory = estimate_memory(config, vocabulary_size, longest).total
    return TrialSizes(
        parameters=config.parameter_count(vocabulary_size),
        multiply_adds=config.multiply_adds(vocabulary_size),
        state=config.model.state_size(),
        memory=memory,
    )
