"""The sizes of a trial's model, by formula: nothing is built."""

from memtune.training.trial_config import TrialConfig
from memtune.values import Value

__all__ = ["TrialSizes", "compute_sizes"]


class TrialSizes(Value):
    """What a model takes, whatever it has learnt."""

    parameters: int
    multiply_adds: int
    """Of the forward pass per predicted token, the output layer included."""
    state: int
    """Numbers carried from one word to the next."""


def compute_sizes(config: TrialConfig, vocabulary_size: int) -> TrialSizes:
    """The sizes of a trial's model over a vocabulary of this size."""
    return TrialSizes(
        parameters=config.parameter_count(vocabulary_size),
        multiply_adds=config.multiply_adds(vocabulary_size),
        state=config.model.state_size(),
    )
