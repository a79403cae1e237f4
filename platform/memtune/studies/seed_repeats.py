"""Repeats of the best configurations under other seeds: their space, and their names."""

from collections.abc import Iterable

from memtune.search import Outcome
from memtune.spaces import Branch, Categorical, Group, Space, override_space
from memtune.training import TrialConfig
from memtune.trial_state import TrialState

__all__ = ["TrialNames", "make_repeat_space", "select_best_outcomes"]


def select_best_outcomes(outcomes: Iterable[Outcome], count: int) -> list[Outcome]:
    """The `count` complete outcomes of lowest value, best first."""
    complete = [
        outcome for outcome in outcomes if outcome.state is TrialState.COMPLETE and outcome.value is not None
    ]
    return sorted(complete, key=lambda outcome: (outcome.value, outcome.number))[:count]


def make_repeat_space(outcomes: Iterable[Outcome], seeds: Iterable[int]) -> Space:
    """The space of every outcome's configuration under every seed."""
    options = {}
    for outcome in outcomes:
        constants = override_space(Space("repeats", Group({})), outcome.configuration).root
        assert isinstance(constants, Group)
        options[f"trial {outcome.number}"] = Group({**constants.members, "seed": Categorical(tuple(seeds))})
    return Space("repeats", Branch("repeat of", options, is_key_written=False))


class TrialNames:
    """Names of a study's trials: "#3" for a trial by its number, "#3 seed 1" for its repeat under seed 1."""

    def __init__(self, repeated: Iterable[Outcome] = ()) -> None:
        """`repeated` are the trials whose repeats are named; all others are named by their number."""
        self._originals = {
            TrialConfig.model_validate(outcome.configuration).configuration_identity: outcome.number
            for outcome in repeated
        }

    def name(self, number: int, config: TrialConfig) -> str:
        """The name of a trial with this number among the trials, or among the repeats."""
        original = self._originals.get(config.configuration_identity)
        return f"#{number}" if original is None else f"#{original} seed {config.seed}"
