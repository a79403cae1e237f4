"""One study in detail: its best of each alternative, what was stopped when and why, and its progress."""

import html
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memtune.data_frames import make_frame, render_table
from memtune.errors import StudyError
from memtune.number_format import format_count
from memtune.objective import PredictionUnit
from memtune.results.study.ranking import DIGITS, explain_lack, make_curve_frame
from memtune.results.study.study_catalogue import StudySummary, summarise_study
from memtune.results.study.study_front import StudyFront, find_study_front
from memtune.results.study.study_leaderboard import LeaderboardEntry, make_entry
from memtune.results.study.study_trials import NamedTrial, StudyTrial
from memtune.results.study.study_view import StudyView, open_view
from memtune.results.study.verdicts import Verdict, judge_study
from memtune.search import ParameterImportance
from memtune.settings import Settings
from memtune.studies.study_run import StudyResult
from memtune.toml_text import format_toml
from memtune.trial_state import TrialState
from memtune.values import Value


class ReportedTrial(NamedTrial):
    """A trial at one of its reports."""

    state: TrialState
    tokens: int
    """Seen at the report; 0 before the first."""
    unit: PredictionUnit
    """What `tokens` counts."""
    cost: float | None
    """Lower is better; None before the first report."""
    figure: str | None
    """The same in the unit that users read."""
    reason: str
    """Why the trial was stopped, paused or failed; empty otherwise."""


class EndedTrial(ReportedTrial):
    """A trial without full length or one that diverged, at its last report; `cost` is its lowest there."""

    last_cost: float | None
    """At the last validation, which early stopping compares; it may be above the lowest."""
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
    compare: str
    """The field whose values are the alternatives."""
    verdict: Verdict | None
    """The answer; None before the first validation."""
    alternatives: tuple[LeaderboardEntry, ...]
    """The best configuration of each alternative, best first; those without full length last."""
    progress: tuple[ProgressPoint, ...]
    importance: tuple[ParameterImportance, ...]
    """The most important parameter first; empty below ten trials with a value, see `rank_parameters`."""
    front: StudyFront | None
    """None before the first trial of full length."""
    ended_early: tuple[EndedTrial, ...]
    """The trials and repeats that ended before full length or diverged, and those that are open."""
    trials: tuple[StudyTrial, ...]
    """Every trial by number, and then the repeats."""
    led: tuple[int, ...]
    """The numbers of the trials that a prior led; empty in studies of earlier versions."""

    @property
    def best(self) -> LeaderboardEntry | None:
        """The best configuration; None before the first validation."""
        return self.summary.best

    def explain_lack(self) -> str:
        """Why there is no answer, where there is none."""
        return explain_lack(self.trials)

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each trial; sizes and differing fields are columns.

        `state` is how the trial stands, `carried_state` the numbers that its model carries from word to word.
        """
        sizes = {"state": "carried_state"}
        return make_frame(
            {
                **trial.model_dump(exclude={"curve", "sizes", "fields", "objective"}),
                "state": trial.state.label,
                **{sizes.get(name, name): size for name, size in dict(trial.sizes or ()).items()},
                **trial.fields,
            }
            for trial in self.trials
        )

    def curves(self) -> Any:
        """A pandas data frame with a row for each report: trial, tokens, and its validation."""
        return make_curve_frame(self.trials, self.summary.objective, "number")

    def __repr__(self) -> str:
        trials = format_count(len(self.trials), "trial")
        return f"StudyDetail({self.summary.id}: {trials}, {self._name_best()})"

    __str__ = __repr__

    def _name_best(self) -> str:
        if self.best is None:
            return self.explain_lack()
        objective = self.summary.objective
        estimate = self.best.estimate.format(objective, 3)
        return f"{self.summary.best_title} {self.best.name}, validation {objective} {estimate}"

    def _repr_html_(self) -> str:
        summary, objective = self.summary, self.summary.objective
        alternatives = make_frame(
            {
                "alternative": best.alternative,
                "best configuration": best.name,
                summary.unit: best.tokens,
                f"validation {objective} [95 % interval]": best.estimate.format(objective, 3),
                "seeds": best.estimate.seeds,
                "note": best.note,
            }
            for best in self.alternatives
        )
        ranked = sorted(self.trials, key=lambda trial: (trial.place or math.inf, trial.number))
        trials = make_frame(
            {
                "place": "" if trial.place is None else trial.place,
                "trial": trial.name,
                "state": trial.state.label,
                summary.unit: trial.tokens,
                objective: trial.figure,
                "parameters": None if trial.sizes is None else f"{trial.sizes.parameters:,}",
                "carried state": None if trial.sizes is None else f"{trial.sizes.state:,}",
                **{name.removeprefix("model."): value for name, value in trial.fields.items()},
            }
            for trial in ranked
        )
        answer = self.explain_lack() if self.verdict is None else self.verdict.text
        return (
            f"<p>{html.escape(answer)}</p>"
            + render_table(f"study {summary.id}: {summary.question}", alternatives)
            + render_table(format_count(len(trials), "trial"), trials)
        )


def show_study(study: str, settings: Settings | None = None) -> StudyDetail:
    """A study, by id or name, in detail. Raises StudyError for an unknown study.

    >>> detail = show_study("ptb_recurrent_memory")
    >>> detail.best.name, detail.best.estimate.describe(Objective.PERPLEXITY, 1)
    >>> detail.to_frame().groupby("alternative").cost.min()
    """
    return describe_study(open_view(study, settings))


def describe_study(view: StudyView) -> StudyDetail:
    """A study in detail."""
    return StudyDetail(
        summary=summarise_study(view),
        compare=view.terms.compare,
        verdict=judge_study(view),
        alternatives=tuple(make_entry(view, found) for found in view.find_bests()),
        progress=tuple(_trace_progress(view)),
        importance=tuple(view.stored.rank_parameters()),
        front=find_study_front(view),
        ended_early=tuple(_list_ended_early(view)),
        trials=view.trials,
        led=tuple(outcome.number for outcome in view.stored.outcomes if outcome.is_led),
    )


def explain_end(
    study: str, number: int, settings: Settings | None = None
) -> tuple[ReportedTrial, list[ReportedTrial]]:
    """Why a trial ended, and the values of the study's trials at the tokens of its last report, best first.

    The trial itself is one of them. A trial that started later may have reached these tokens after the
    decision. Raises StudyError for an unknown study or trial, and for a trial that has not ended early.
    """
    view = open_view(study, settings)
    searched = [trial for trial in view.trials if not trial.is_repeat]
    found = next((trial for trial in searched if trial.number == number), None)
    if found is None or not found.state.has_ended_early:
        refusals = {outcome.number: outcome.remark for outcome in view.stored.refused}
        state = found.state.value if found else "not a trial of the study"
        if found is None and number < max((trial.number for trial in view.trials), default=0):
            state = "not started: the study has its configuration already"
        if number in refusals:
            state = f"not started: {refusals[number]}"
        raise StudyError(
            f"trial {number} of {view.id} is {state}; --why explains stopped, paused and failed ones"
        )
    last = found.validated_tokens
    compared = [
        _describe_report(trial, tokens, trial.curve[tokens])
        for trial in searched
        if last and (tokens := min((t for t in trial.curve if t >= last), default=None))
    ]
    compared.sort(key=lambda trial: (math.inf if trial.cost is None else trial.cost, trial.number))
    return _describe_report(found, last, found.curve.get(last)), compared


def format_trial_file(study: str, number: int, settings: Settings | None = None) -> str:
    """The file with which `memtune train` trains a trial of a study again: its configuration with all fields.

    Beside the study's file, it finds the files with families and mixers that the study names.
    Raises StudyError for an unknown study or trial.
    """
    view = open_view(study, settings)
    found = next((each for each in view.stored.outcomes if each.number == number), None)
    if found is None:
        raise StudyError(
            f"trial {number} is not a trial of {view.id}; list them with: memtune compare --corpus "
            f"{view.terms.corpus} --study {view.id}"
        )
    origin = {"question": f"What does trial {number} of {view.id} reach?", "corpus": view.terms.corpus}
    models = {"models": list(view.terms.models)} if view.terms.models else {}
    return format_toml({**origin, **models, **found.config.model_dump(mode="json")})


def _list_ended_early(view: StudyView) -> Iterator[EndedTrial]:
    shorts = {short.best.identity: short for short in view.ranking.short} if view.ranking else {}
    for trial in view.trials:
        short = shorts.get(trial.identity)
        if not (short or trial.state.has_ended_early or trial.has_diverged):
            continue
        last = trial.curve.get(trial.validated_tokens)
        leader = None if short is None else short.leader_cost
        yield EndedTrial(
            **dict(_describe_report(trial, trial.tokens, trial.cost)),
            leader_cost=leader,
            leader_figure=None if leader is None else view.objective.format_cost(leader, DIGITS),
            last_cost=last,
            last_figure=None if last is None else view.objective.format_cost(last, DIGITS),
        )


def _describe_report(trial: StudyTrial, tokens: int, cost: float | None) -> ReportedTrial:
    """The trial at its report at `tokens`; 0 tokens are before the first one."""
    return ReportedTrial(
        number=trial.number,
        name=trial.name,
        family=trial.family,
        alternative=trial.alternative,
        state=trial.state,
        tokens=tokens,
        unit=trial.unit,
        cost=cost,
        figure=None if cost is None else trial.objective.format_cost(cost, DIGITS),
        reason=trial.reason,
    )


def _trace_progress(view: StudyView) -> Iterator[ProgressPoint]:
    """The reports of the search that are better than all before, in the order of trial numbers."""
    tokens_before, hours_before, best = 0, 0.0, math.inf
    for trial in view.trials:
        if trial.is_repeat:
            continue
        for tokens, cost in trial.curve.items():
            if cost < best:
                best = cost
                # Of a reused training the study has trained less than the curve has.
                share = tokens / max(trial.usage.tokens, trial.validated_tokens)
                yield ProgressPoint(
                    tokens=tokens_before + round(trial.usage.tokens * share),
                    core_hours=hours_before + trial.cpu_hours * share,
                    number=trial.number,
                    name=trial.name,
                    cost=cost,
                    figure=view.objective.format_cost(cost, DIGITS),
                )
        tokens_before += trial.usage.tokens
        hours_before += trial.cpu_hours


@dataclass(frozen=True, repr=False)
class SearchResult(StudyResult):
    """The outcome of a run, with the study in detail, the trials of earlier runs included."""

    @property
    def id(self) -> str:
        """The study's id."""
        return self.resolved.id

    @cached_property
    def view(self) -> StudyView:
        """The study, read from its storage on first use."""
        return open_view(self.id, self.resolved.settings)

    @cached_property
    def detail(self) -> StudyDetail:
        """The study in detail."""
        return describe_study(self.view)

    @property
    def best(self) -> LeaderboardEntry | None:
        """The best configuration; None before the first validation."""
        return self.detail.best

    @property
    def verdict(self) -> Verdict | None:
        """The answer; None before the first validation."""
        return self.detail.verdict

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each trial; sizes and differing fields are columns."""
        return self.detail.to_frame()

    def curves(self) -> Any:
        """A pandas data frame with a row for each report: trial, tokens, and its validation."""
        return self.detail.curves()

    def __repr__(self) -> str:
        end = f", {self._describe_interruption()}" if self.is_interrupted else ""
        return f"SearchResult({self.id}: {format_count(len(self.outcomes), 'trial')}{end})"

    def _repr_html_(self) -> str:
        end = f"<p>{html.escape(self._describe_interruption())}</p>" if self.is_interrupted else ""
        return end + self.detail._repr_html_()

    def _describe_interruption(self) -> str:
        reason = self.fault or self.executor_loss
        return f"interrupted with {self.describe_open()} open" + (f": {reason}" if reason else "")
