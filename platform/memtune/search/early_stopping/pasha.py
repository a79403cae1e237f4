"""PASHA: pause and promotion up to a highest rung, which rises only while the ranking is not stable.

Bohdal et al. (2023), "PASHA: Efficient HPO and NAS with Progressive Resource Allocation". Trials are promoted
up to the second rung at first. The highest rung rises by one as long as the trials there rank differently
than at the rung below. Two trials whose values differ by less than epsilon count as equal; epsilon is the
90th percentile of the differences between trials whose curves cross at least twice (section 4).

Here the highest rung follows from the present values alone, so that a resumed study has the same one: it is
the lowest with a stable ranking, and none below a rung that a trial has reached. Once no new trial starts and
none runs, the best trial continues to the end of its budget; the paper retrains it.
"""

import math
from collections.abc import Collection, Iterable
from itertools import combinations, pairwise
from typing import Literal

from memtune.search.early_stopping.paused_trials import PausedTrials
from memtune.search.early_stopping.rule import Decision, Rule
from memtune.search.early_stopping.rungs import RungConfig
from memtune.search.outcomes import Outcome

__all__ = ["Pasha", "PashaConfig", "estimate_epsilon", "is_ranking_stable"]

NOISE_QUANTILE = 0.9
MIN_CROSSINGS = 2

Curve = dict[int, float]


class PashaConfig(RungConfig):
    """Pause and promotion up to the first rung at which the ranking of trials is stable."""

    kind: Literal["pasha"] = "pasha"

    def make_rule(self, trial_tokens: int) -> "Pasha":
        """The rule with its rungs below `trial_tokens`."""
        return Pasha(self, trial_tokens)

    def describe(self) -> str:
        """The rule in a few words."""
        return self.describe_start("PASHA")


class Pasha(Rule):
    """The rungs of one study, the trials that wait at them, and the curves that estimate the noise."""

    can_pause = True

    def __init__(self, config: PashaConfig, trial_tokens: int) -> None:
        self._paused = PausedTrials(config, trial_tokens)
        self._curves: dict[int, Curve] = {}

    def decide(self, number: int, family: str, tokens: int, value: float) -> Decision:
        """Pause the trial at a rung unless it is the one that would be promoted next."""
        self._curves.setdefault(number, {}).setdefault(tokens, value)
        has_paused = self._paused.pause_at_rung(number, family, tokens, value)
        if has_paused and self.choose_resumed([number], False) == number:
            self._paused.resume(number)
        return self._paused.decide(number, "PASHA")

    def choose_resumed(self, running: Collection[int], is_sampling_over: bool) -> int | None:
        """The best paused trial of the highest rung that may promote one; at last the best one to the end."""
        promotable = self._paused.find_promotable(least=0, end=self._find_highest_rung())
        if promotable is None and is_sampling_over and not running:
            return self._paused.find_promotable(least=1, end=len(self._paused.rungs))
        return promotable

    def resume(self, number: int) -> None:
        """The trial is promoted."""
        self._paused.resume(number)

    def end(self, number: int) -> None:
        """The trial is not promoted any more."""
        self._paused.resume(number)

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """Restore curves, rungs and pauses."""
        for outcome in outcomes:
            self._curves[outcome.number] = dict(outcome.curve)
            self._paused.replay(outcome)

    def _find_highest_rung(self) -> int:
        """The index of the rung up to which trials are promoted; the number of rungs is the full length."""
        rungs = self._paused.rungs
        for index in range(1, len(rungs)):
            is_top = index + 1 == len(rungs) or not rungs[index + 1].values
            if is_top and is_ranking_stable(rungs[index - 1].values, rungs[index].values, self._curves):
                return index
        return len(rungs)


def is_ranking_stable(earlier: Curve, later: Curve, curves: dict[int, Curve]) -> bool:
    """Whether the trials of the later rung rank at the earlier one as they do there, up to epsilon.

    `earlier` and `later` are values by trial number. Fewer than two trials are stable.
    """
    by_later = sorted(later, key=lambda number: (later[number], number))
    by_earlier = sorted(later, key=lambda number: (earlier[number], number))
    epsilon = estimate_epsilon([curves[number] for number in by_later])
    return all(
        earlier[number] == earlier[expected] or abs(earlier[number] - earlier[expected]) <= epsilon
        for number, expected in zip(by_later, by_earlier, strict=True)
    )


def estimate_epsilon(curves: Collection[Curve]) -> float:
    """The noise of values: the 90th percentile of the last differences of curves that cross twice; or 0."""
    differences = []
    for first, second in combinations(curves, 2):
        gaps = [first[tokens] - second[tokens] for tokens in sorted(first.keys() & second.keys())]
        gaps = [gap for gap in gaps if gap and math.isfinite(gap)]
        if sum((left < 0) != (right < 0) for left, right in pairwise(gaps)) >= MIN_CROSSINGS:
            differences.append(abs(gaps[-1]))
    if not differences:
        return 0.0
    return sorted(differences)[math.ceil(NOISE_QUANTILE * len(differences)) - 1]
