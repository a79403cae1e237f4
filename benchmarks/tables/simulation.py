"""Studies in simulated time: workers, an event queue, and reports from a landscape instead of training."""

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.tables.landscape import SimulatedCurve
from memtune.objective import Objective
from memtune.spaces import Scalar
from memtune.studies.director import DirectedTrial, Director
from memtune.studies.executor import ExecutorRun
from memtune.studies.trial_worker import WorkerReport
from memtune.training import Report
from memtune.trial_state import StopReason, TrialEnd

__all__ = [
    "DirectorSearch",
    "Observation",
    "Search",
    "SimulatedExecutor",
    "SimulatedTrial",
    "Simulation",
]


@dataclass(frozen=True)
class SimulatedTrial:
    """A trial that a search starts or continues: it has `reports_done` reports already."""

    number: int
    parameters: Mapping[str, Scalar]
    reports_done: int = 0


class Search(Protocol):
    """What a simulation drives: memtune's director or another library's searcher and scheduler."""

    def start_trial(self) -> SimulatedTrial | None:
        """The trial of a free worker, or None when there is none now."""

    def report(self, number: int, costs: tuple[float, ...]) -> bool:
        """Take the costs of a trial so far, the last of which is new; return whether the trial continues."""

    def end(self, number: int) -> None:
        """The trial's worker is free: the trial was stopped or paused, or has spent its budget."""


@dataclass(frozen=True)
class Observation:
    """A report as it arrives: simulated seconds, tokens that all workers have trained on by then."""

    seconds: float
    tokens: int
    number: int
    report: int
    """Counts from 1."""
    cost: float
    mean_cost: float
    """The cost without the noise of its seed."""


@dataclass
class Simulation:
    """Workers that run the trials of one search until its budget of tokens is spent."""

    draw_curve: Callable[[Mapping[str, Scalar]], SimulatedCurve]
    report_tokens: tuple[int, ...]
    """Tokens of a trial at each report."""
    workers: int
    max_tokens: int
    observations: list[Observation] = field(default_factory=list)

    def run(self, search: Search) -> list[Observation]:
        """Run the search; return its reports in the order of their arrival."""
        order = itertools.count()
        events: list[tuple[float, int, int, int]] = []
        curves: dict[int, SimulatedCurve] = {}
        idle, now, spent = self.workers, 0.0, 0
        while spent < self.max_tokens:
            while idle and (trial := search.start_trial()) is not None:
                if trial.number not in curves:
                    curves[trial.number] = self.draw_curve(trial.parameters)
                self._push(events, now, next(order), trial.number, trial.reports_done, curves)
                idle -= 1
            if not events:
                break
            now, _, number, report = heapq.heappop(events)
            spent += self._count_tokens(report)
            curve = curves[number]
            costs = curve.costs[:report]
            self.observations.append(
                Observation(now, spent, number, report, costs[-1], curve.mean_costs[report - 1])
            )
            continues = search.report(number, costs)
            if continues and report < len(self.report_tokens):
                self._push(events, now, next(order), number, report, curves)
            else:
                search.end(number)
                idle += 1
        return self.observations

    def _push(
        self,
        events: list[tuple[float, int, int, int]],
        now: float,
        order: int,
        number: int,
        reports_done: int,
        curves: Mapping[int, SimulatedCurve],
    ) -> None:
        seconds = (0.0, *curves[number].seconds)
        duration = seconds[reports_done + 1] - seconds[reports_done]
        heapq.heappush(events, (now + duration, order, number, reports_done + 1))

    def _count_tokens(self, report: int) -> int:
        """Tokens between the report before and this one."""
        return self.report_tokens[report - 1] - (self.report_tokens[report - 2] if report > 1 else 0)


class DirectorSearch:
    """memtune's director as a simulation sees it."""

    def __init__(self, director: Director, report_tokens: tuple[int, ...]) -> None:
        self._director, self._report_tokens = director, report_tokens

    def start_trial(self) -> SimulatedTrial | None:
        """The director's next trial, which starts at once."""
        trial: DirectedTrial | None = self._director.take_next_trial()
        if trial is None:
            return None
        self._director.on_started(trial.proposal.number)
        return SimulatedTrial(trial.proposal.number, trial.proposal.parameters, len(trial.reports))

    def report(self, number: int, costs: tuple[float, ...]) -> bool:
        """Pass the curve on as a worker does, whole each time."""
        reports = tuple(self._make_report(place, cost) for place, cost in enumerate(costs))
        return self._director.on_worker_report(number, WorkerReport(reports=reports))

    def end(self, number: int) -> None:
        """Tell the director that the worker is done with the trial."""
        self._director.on_ended(number)

    def _make_report(self, place: int, cost: float) -> Report:
        is_last = place == len(self._report_tokens) - 1
        return make_report(self._report_tokens[place], cost, is_last)


def make_report(tokens: int, cost: float, is_last: bool) -> Report:
    """A report with the figures that a search reads."""
    report: Any = Report  # the pydantic plugin requires all fields, also of an unvalidated value
    return report.model_construct(
        tokens=tokens,
        valid_loss=cost,
        valid_accuracy=None,
        objective=Objective.PERPLEXITY,
        end=TrialEnd(reason=StopReason.BUDGET) if is_last else None,
    )


class SimulatedExecutor:
    """Runs the trials of a director in simulated time."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        """Nothing to connect to."""

    def find_gpu_bytes(self) -> int | None:
        """No GPU."""
        return None

    def run_trials(self, run: ExecutorRun) -> None:
        """Run trials until the director has no more or the simulation's budget of tokens is spent."""
        self.simulation.run(DirectorSearch(run.director, self.simulation.report_tokens))

    def close(self) -> None:
        """Nothing to release."""
