"""The budgets of a study: the time and all else that its drivers have spent, and which one ends the study."""

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from memtune.number_format import format_amount, format_count
from memtune.objective import Objective
from memtune.search import Proposals, StoredTrial
from memtune.studies.definition.study_terms import Budget, Prices
from memtune.studies.director import DirectedTrial
from memtune.trial_state import TrialState
from memtune.usage import Usage, UsageTotal

STORE_INTERVAL_SECONDS = 5.0
"""Seconds between two writes of the time; a killed driver loses the time since the last one."""


class BudgetMonitor:
    """Finds the first budget of a study that is spent; once found, it stays.

    The time is that of this driver, started with the time that earlier drivers have spent. The others follow
    from what trials have reported, so a budget is exceeded by what each running worker trains up to its next
    report or checkpoint at most.
    """

    def __init__(
        self, budget: Budget, prices: Prices | None, objective: Objective, proposals: Proposals
    ) -> None:
        self._budget, self._objective, self._proposals = budget, objective, proposals
        self._earlier_seconds, self._start = proposals.read_seconds_spent(), time.monotonic()
        self._last_stored = self._start
        self._prices = prices or Prices()
        self._usage = UsageTotal()
        self._best: tuple[float, int] | None = None
        """The lowest cost, and the first trial that has it."""
        self._ended: list[int] = []
        """The numbers of ended and paused trials, ascending."""
        self._spent: str | None = None

    @property
    def usage(self) -> Usage:
        """What all trials of the study have used."""
        return self._usage.sum

    @property
    def spent_seconds(self) -> float:
        """Seconds that all drivers have spent."""
        return self._earlier_seconds + time.monotonic() - self._start

    def tick(self, trial: DirectedTrial | None = None) -> None:
        """Store the time. With a trial, as a director's watcher, store it every 5 s at most."""
        if trial is None or time.monotonic() - self._last_stored >= STORE_INTERVAL_SECONDS:
            self._last_stored = time.monotonic()
            self._proposals.store_seconds_spent(self.spent_seconds)

    def add_outcomes(self, outcomes: Sequence[StoredTrial], *, are_repeats: bool = False) -> None:
        """Add the trials of earlier drivers. Repeats count for what they use, and not for the best value."""
        for outcome in outcomes:
            self._usage.count(outcome.identity, outcome.usage, has_ended=outcome.state.has_ended)
            if not are_repeats:
                self._add_progress(outcome.number, min(outcome.curve.values(), default=None), outcome.state)
        self._check_reports()

    def watch(self, trial: DirectedTrial) -> None:
        """Count a trial's news, as a director's watcher."""
        self._add_progress(trial.proposal.number, trial.best_cost, trial.state)
        self.watch_repeat(trial)

    def watch_repeat(self, trial: DirectedTrial) -> None:
        """Count what a repeat has used, as a director's watcher."""
        if trial.usage.nodes:  # a trial that has just resumed has not reported its usage yet
            self._usage.count(trial.proposal.identity, trial.usage, has_ended=trial.state.has_ended)
        self._check_reports()

    def is_spent(self) -> bool:
        """Whether a budget is spent; cheap enough for every training step."""
        return self.find_spent() is not None

    def find_spent(self) -> str | None:
        """The budget that ends the study and what was spent of it, in a sentence; None while none does."""
        if self._spent is None:
            self._spent = self._check_amount("time", self._budget.time, self.spent_seconds, "s")
        return self._spent

    def _add_progress(self, number: int, cost: float | None, state: TrialState) -> None:
        if cost is not None and not math.isnan(cost):
            self._best = (cost, number) if self._best is None else min(self._best, (cost, number))
        place = bisect_left(self._ended, number)
        is_known = self._ended[place : place + 1] == [number]
        if state.has_ended_or_paused and not is_known:
            self._ended.insert(place, number)
        elif is_known and not state.has_ended_or_paused:  # a paused trial was resumed
            del self._ended[place]

    def _check_reports(self) -> None:
        """Check the budgets that only change with a report."""
        budget, used, check = self._budget, self.usage, self._check_amount
        money = self._prices.compute_usage_money(used)
        self._spent = (
            self._spent
            or check("tokens", budget.tokens, used.tokens, "tokens")
            or check("cpu_hours", budget.cpu_hours, used.cpu_seconds / 3600, "core hours")
            or check("gpu_hours", budget.gpu_hours, used.gpu_seconds / 3600, "GPU hours")
            or check("money", budget.money, money, self._prices.currency)
            or self._check_target()
            or self._check_improvement()
        )

    def _check_amount(self, name: str, limit: float | None, spent: float, unit: str) -> str | None:
        if limit is None or spent < limit:
            return None
        return f"budget.{name} is reached: {format_amount(spent, 3)} of {format_amount(limit, 3)} {unit}"

    def _check_target(self) -> str | None:
        target = self._budget.target
        if target is None or self._best is None:
            return None
        best, _ = self._best
        if best > self._objective.compute_target_cost(target):
            return None
        figure = self._objective.format_cost(best, 4)
        return f"budget.target is reached: the best {self._objective} is {figure}, the target {target:g}"

    def _check_improvement(self) -> str | None:
        """Count the trials numbered after the best one that have ended.

        The count depends on the trials alone and not on the order in which they ended, so a resumed study has
        the same one.
        """
        limit = self._budget.no_improvement
        if limit is None or self._best is None:
            return None
        _, best = self._best
        since = len(self._ended) - bisect_right(self._ended, best)
        if since < limit:
            return None
        ended = f"{format_count(since, 'trial')} ended after trial {best} without a better one"
        return f"budget.no_improvement is reached: {ended}"
