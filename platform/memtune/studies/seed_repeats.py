"""Repeats of the best configurations under other seeds, as a finite space."""

from collections.abc import Iterable

from memtune.search import Outcome
from memtune.spaces import Branch, Categorical, Group, Space, override_space
from memtune.trial_state import TrialState

__all__ = ["make_repeat_space", "select_best_outcomes"]


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
