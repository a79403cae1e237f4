"""What each alternative of a study has had: configurations, tokens, hours, and what fewer would have found.

Dodge et al. (2019), "Show Your Work: Improved Reporting of Experimental Results", section 3.2: the expected
best of n of the configurations that were tried, here drawn without replacement.
"""

from collections.abc import Sequence

import numpy as np

from memtune.objective import Objective
from memtune.results.ranking.selection import is_rankable
from memtune.results.study.study_trials import StudyTrial
from memtune.values import Value


class AlternativeEffort(Value):
    """The trials and repeats of one alternative."""

    name: str
    family: str
    configurations: int
    """Different ones that the search started."""
    tokens: int
    """Of all its trainings, repeats included."""
    cpu_hours: float
    gpu_hours: float
    best_of: tuple[float, ...]
    """The expected best figure of 1, 2, ... of the configurations, each by its lowest validation."""


def measure_efforts(trials: Sequence[StudyTrial], objective: Objective) -> tuple[AlternativeEffort, ...]:
    """A row for each alternative, in the order of their first trials."""
    return tuple(
        _measure([trial for trial in trials if trial.alternative == name], objective)
        for name in dict.fromkeys(trial.alternative for trial in trials)
    )


def _measure(trials: Sequence[StudyTrial], objective: Objective) -> AlternativeEffort:
    searched = {trial.configuration: trial for trial in trials if not trial.is_repeat}
    costs = [trial.cost for trial in searched.values() if trial.cost is not None and is_rankable(trial.cost)]
    return AlternativeEffort(
        name=trials[0].alternative,
        family=trials[0].family,
        configurations=len(searched),
        tokens=sum(trial.tokens for trial in trials),
        cpu_hours=sum(trial.cpu_hours for trial in trials),
        gpu_hours=sum(trial.gpu_hours for trial in trials),
        best_of=tuple(objective.compute_figure(cost) for cost in expect_best(costs)),
    )


def expect_best(costs: Sequence[float]) -> list[float]:
    """The expected lowest of 1, 2, ... of these costs, drawn without replacement.

    >>> expect_best([3.0, 1.0])
    [2.0, 1.0]
    """
    ordered, total = np.sort(np.asarray(costs, dtype=np.float64)), len(costs)
    after = total - np.arange(1.0, total)  # the costs after each place but the last

    def expect(drawn: int) -> float:
        # The probability that the cost at a place is the lowest of those drawn is drawn / total at the first
        # place, and (after - drawn + 1) / after of the place before at each further one. Both are in floats:
        # binomials of a long study are too large.
        ratios = np.maximum(after - drawn + 1, 0.0) / after
        return float(ordered @ np.cumprod(np.concatenate(([drawn / total], ratios))))

    return [expect(drawn) for drawn in range(1, total + 1)]
