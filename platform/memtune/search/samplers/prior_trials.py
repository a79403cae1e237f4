"""The prior of a study, as trials from which a sampler learns until it has its own.

The points of a prior stand for good trials and random points for bad ones, fewer of both the more trials have
ended.
"""

import math
from collections.abc import Container, Mapping, Sequence
from itertools import islice
from random import Random
from statistics import fmean

from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from memtune.search.samplers.joint_space import JointSpace
from memtune.search.trial_store import has_failed
from memtune.spaces import Scalar

MAX_PRIOR_POINTS = 20
MAX_TRIED_POINTS = 3
"""The points of a prior that are tried themselves."""
LAST_ASK = 40
"""Asks after which a prior has no weight any more."""
LED_EVERY = 2
"""Of so many asks the first one follows the prior."""
MIN_LED, MIN_FREE, MIN_SHARE = 3, 2, 0.6
"""A prior is given up where so many trials that it led, and so many others, have ended, and it was better in
less than this share of their pairs; without any effect it is better in half of them. Chosen on the recorded
tables of benchmarks/tables."""
GOOD_SHARE = 0.1
"""The share of trials that Optuna's TPE takes as good."""

Asked = Mapping[int, FrozenTrial]
"""The trials that a sampler learns from, by the number of their ask, in the order of these numbers."""


class PriorTrials:
    """The prior of one study.

    It leads every second ask. The others are those of a study without a prior, but for what they learn from
    the led trials, so that they show whether the prior is wrong, and cover the space if it is.
    """

    def __init__(
        self,
        points: Sequence[Mapping[str, Scalar]],
        space: JointSpace,
        first_ask: int = 0,
        alternatives: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        """`points` are parameters by name that are believed to be good, the best first.

        The first of the asks that the prior leads take points themselves. `first_ask` is the number of asks
        before it, without given ones. `alternatives` are the parameters that choose each alternative of the
        study.
        """
        self._points, self._space, self._first_ask = points[:MAX_PRIOR_POINTS], space, first_ask
        self.believed = {name for point in self._points for name in point}
        """The parameters of which any point has a value."""
        chosen = {name: None for choice in alternatives for name in choice}
        self.chooses_alternative = not self.believed.isdisjoint(chosen)
        self._compared = [] if self.chooses_alternative else [*chosen]
        """The parameters that trials have in common where the prior is judged by them."""

    def list_led(self, asks: int, asked: Asked, given: Container[int] = ()) -> list[int]:
        """Which of the first `asks` asks the prior leads; the last one may have no trial yet.

        It leads none of the `given` asks, whose configurations a program has chosen, and none after that at
        which the trials before contradicted it.
        """
        own = (ask for ask in range(asks) if ask not in given)  # read no further than the last turn
        turns = [*islice(own, self._first_ask, self._first_ask + LAST_ASK)]
        led = turns[::LED_EVERY] if self._points else []
        for place in range(len(led)):
            if self._is_contradicted(turns[: LED_EVERY * place], asked):
                return led[:place]
        return led

    def find_point(self, led: Sequence[int], refused: Container[int]) -> Mapping[str, Scalar] | None:
        """The point for the last of the `led` asks: the next one, until three of them were not `refused`."""
        place = len(led) - 1
        tried = sum(ask not in refused for ask in led[:-1])
        return self._points[place] if tried < MAX_TRIED_POINTS and place < len(self._points) else None

    def make_trials(self, led: Sequence[int]) -> list[FrozenTrial]:
        """The trials that stand for the prior at the last of the `led` asks."""
        count = math.ceil(len(self._points) * (1 - LED_EVERY * (len(led) - 1) / LAST_ASK))
        generator, bad = Random(led[-1]), math.ceil(count * (1 / GOOD_SHARE - 1))
        drawn = [self._space.draw_point(generator) for _ in range(count + bad)]
        good = [self._fill_point(*pair) for pair in zip(self._points[:count], drawn, strict=False)]
        return [self._make_trial(point, -math.inf) for point in good] + [
            self._make_trial(point, math.inf) for point in drawn[count:]
        ]

    def _is_contradicted(self, turns: Sequence[int], asked: Asked) -> bool:
        """Whether the trials that the prior led are worse than the others, by the last report of both.

        It led every second of the asks `turns`. A prior that says nothing of the alternatives is judged
        within each. A trial that failed, by divergence for instance, is worse than every other.
        """
        curves: dict[bool, list[FrozenTrial]] = {True: [], False: []}
        failed, last = {True: 0, False: 0}, max((ask for ask in turns if ask in asked), default=-1)
        for place, ask in enumerate(turns):
            is_led = place % LED_EVERY == 0
            if ask not in asked:
                failed[is_led] += ask < last
            elif has_failed(asked[ask]):
                failed[is_led] += 1
            elif asked[ask].state is not OptunaState.RUNNING and asked[ask].intermediate_values:
                curves[is_led].append(asked[ask])
        led, free = curves[True], curves[False]
        if len(led) + failed[True] < MIN_LED or len(free) + failed[False] < MIN_FREE:
            return False
        shares = [
            _compare_curves(own.intermediate_values, other.intermediate_values)
            for own in led
            for other in free
            if all(own.params.get(name) == other.params.get(name) for name in self._compared)
        ]
        shares += [0.0] * (failed[True] * len(free)) + [1.0] * (failed[False] * len(led))
        return len(shares) >= MIN_LED * MIN_FREE and fmean(shares) < MIN_SHARE

    def _fill_point(self, point: Mapping[str, Scalar], drawn: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """A point with drawn values of the parameters that other points have and this one needs.

        It has those of all options of a branch whose choice no point has.
        """
        filled: dict[str, Scalar] = {}
        for conditions, group in self._space.groups:
            if all(filled.get(name, option) == option for name, option in conditions.items()):
                filled |= {name: point.get(name, drawn[name]) for name in group if name in self.believed}
        return filled

    def _make_trial(self, parameters: Mapping[str, Scalar], value: float) -> FrozenTrial:
        distributions = {name: self._space.distributions[name] for name in parameters}
        return create_trial(params=dict(parameters), distributions=distributions, value=value)


def _compare_curves(own: Mapping[int, float], other: Mapping[int, float]) -> float:
    """1 where the first is better at the end of the shorter one, 0 where it is worse, 1/2 otherwise.

    Reports of two trainings lie up to a batch apart.
    """
    end = min(max(own), max(other))
    first, second = (curve[min(curve, key=lambda tokens: abs(tokens - end))] for curve in (own, other))
    return (first < second) + (first == second) / 2
