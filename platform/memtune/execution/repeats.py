"""The best configurations once more under other seeds: a finite space of its own."""

from collections.abc import Iterable

from memtune.search import Outcome
from memtune.spaces import Branch, Categorical, Group, Space, fix

__all__ = ["best_outcomes", "repeated"]


def best_outcomes(outcomes: Iterable[Outcome], count: int) -> list[Outcome]:
    """The `count` complete outcomes of lowest value, best first."""
    complete = [outcome for outcome in outcomes if outcome.state == "complete" and outcome.value is not None]
    return sorted(complete, key=lambda outcome: (outcome.value, outcome.number))[:count]


def repeated(outcomes: Iterable[Outcome], seeds: Iterable[int]) -> Space:
    """Every outcome's configuration under every seed."""
    options = {}
    for outcome in outcomes:
        constants = fix(Space("repeats", Group({})), outcome.configuration).root
        assert isinstance(constants, Group)
        options[f"trial {outcome.number}"] = Group({**constants.members, "seed": Categorical(tuple(seeds))})
    return Space("repeats", Branch("repeat of", options, written=False))
