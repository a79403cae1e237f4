"""The studies of a home: a list with what each has found and spent, and the removal of one."""

from datetime import datetime
from typing import Any

from memtune.data_frames import ResultList, make_frame, render_table
from memtune.number_format import format_count
from memtune.objective import Objective, PredictionUnit
from memtune.results.study.ranking import DIGITS
from memtune.results.study.study_leaderboard import LeaderboardEntry, make_entry
from memtune.results.study.study_view import StudyView, list_views, open_view
from memtune.results.study.verdicts import find_leaders
from memtune.search import Lease, StudyReader
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies.budgets import StudyCost
from memtune.tracking import delete_study_runs
from memtune.values import Value


class StudySummary(Value):
    """A study in a few figures."""

    id: str
    name: str
    question: str
    corpus: str
    objective: Objective
    trials: dict[str, int]
    """By state in words, without repeats."""
    repeats: int
    best: LeaderboardEntry | None
    is_undecided: bool = False
    """Whether an open trial leads at equal tokens, so that the best one is no winner."""
    champion_rule: str
    """How the best one is chosen."""
    unit: PredictionUnit = "tokens"
    """What is counted as tokens."""
    tokens: int
    cpu_hours: float
    gpu_hours: float
    seconds: float
    """Wall-clock seconds of all drivers."""
    last_activity: datetime | None
    """When a trial last started or ended, in local time."""

    @property
    def counts(self) -> str:
        """How many trials are in each state, and how many repeats there are, in words."""
        counts = [f"{count} {state}" for state, count in self.trials.items()]
        return ", ".join(counts + [format_count(self.repeats, "repeat")] * bool(self.repeats))

    def to_frame(self) -> Any:
        """A pandas data frame with one row."""
        return make_frame([_describe_summary(self)])

    @property
    def best_title(self) -> str:
        """What a line calls the best one."""
        return "undecided:" if self.is_undecided else "best"

    def __repr__(self) -> str:
        count = format_count(sum(self.trials.values()), "trial")
        figure = self.objective.format_figure(self.best.figure, DIGITS) if self.best else ""
        best = f", {self.best_title} {self.best.name} {self.objective} {figure}" if self.best else ""
        return f"StudySummary({self.id}: {count}{best})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return render_table(f"study {self.id}", self.to_frame())


def list_studies(settings: Settings | None = None) -> ResultList[StudySummary]:
    """Every study of the home's study database with a trial, the one with the latest activity first.

    A study that this version of memtune cannot read is left out with a warning.
    """
    found = [summarise_study(view) for view in list_views(Settings.resolve(settings))]
    return ResultList(found, f"studies: {len(found)}", _describe_summary)


def _describe_summary(study: StudySummary) -> dict[str, Any]:
    """The columns of a study in a data frame."""
    best, (low, high) = study.best, (study.best and study.best.interval) or (None, None)
    return {
        "study": study.id,
        "corpus": study.corpus,
        "question": study.question,
        "trials": sum(study.trials.values()),
        "best": best and best.name,
        "is_undecided": study.is_undecided,
        "objective": study.objective,
        "figure": best and best.figure,
        "low": low,
        "high": high,
        "tokens": study.tokens,
        "cpu_hours": study.cpu_hours,
        "gpu_hours": study.gpu_hours,
        "last_activity": study.last_activity,
    }


def summarise_study(view: StudyView) -> StudySummary:
    """A study's figures."""
    trials = view.stored.trials
    return StudySummary(
        id=view.id,
        name=view.name,
        question=view.terms.question,
        corpus=view.terms.corpus,
        objective=view.objective,
        trials={state: len(group) for state, group in view.by_state.items()},
        repeats=len(view.stored.repeats),
        best=None if view.best is None else make_entry(view, view.best, has_sizes=False),
        is_undecided=view.eligible is not None and bool(find_leaders(view.eligible)),
        champion_rule=view.champion_rule,
        unit=trials[0].config.task.prediction_unit if trials else "tokens",
        tokens=sum(outcome.usage.tokens for outcome in trials),
        cpu_hours=sum(outcome.usage.cpu_seconds for outcome in trials) / 3600,
        gpu_hours=sum(outcome.usage.gpu_seconds for outcome in trials) / 3600,
        seconds=view.stored.seconds,
        last_activity=view.stored.last_activity,
    )


def study_cost(study: str, settings: Settings | None = None) -> StudyCost:
    """What a study, by id or name, has spent and what early stopping has saved. Raises StudyError."""
    return open_view(study, settings).compute_cost()


def remove_study(study: str, *, with_runs: bool = False, settings: Settings | None = None) -> int | None:
    """Delete a study's checkpoints and its trials in the study database; with `with_runs` also MLflow's runs.

    Returns the number of deleted runs; None when they are kept. Registered models stay. Raises StudyError for
    an unknown study, and while a driver runs it.
    """
    settings = Settings.resolve(settings)
    name = open_view(study, settings).id
    with Lease(settings.study_database, name):
        runs = delete_study_runs(settings.tracking_uri, name) if with_runs else None
        Folder.open(f"{settings.studies_folder}/{name}").delete()
        StudyReader(settings.study_database).delete(name)
    return runs
