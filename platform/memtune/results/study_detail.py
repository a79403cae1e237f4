"""One study in detail: its best trial per family, what was stopped when and why, and its progress."""

from memtune.errors import StudyError
from memtune.objective import Objective, format_figure
from memtune.results.study_catalogue import (
    BestTrial,
    StudySummary,
    find_best_trial,
    find_study,
    get_objective,
    summarise_study,
)
from memtune.search import Outcome, StoredStudy
from memtune.settings import Settings
from memtune.trial_state import TrialState
from memtune.values import Value

__all__ = ["ComparedTrial", "EndedTrial", "ProgressPoint", "StudyDetail", "explain_end", "show_study"]

ENDED_EARLY = (TrialState.STOPPED, TrialState.PAUSED, TrialState.FAILED)


class EndedTrial(Value):
    """A trial that was stopped, paused or failed, and why."""

    number: int
    family: str
    state: TrialState
    tokens: int
    """At its last report."""
    figure: str | None
    """Its last validation in the unit that users read."""
    reason: str


class ProgressPoint(Value):
    """The best validation of the study after a number of tokens."""

    tokens: int
    """Of all trials up to this one, by number."""
    number: int
    """The trial that improved on the ones before it."""
    figure: str


class ComparedTrial(Value):
    """A trial's value at the tokens where another one ended."""

    number: int
    family: str
    tokens: int
    """At its first report at or past the tokens of the comparison."""
    cost: float
    """Lower is better."""
    figure: str
    state: TrialState


class StudyDetail(Value):
    """A study in detail."""

    summary: StudySummary
    families: tuple[BestTrial, ...]
    """The best trial of each family, best first."""
    ended_early: tuple[EndedTrial, ...]
    progress: tuple[ProgressPoint, ...]


def show_study(study: str, settings: Settings | None = None) -> StudyDetail:
    """A study, by id or name, in detail. Raises StudyError for an unknown study."""
    settings = settings or Settings.from_environment()
    stored = find_study(study, settings)
    objective = get_objective(stored)
    families = sorted({outcome.family for outcome in stored.outcomes})
    best = [
        find_best_trial([o for o in stored.outcomes if o.family == family], objective) for family in families
    ]
    return StudyDetail(
        summary=summarise_study(stored, settings),
        families=tuple(sorted((b for b in best if b is not None), key=lambda b: (b.cost, b.number))),
        ended_early=tuple(
            _describe_end(outcome, objective) for outcome in stored.outcomes if outcome.state in ENDED_EARLY
        ),
        progress=tuple(_trace_progress(stored, objective)),
    )


def explain_end(
    study: str, number: int, settings: Settings | None = None
) -> tuple[EndedTrial, list[ComparedTrial]]:
    """Why a trial ended, and the values of the study's trials at the tokens of its last report, best first.

    The trial itself is one of them. A trial that started later may have reached these tokens after the
    decision. Raises StudyError for an unknown study or trial, and for a trial that has not ended early.
    """
    settings = settings or Settings.from_environment()
    stored = find_study(study, settings)
    found = [outcome for outcome in stored.outcomes if outcome.number == number]
    if not found or found[0].state not in ENDED_EARLY:
        state = found[0].state.value if found else "not a trial of the study"
        raise StudyError(
            f"trial {number} of {stored.id} is {state}; --why explains stopped, paused and failed ones"
        )
    objective = get_objective(stored)
    end = _describe_end(found[0], objective)
    compared = [
        ComparedTrial(
            number=outcome.number,
            family=outcome.family,
            tokens=tokens,
            cost=outcome.curve[tokens],
            figure=format_figure(objective, outcome.curve[tokens], 3),
            state=outcome.state,
        )
        for outcome in stored.outcomes
        if end.tokens and (tokens := min((t for t in outcome.curve if t >= end.tokens), default=None))
    ]
    return end, sorted(compared, key=lambda trial: (trial.cost, trial.number))


def _describe_end(outcome: Outcome, objective: Objective) -> EndedTrial:
    tokens = max(outcome.curve, default=0)
    return EndedTrial(
        number=outcome.number,
        family=outcome.family,
        state=outcome.state,
        tokens=tokens,
        figure=format_figure(objective, outcome.curve[tokens], 3) if outcome.curve else None,
        reason="" if outcome.end is None else str(outcome.end),
    )


def _trace_progress(stored: StoredStudy, objective: Objective) -> list[ProgressPoint]:
    points, tokens, best = list[ProgressPoint](), 0, float("inf")
    for outcome in stored.outcomes:
        tokens += max(outcome.curve, default=0)
        cost = min(outcome.curve.values(), default=float("inf"))
        if cost < best:
            best = cost
            figure = format_figure(objective, cost, 3)
            points.append(ProgressPoint(tokens=tokens, number=outcome.number, figure=figure))
    return points
