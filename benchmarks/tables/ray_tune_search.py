"""Ray Tune's OptunaSearch with ASHA, as its guides connect them, in a simulation.

The searcher and the scheduler are Ray's own objects, called as `TuneController` calls them: a result goes to
the scheduler first and then, unless the trial stops, to the searcher. A trial that the scheduler stops is
complete for the searcher, with its last value.
"""

from types import SimpleNamespace
from typing import Any

import optuna
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.tables.simulation import SimulatedTrial
from memtune.spaces import Space

__all__ = ["RayTuneSearch"]

METRIC, REPORTS = "cost", "training_iteration"


class RayTuneSearch:
    """One study of OptunaSearch on a define-by-run space, with ASHA; `factor` is 4 by Ray's default."""

    def __init__(self, space: Space, reports: int, seed: int, factor: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)

        def define_by_run(trial: Any) -> None:
            space.sample(trial)

        self._searcher = OptunaSearch(define_by_run, metric=METRIC, mode="min", seed=seed)
        self._scheduler = AsyncHyperBandScheduler(
            time_attr=REPORTS,
            metric=METRIC,
            mode="min",
            max_t=reports,
            grace_period=1,
            reduction_factor=factor,
        )
        # ASHA does not use the controller of trials, which its methods take first.
        self._controller: Any = None
        self._trials: list[Any] = []
        self._last_results: dict[int, dict[str, float]] = {}

    def start_trial(self) -> SimulatedTrial:
        """The searcher's next suggestion."""
        number = len(self._trials)
        parameters = self._searcher.suggest(str(number))
        assert parameters is not None
        self._trials.append(SimpleNamespace(trial_id=str(number)))
        self._scheduler.on_trial_add(self._controller, self._trials[number])
        return SimulatedTrial(number, parameters)

    def report(self, number: int, costs: tuple[float, ...]) -> bool:
        """Pass the last cost on as a result."""
        result = {METRIC: costs[-1], REPORTS: len(costs)}
        self._last_results[number] = result
        decision = self._scheduler.on_trial_result(self._controller, self._trials[number], result)
        if decision == TrialScheduler.STOP:
            return False
        self._searcher.on_trial_result(str(number), result)
        return True

    def end(self, number: int) -> None:
        """Complete the trial, as Tune does for trials that stop and for those that finish."""
        result = self._last_results[number]
        self._scheduler.on_trial_complete(self._controller, self._trials[number], result)
        self._searcher.on_trial_complete(str(number), result)
