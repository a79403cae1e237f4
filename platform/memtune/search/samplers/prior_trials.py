"""What is believed before the first trial, as trials that a sampler learns from until it has its own.

The points of a prior stand for good trials and random points for bad ones. There are fewer of both the more
trials have ended.
"""

import math
from collections.abc import Mapping, Sequence
from random import Random

from optuna.trial import FrozenTrial, TrialState, create_trial

from memtune.search.samplers.joint_space import JointSpace
from memtune.spaces import Scalar

MAX_PRIOR_POINTS = 20
LAST_TRIAL = 40
"""Ended trials after which a prior has no weight any more."""
FREE_EVERY = 3
"""Of so many asks the last one ignores the prior: without them nothing shows that it is wrong."""
MIN_LED, MIN_FREE, MIN_SHARE = 4, 2, 0.4
"""A prior is given up where so many trials that it led, and so many others, have ended, and less than this
share of their pairs began better with it; without any effect half of them do."""
GOOD_SHARE = 0.1
"""The share of trials that Optuna's TPE takes as good."""


class PriorTrials:
    """The prior of one study."""

    def __init__(self, points: Sequence[Mapping[str, Scalar]], space: JointSpace) -> None:
        """`points` are the parameters by name that are believed to be good, the best first."""
        self._points, self._space = points[:MAX_PRIOR_POINTS], space

    def make_trials(self, ask_number: int, asked: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The trials that stand for the prior at an ask, after those that were `asked` before; often none."""
        ended = sum(trial.state is not TrialState.RUNNING for trial in asked)
        count = math.ceil(len(self._points) * (1 - ended / LAST_TRIAL))
        if count <= 0 or not _is_led(ask_number) or self._is_contradicted(asked):
            return []
        generator, width = Random(ask_number), len(self._space.distributions)
        bad = math.ceil(count * (1 / GOOD_SHARE - 1))
        drawn = [self._space.read_cube([generator.random() for _ in range(width)]) for _ in range(bad)]
        good = [self._make_trial(point, -math.inf) for point in self._points[:count]]
        return good + [self._make_trial(point, math.inf) for point in drawn]

    def count_startup(self, asked: Sequence[FrozenTrial]) -> int:
        """The ended trials from which a sampler may start to learn; those of a wrong prior do not count."""
        has_misled = self._is_contradicted(asked)
        return sum(
            trial.state is not TrialState.RUNNING and not (has_misled and _is_led(ask))
            for ask, trial in enumerate(asked)
        )

    def _is_contradicted(self, asked: Sequence[FrozenTrial]) -> bool:
        """Whether the trials that the prior led began worse than the others."""
        if not self._points:
            return False
        led: list[float] = []
        free: list[float] = []
        for ask, trial in enumerate(asked[:LAST_TRIAL]):
            if trial.state is not TrialState.RUNNING and trial.intermediate_values:
                first = trial.intermediate_values[min(trial.intermediate_values)]
                (led if _is_led(ask) else free).append(first)
        better = sum((own < other) + (own == other) / 2 for own in led for other in free)
        is_known = len(led) >= MIN_LED and len(free) >= MIN_FREE
        return is_known and better / (len(led) * len(free)) < MIN_SHARE

    def _make_trial(self, parameters: Mapping[str, Scalar], value: float) -> FrozenTrial:
        known = {name: found for name, found in self._space.distributions.items() if name in parameters}
        return create_trial(
            params={name: parameters[name] for name in known}, distributions=known, value=value
        )


def _is_led(ask_number: int) -> bool:
    return ask_number % FREE_EVERY != FREE_EVERY - 1
