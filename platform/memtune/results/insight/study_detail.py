"""One study in detail: its best trial per family, what was stopped when and why, and its progress."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from memtune.data_frames import make_frame, render_table
from memtune.errors import StudyError
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.insight.study_catalogue import (
    BestTrial,
    StudySummary,
    find_study,
    get_objective,
    list_best_trials,
    number_trials,
    open_study_corpus,
    rank_study,
    summarise_study,
)
from memtune.results.insight.study_front import StudyFront, find_study_front
from memtune.results.insight.study_trials import StudyTrial, list_study_trials
from memtune.results.ranking.selection import Ranking, is_rankable
from memtune.search import DEFAULT_OBJECTIVES, Outcome, ParameterImportance, StudyReader
from memtune.settings import Settings
from memtune.studies.definition.study_terms import read_stored_terms
from memtune.trial_state import StopReason, TrialState
from memtune.values import Value

__all__ = ["EndedTrial", "ProgressPoint", "ReportedTrial", "StudyDetail", "explain_end", "show_study"]


DIGITS = 3


class ReportedTrial(Value):
    """A trial at one of its reports."""

    number: int
    family: str
    state: TrialState
    tokens: int
    """Seen at the report; 0 before the first."""
    cost: float | None
    """Lower is better; None before the first report."""
    figure: str | None
    """The same in the unit that users read."""
    reason: str
    """Why the trial was stopped, paused or failed; empty otherwise."""


class EndedTrial(ReportedTrial):
    """A trial that was stopped, paused or failed, or that diverged.

    It is described at its last report; its cost is the lowest up to there.
    """

    last_cost: float | None
    """At the last report, which early stopping compares; it may be above the lowest."""
    last_figure: str | None
    leader_cost: float | None
    """The lowest of a trial of full length up to the same tokens; None without one."""
    leader_figure: str | None


class ProgressPoint(Value):
    """A new lowest validation of the search."""

    tokens: int
    """Of all trials up to this report, by number."""
    core_hours: float
    """Reserved by these trials up to this report; a trial's hours are spread evenly over its tokens."""
    number: int
    """The trial that improved on what was before."""
    name: str
    cost: float
    """Of a single seed at any number of tokens, so the ranking's figures may be higher."""
    figure: str


class StudyDetail(Value):
    """A study in detail: what `memtune study show` prints, draws and writes as JSON."""

    summary: StudySummary
    families: tuple[BestTrial, ...]
    """The best configuration of each family, best first; those without full length last."""
    progress: tuple[ProgressPoint, ...]
    importance: tuple[ParameterImportance, ...]
    """The most important parameter first; empty below ten trials with a value, see `rank_parameters`."""
    front: StudyFront | None
    """None before the first trial of full length."""
    ended_early: tuple[EndedTrial, ...]
    """The trials that were stopped, paused or failed, by number."""
    trials: tuple[StudyTrial, ...]
    """Every trial by number, and then the repeats."""

    @property
    def best(self) -> BestTrial | None:
        """The best configuration; None before the first validation."""
        return self.summary.best

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each trial; sizes and differing fields are columns."""
        return make_frame(
            {
                **trial.model_dump(exclude={"curve", "sizes", "fields"}),
                **({} if trial.sizes is None else trial.sizes.model_dump()),
                **trial.fields,
            }
            for trial in self.trials
        )

    def curves(self) -> Any:
        """A pandas data frame with a row for each report: trial, tokens, and its validation."""
        objective = self.summary.objective
        return make_frame(
            (
                {
                    "name": trial.name,
                    "number": trial.number,
                    "family": trial.family,
                    "seed": trial.seed,
                    "state": trial.state.value,
                    "tokens": tokens,
                    "cost": cost,
                    objective: objective.compute_figure(cost),
                }
                for trial in self.trials
                for tokens, cost in trial.curve.items()
            ),
            columns=["name", "number", "family", "seed", "state", "tokens", "cost", objective],
        )

    def __repr__(self) -> str:
        """The study's id, the number of its trials and the best one."""
        return (
            f"StudyDetail({self.summary.id}: {format_count(len(self.trials), 'trial')}, {self._name_best()})"
        )

    __str__ = __repr__

    def _name_best(self) -> str:
        if self.best is None:
            return "no validation yet"
        objective = self.summary.objective
        return f"best {self.best.name}, validation {objective} {self.best.estimate.format(objective, 3)}"

    def _repr_html_(self) -> str:
        summary, objective = self.summary, self.summary.objective
        families = make_frame(
            {
                "best of each family": best.name,
                "tokens": best.tokens,
                f"validation {objective} [95 % interval]": best.estimate.format(objective, 3),
                "seeds": best.estimate.seeds,
                "note": best.note,
            }
            for best in self.families
        )
        ranked = sorted(self.trials, key=lambda trial: (trial.place or math.inf, trial.number))
        trials = make_frame(
            {
                "place": "" if trial.place is None else trial.place,
                "trial": trial.name,
                "state": trial.state.value,
                "tokens": trial.tokens,
                objective: trial.figure,
                "parameters": None if trial.sizes is None else f"{trial.sizes.parameters:,}",
                **{name.removeprefix("model."): value for name, value in trial.fields.items()},
            }
            for trial in ranked
        )
        return render_table(f"study {summary.id}: {summary.question}", families) + render_table(
            f"{format_count(len(trials), 'trial')}; {self._name_best()}", trials
        )


def show_study(study: str, settings: Settings | None = None) -> StudyDetail:
    """A study, by id or name, in detail. Raises StudyError for an unknown study.

    >>> detail = show_study("ptb_memories")
    >>> detail.best.name, detail.best.estimate.describe(Objective.PERPLEXITY, 1)
    >>> detail.to_frame().groupby("family").figure.min()
    """
    settings = Settings.resolve(settings)
    stored = find_study(study, settings)
    objective, ranking = get_objective(stored), rank_study(stored, settings)
    terms = read_stored_terms(settings.studies_folder, stored.id)
    trials = list_study_trials(
        stored, ranking, number_trials(stored), objective, open_study_corpus(terms.corpus, settings)
    )
    objectives = terms.objectives if len(terms.objectives) > 1 else DEFAULT_OBJECTIVES
    return StudyDetail(
        summary=summarise_study(stored, settings),
        families=tuple(list_best_trials(ranking, stored, objective)) if ranking else (),
        progress=tuple(_trace_progress(trials, objective)),
        importance=tuple(StudyReader(settings.study_database).rank_parameters(stored.id)),
        front=find_study_front(ranking, trials, objectives, objective) if ranking else None,
        ended_early=tuple(_list_ended_early(stored.outcomes, ranking, objective)),
        trials=trials,
    )


def explain_end(
    study: str, number: int, settings: Settings | None = None
) -> tuple[ReportedTrial, list[ReportedTrial]]:
    """Why a trial ended, and the values of the study's trials at the tokens of its last report, best first.

    The trial itself is one of them. A trial that started later may have reached these tokens after the
    decision. Raises StudyError for an unknown study or trial, and for a trial that has not ended early.
    """
    settings = Settings.resolve(settings)
    stored = find_study(study, settings)
    found = [outcome for outcome in stored.outcomes if outcome.number == number]
    if not found or not found[0].state.has_ended_early:
        state = found[0].state.value if found else "not a trial of the study"
        raise StudyError(
            f"trial {number} of {stored.id} is {state}; --why explains stopped, paused and failed ones"
        )
    objective = get_objective(stored)

    def describe(outcome: Outcome, tokens: int) -> ReportedTrial:
        return _describe_report(outcome, tokens, outcome.curve.get(tokens), objective)

    end = describe(found[0], max(found[0].curve, default=0))
    compared = [
        describe(outcome, tokens)
        for outcome in stored.outcomes
        if end.tokens and (tokens := min((t for t in outcome.curve if t >= end.tokens), default=None))
    ]
    return end, sorted(
        compared, key=lambda trial: (math.inf if trial.cost is None else trial.cost, trial.number)
    )


def _list_ended_early(
    outcomes: Sequence[Outcome], ranking: Ranking | None, objective: Objective
) -> Iterator[EndedTrial]:
    shorts = {short.trial.identity: short for short in ranking.short} if ranking else {}
    for outcome in outcomes:
        tokens = max(outcome.curve, default=0)
        last, cost = outcome.curve.get(tokens), min(outcome.curve.values(), default=None)
        has_diverged = outcome.end is not None and outcome.end.reason is StopReason.DIVERGED
        if not (outcome.state.has_ended_early or has_diverged):
            continue
        best = cost if cost is not None and is_rankable(cost) else None
        end = _describe_report(outcome, tokens, best, objective)
        short = shorts.get(outcome.identity)
        leader_cost = None if short is None else short.leader_cost
        leader_figure = None if leader_cost is None else objective.format_cost(leader_cost, DIGITS)
        yield EndedTrial(
            **dict(end),
            leader_cost=leader_cost,
            leader_figure=leader_figure,
            last_cost=last,
            last_figure=None if last is None else objective.format_cost(last, DIGITS),
        )


def _describe_report(
    outcome: Outcome, tokens: int, cost: float | None, objective: Objective
) -> ReportedTrial:
    """The trial at its report at `tokens`; 0 tokens are before the first one."""
    return ReportedTrial(
        number=outcome.number,
        family=outcome.family,
        state=outcome.state,
        tokens=tokens,
        cost=cost,
        figure=None if cost is None else objective.format_cost(cost, DIGITS),
        reason="" if outcome.end is None else str(outcome.end),
    )


def _trace_progress(trials: Sequence[StudyTrial], objective: Objective) -> Iterator[ProgressPoint]:
    """The reports of the search that are better than all before, in the order of trial numbers."""
    tokens_before, hours_before, best = 0, 0.0, math.inf
    for trial in trials:
        if trial.is_repeat:
            continue
        for tokens, cost in trial.curve.items():
            if is_rankable(cost) and cost < best:
                best = cost
                yield ProgressPoint(
                    tokens=tokens_before + tokens,
                    core_hours=hours_before + trial.cpu_hours * tokens / trial.tokens,
                    number=trial.number,
                    name=trial.name,
                    cost=cost,
                    figure=objective.format_cost(cost, DIGITS),
                )
        tokens_before += trial.tokens
        hours_before += trial.cpu_hours
