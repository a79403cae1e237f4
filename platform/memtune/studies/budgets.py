"""What a study has spent: by state and family of its trials, as progress while it runs, and what ends it."""

import math
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memtune.data_frames import make_frame, render_table
from memtune.number_format import format_amount, format_count
from memtune.objective import Objective, PredictionUnit
from memtune.search import Proposals, StoredTrial
from memtune.studies.definition.study_terms import Budget, Prices, name_alternative
from memtune.studies.director import DirectedTrial
from memtune.training import TrialConfig
from memtune.trial_state import StopReason, TrialState
from memtune.usage import Usage, UsageTotal, add_usages
from memtune.values import Value

STORE_INTERVAL_SECONDS = 5.0
"""Seconds between two writes of the time; a killed driver loses the time since the last one."""
REPEAT_SHARE = 1 / 2
"""The share of an amount that is kept for repeats at most, however many there may be."""
MARGIN = 1.05
"""Of the expected cost of complete trials and repeats: trainings end with a whole batch, some are slower."""


@dataclass(frozen=True)
class Reserve:
    """What a search keeps a part of its budget for: complete trials of its alternatives, and repeats."""

    trial_tokens: int
    """The length of a complete trial, and of a repeat."""
    repeats: int
    cores: int
    """Of a trial."""
    compared: str
    """The field whose values are the alternatives."""


class BudgetMonitor:
    """Finds what ends the search of a study, and the first budget that is spent; once spent, it stays so.

    The time is that of this driver, started with the time that earlier drivers have spent. The others follow
    from what trials have reported, so a budget is exceeded by what each running worker trains up to its next
    report or checkpoint at most.
    """

    def __init__(
        self,
        budget: Budget,
        prices: Prices | None,
        objective: Objective,
        proposals: Proposals,
        reserve: Reserve | None = None,
    ) -> None:
        self._budget, self._objective, self._proposals = budget, objective, proposals
        self._earlier_seconds, self._start = proposals.read_seconds_spent(), time.monotonic()
        self._last_stored = self._start
        self._prices = prices or Prices()
        self._usage = UsageTotal()
        is_limited = any(limit is not None for _, limit, _, _ in self._list_amounts())
        self._reserve = reserve if is_limited else None
        self._lacking: dict[int, tuple[str, int, bool]] = {}
        """By the number of a trial: its alternative, the tokens it lacks to be complete, whether it runs."""
        self._counted: dict[int, int] = {}
        """By the number of a trial whose model counts: its tokens, which cost next to nothing."""
        self._repeated: dict[str, int] = {}
        """By the identity of a repeat that has ended, its tokens."""
        self._is_searching = True
        self._unimproved: str | None = None
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
            if are_repeats:
                self._add_repeat(outcome.identity, outcome.usage, outcome.state)
            else:
                self._add_progress(outcome.number, min(outcome.curve.values(), default=None), outcome.state)
                self._add_length(outcome.number, outcome, max(outcome.curve, default=0), outcome.state)
        self._check_reports()

    def watch(self, trial: DirectedTrial) -> None:
        """Count a trial's news, as a director's watcher."""
        self._add_progress(trial.proposal.number, trial.best_cost, trial.state)
        self._add_length(trial.proposal.number, trial, trial.tokens, trial.state)
        self._count_usage(trial)

    def watch_repeat(self, trial: DirectedTrial) -> None:
        """Count what a repeat has used, as a director's watcher."""
        self._add_repeat(trial.proposal.identity, trial.usage, trial.state)
        self._count_usage(trial)

    def _count_usage(self, trial: DirectedTrial) -> None:
        if trial.usage.nodes:  # a trial that has just resumed has not reported its usage yet
            self._usage.count(trial.proposal.identity, trial.usage, has_ended=trial.state.has_ended)
        self._check_reports()

    def find_seconds_left(self) -> float | None:
        """Seconds until the first amount is spent, at the pace so far; None without an amount."""
        lefts = (
            (limit - spent) * self.spent_seconds / spent
            for _, limit, spent, _ in self._list_amounts()
            if limit is not None and spent
        )
        return min(lefts, default=None)

    def is_spent(self) -> bool:
        """Whether a budget is spent; cheap enough for every training step."""
        return self.find_spent() is not None

    def find_spent(self) -> str | None:
        """The budget that ends the study and what was spent of it, in a sentence; None while none does."""
        if self._spent is None:
            self._spent = self._check_amount("time", self._budget.time, self.spent_seconds, "s")
        return self._spent

    def has_room(self) -> bool:
        """Whether a new trial may start."""
        return self.find_search_end() is None

    def find_search_end(self) -> str | None:
        """The budget because of which no new trial starts, in a sentence; None while one may start.

        The rest of an amount is kept that complete trials and the repeats will use. Once trials have not
        improved, none starts any more.
        """
        trained = self.usage.tokens - sum(self._counted.values())
        for name, limit, spent, unit in self._list_amounts():
            if limit is not None and trained:
                kept = self._compute_kept(name, limit, spent, trained)
                if spent >= limit - kept:
                    room = f"{format_amount(max(0.0, limit - kept), 3)} of {format_amount(limit, 3)} {unit}"
                    rest = "the rest is for complete trials and repeats"
                    return f"budget.{name} has room for new trials up to {room}; {rest}"
        self._unimproved = self._unimproved or self._check_improvement()
        return self._unimproved

    def _compute_kept(self, name: str, limit: float, spent: float, trained: int) -> float:
        """What of an amount is kept, at the cost of a `trained` token so far; for repeats at most a share.

        Of the time at least what a single worker takes for the longest trial, and for one repeat.
        """
        if self._reserve is None:
            return 0.0
        cost, worker = spent / trained, 0.0
        if name == "time":
            worker = self.usage.cpu_seconds / self._reserve.cores / trained
        finishing, longest = self._count_finishing_tokens()
        repeats = self._reserve.repeats * self._reserve.trial_tokens
        one = min(repeats, self._reserve.trial_tokens)
        # Those that have ended may be of trials that are no longer the best, so that all are repeated again.
        most = max(0.0, REPEAT_SHARE * limit - cost * sum(self._repeated.values()))
        kept = MARGIN * max(cost * finishing, worker * longest)
        return kept + min(MARGIN * max(cost * repeats, worker * one), most)

    def end_search(self) -> None:
        """The repeats begin, which a target does not end."""
        self._is_searching, self._spent = False, None
        self._check_reports()

    def _count_finishing_tokens(self) -> tuple[int, int]:
        """The tokens of the trials that continue without a new one, and those of the longest.

        Trials that run continue, and of the paused ones the best two and the best of each alternative.
        """
        running, paused, lacking = list[int](), list[int](), dict[str, int]()
        for alternative, tokens, is_running in self._lacking.values():
            if tokens:
                (running if is_running else paused).append(tokens)
            lacking[alternative] = min(0 if is_running else tokens, lacking.get(alternative, tokens))
        total = sum(running) + 2 * max(paused, default=0) + sum(lacking.values())
        return total, max([*running, *paused], default=0)

    def _add_length(
        self, number: int, trial: StoredTrial | DirectedTrial, tokens: int, state: TrialState
    ) -> None:
        if self._reserve is None:
            return
        if state in (TrialState.STOPPED, TrialState.FAILED):
            self._lacking.pop(number, None)
            return
        if not trial.config.model.is_trained_by_gradient:
            self._counted[number] = trial.usage.tokens
            return
        lacking = 0 if state is TrialState.COMPLETE else max(0, self._reserve.trial_tokens - tokens)
        alternative = name_alternative(trial.config, self._reserve.compared)
        self._lacking[number] = alternative, lacking, state.is_open

    def _add_repeat(self, identity: str, usage: Usage, state: TrialState) -> None:
        if state.has_ended:
            self._repeated[identity] = usage.tokens

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
        amounts = [amount for amount in self._list_amounts() if amount[0] != "time"]
        self._spent = self._spent or next(filter(None, (self._check_amount(*each) for each in amounts)), None)
        if self._is_searching:
            self._spent = self._spent or self._check_target()

    def _list_amounts(self) -> Iterator[tuple[str, float | None, float, str]]:
        """The name of each amount, its limit, what is spent of it, and its unit."""
        budget, used = self._budget, self.usage
        yield "tokens", budget.tokens, used.tokens, "tokens"
        yield "cpu_hours", budget.cpu_hours, used.cpu_seconds / 3600, "core hours"
        yield "gpu_hours", budget.gpu_hours, used.gpu_seconds / 3600, "GPU hours"
        yield "money", budget.money, self._prices.compute_usage_money(used), self._prices.currency
        yield "time", budget.time, self.spent_seconds, "s"

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


class CostRow(Value):
    """What a group of trials has spent."""

    group: str
    trials: int
    tokens: int
    cpu_hours: float
    gpu_hours: float
    money: float | None
    """In the currency of the study's prices; None without prices."""

    @classmethod
    def from_usage(cls, group: str, trials: int, used: Usage, prices: Prices | None) -> "CostRow":
        """The row of a group of trials that have used this together."""
        return cls(
            group=group,
            trials=trials,
            tokens=used.tokens,
            cpu_hours=used.cpu_seconds / 3600,
            gpu_hours=used.gpu_seconds / 3600,
            money=None if prices is None else prices.compute_usage_money(used),
        )

    def list_figures(self) -> dict[str, float]:
        """What was spent by name, for a tracking store: hours are of cores and of GPUs."""
        amounts = {name: getattr(self, name) for name in ("tokens", "cpu_hours", "gpu_hours", "money")}
        return {f"spent_{name}": float(amount) for name, amount in amounts.items() if amount is not None}


class StudyCost(Value):
    """What a study has spent and saved, repeats included."""

    study: str
    unit: PredictionUnit = "tokens"
    """What is counted as tokens."""
    total: CostRow
    by_state: tuple[CostRow, ...]
    """The trials of the search by state, then the repeats."""
    by_family: tuple[CostRow, ...]
    seconds: float
    """Wall-clock seconds of all drivers."""
    full_tokens: int
    """Tokens that all trials of the search together would have trained on at full length."""
    saved_tokens: int
    """Tokens that trials ended by early stopping have not trained on."""
    currency: str | None

    @property
    def saved_share(self) -> float:
        """The saved tokens as a share of the tokens of all trials at full length."""
        return self.saved_tokens / self.full_tokens if self.full_tokens else 0.0

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each state, each family, and all trials together."""
        groups = {"state": self.by_state, "family": self.by_family, "total": (self.total,)}
        return make_frame({"by": by, **row.model_dump()} for by, rows in groups.items() for row in rows)

    def __repr__(self) -> str:
        total = self.total
        hours = f"{total.cpu_hours:.3g} CPU hours, {total.gpu_hours:.3g} GPU hours"
        counts = f"{format_count(total.trials, 'trial')}, {total.tokens:,} {self.unit}"
        return f"StudyCost({self.study}: {counts}, {hours})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        money = f"; money in {self.currency}" if self.currency else ""
        saved = f"early stopping saved {self.saved_share:.1%} of the {self.unit} at full length"
        title = f"study {self.study}: {self.seconds:,.0f} s of drivers; {saved}{money}"
        return render_table(title, self.to_frame())

    def list_figures(self) -> dict[str, float]:
        """The totals by name, for a tracking store."""
        own = {"spent_seconds": self.seconds, "saved_tokens": float(self.saved_tokens)}
        return self.total.list_figures() | own


def compute_study_cost(
    study: str,
    by_state: Mapping[str, Sequence[StoredTrial]],
    seconds: float,
    prices: Prices | None,
    count_full_tokens: Callable[[StoredTrial], int],
) -> StudyCost:
    """The cost of a study's trials; `count_full_tokens` returns the tokens of a trial at full length.

    The trials under "repeats" are not of the search: early stopping saves nothing of them.
    """
    outcomes = [outcome for members in by_state.values() for outcome in members]
    searched = [outcome for state, members in by_state.items() if state != "repeats" for outcome in members]

    def make_row(group: str, members: Sequence[StoredTrial]) -> CostRow:
        return CostRow.from_usage(
            group, len(members), add_usages(outcome.usage for outcome in members), prices
        )

    families = sorted({outcome.family for outcome in outcomes})
    stopped = [o for o in outcomes if o.end is not None and o.end.reason is StopReason.EARLY_STOPPING]
    return StudyCost(
        study=study,
        unit=outcomes[0].config.task.prediction_unit if outcomes else "tokens",
        total=make_row("all", outcomes),
        by_state=tuple(make_row(state, members) for state, members in by_state.items() if members),
        by_family=tuple(make_row(name, [o for o in outcomes if o.family == name]) for name in families),
        seconds=seconds,
        full_tokens=sum(map(count_full_tokens, searched)),
        saved_tokens=sum(max(0, count_full_tokens(o) - max(o.curve, default=0)) for o in stopped),
        currency=None if prices is None else prices.currency,
    )


COUNTED_STATES = [state for state in TrialState if state is TrialState.RUNNING or state.has_ended_or_paused]


class StudyProgress:
    """The figures of a study over all trials that it has started, repeats included."""

    def __init__(self, objective: Objective, prices: Prices | None) -> None:
        self._objective, self._prices = objective, prices
        self._usage = UsageTotal()
        self._states: dict[str, TrialState] = {}
        """By identity."""
        self._trials_by_state: Counter[TrialState] = Counter()
        self._best: list[tuple[float, str]] = []
        """The lowest cost of each of the two best configurations, with its identity, ascending."""

    def add_outcomes(self, outcomes: Iterable[StoredTrial]) -> None:
        """Add trials of the study database, which earlier drivers have run."""
        for outcome in outcomes:
            cost = min(outcome.curve.values(), default=None)
            self._add(outcome.identity, outcome.state, outcome.usage, cost, outcome.config)

    def add_trial(self, trial: DirectedTrial, state: TrialState) -> None:
        """Add or update a trial of this driver."""
        self._add(trial.proposal.identity, state, trial.usage, trial.best_cost, trial.config)

    def is_improved_by(self, trial: DirectedTrial) -> bool:
        """Whether a trial has a lower cost than every trial added so far."""
        cost = trial.best_cost
        return cost is not None and (not self._best or cost < self._best[0][0])

    @property
    def tokens(self) -> int:
        """Predicted tokens that the trials have trained on."""
        return self._usage.sum.tokens

    def list_figures(self) -> dict[str, float]:
        """The figures by name, for a tracking store: hours are of cores and of GPUs."""
        figures = {f"trials_{state.value}": float(self._trials_by_state[state]) for state in COUNTED_STATES}
        figures |= CostRow.from_usage("all", len(self._states), self._usage.sum, self._prices).list_figures()
        costs = [cost for cost, _ in self._best]
        if costs:
            figures["best_validation"] = self._objective.compute_figure(costs[0])
        if len(costs) > 1:
            figures["margin_percent"] = self._objective.compute_gain(costs[0] - costs[1])
        return figures

    def _add(
        self, identity: str, state: TrialState, usage: Usage, cost: float | None, config: TrialConfig
    ) -> None:
        """Add a trial with its lowest cost so far: of a configuration with a higher one, nothing is kept."""
        if (before := self._states.get(identity)) is not None:
            self._trials_by_state[before] -= 1
        self._trials_by_state[state] += 1
        self._states[identity] = state
        self._usage.count(identity, usage, has_ended=state.has_ended)
        is_among_best = len(self._best) < 2 or (cost is not None and cost < self._best[1][0])
        if cost is None or math.isnan(cost) or not is_among_best:
            return
        best = {name: known for known, name in self._best}
        name = config.configuration_identity
        best[name] = min(cost, best.get(name, cost))
        self._best = sorted((known, name) for name, known in best.items())[:2]
