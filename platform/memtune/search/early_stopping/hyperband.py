"""Hyperband: several successive halvings with different first rungs side by side.

Li et al. (2018), "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", algorithm 1, with
asynchronous successive halving in each bracket (Li et al., 2020, section 3.3). Bracket s has its first rung
after grace * factor^s tokens; in the last bracket no trial is stopped. A value at the first rung may say
little about the value at full length, and it is unknown in advance how little.

A trial's bracket follows from its number: the brackets take turns in proportion to the sizes n of the paper,
which give each bracket about the same number of tokens.
"""

import math
from collections.abc import Iterable
from typing import ClassVar, Literal, Self

from pydantic import Field

from memtune.search.early_stopping.rule import Decision, Rule
from memtune.search.early_stopping.rungs import RungConfig
from memtune.search.early_stopping.successive_halving import SuccessiveHalving, SuccessiveHalvingConfig
from memtune.search.trial_store import StoredTrial


class HyperbandConfig(RungConfig):
    """Brackets of successive halving with first rungs after grace, grace * factor, ... tokens."""

    title: ClassVar[str] = "Hyperband"
    kind: Literal["hyperband"] = "hyperband"
    grace: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "predicted tokens, or examples"})
    """Predicted tokens of the first rung; default: those of the first report."""

    def fill_defaults(self, first_report: int, trial_tokens: int) -> Self:
        """Brackets whose first rungs are before the first report would be the same."""
        return self.model_copy(update={"grace": max(self.first_rung, first_report)})

    def make_rule(self, trial_tokens: int) -> "Hyperband":
        """The rule with its brackets below `trial_tokens`."""
        return Hyperband(self, trial_tokens)


class Hyperband(Rule):
    """The brackets of one study."""

    def __init__(self, config: HyperbandConfig, trial_tokens: int) -> None:
        self._brackets: list[SuccessiveHalving] = []
        settings = config.model_dump(exclude={"kind", "grace"})
        grace = config.first_rung
        while not self._brackets or len(self._brackets[-1].rungs):
            bracket = SuccessiveHalvingConfig(**settings, grace=grace)
            self._brackets.append(SuccessiveHalving(bracket, trial_tokens))
            grace *= config.factor
        self._order = make_bracket_order(len(self._brackets), config.factor)

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """As the successive halving of the trial's bracket."""
        return self._find_bracket(number).decide(number, alternative, tokens, value)

    def replay(self, outcomes: Iterable[StoredTrial]) -> None:
        """Replay each trial in its bracket."""
        for outcome in outcomes:
            self._find_bracket(outcome.number).replay([outcome])

    def _find_bracket(self, number: int) -> SuccessiveHalving:
        return self._brackets[self._order[number % len(self._order)]]


def make_bracket_order(brackets: int, factor: int) -> list[int]:
    """The brackets of successive trials; bracket 0, with the lowest first rung, has the most.

    Bracket s has n = ceil(brackets / (b + 1) * factor^b) trials, where b = brackets - 1 - s, spread evenly.
    """
    turns = []
    for bracket in range(brackets):
        rungs = brackets - 1 - bracket
        size = math.ceil(brackets / (rungs + 1) * factor**rungs)
        turns += [((turn + 0.5) / size, bracket) for turn in range(size)]
    return [bracket for _, bracket in sorted(turns)]
