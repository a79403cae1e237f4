"""The studies of a home: a list with what each has found and spent, and the removal of one."""

from collections import Counter
from datetime import datetime
from typing import Any

from memtune.corpora import open_corpus
from memtune.errors import StudyError, did_you_mean
from memtune.objective import Objective, format_figure
from memtune.search import Lease, Outcome, StoredStudy, StudyReader
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies.budgets.study_cost import StudyCost, compute_study_cost
from memtune.studies.study_terms import Prices
from memtune.tasks import open_task
from memtune.tracking import delete_study_runs
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.values import Value

__all__ = [
    "BestTrial",
    "RemovedStudy",
    "StudySummary",
    "compute_cost",
    "find_best_trial",
    "find_study",
    "get_objective",
    "list_studies",
    "measure_study",
    "read_study_file",
    "remove_study",
]


class BestTrial(Value):
    """The best trial of a study or family, by its best validation."""

    number: int
    family: str
    cost: float
    """Lower is better."""
    figure: str
    """In the unit that users read."""
    tokens: int
    """At its best validation."""


class StudySummary(Value):
    """A study in a few figures."""

    id: str
    name: str
    question: str
    corpus: str
    objective: Objective
    trials: dict[TrialState, int]
    best: BestTrial | None
    tokens: int
    cpu_hours: float
    gpu_hours: float
    seconds: float
    """Wall-clock seconds of all drivers."""
    last_activity: datetime | None
    """When a trial last started or ended, in local time."""


class RemovedStudy(Value):
    """What the removal of a study deletes."""

    id: str
    trials: int
    checkpoint_bytes: int
    runs: int | None = None
    """Deleted runs in MLflow; None when they are kept."""


def list_studies(settings: Settings | None = None) -> list[StudySummary]:
    """Every study of the home's study database with a trial, the one with the latest activity first."""
    settings = settings or Settings.from_environment()
    reader = StudyReader(settings.study_database)
    stored = [study for study in map(reader.read, reader.list_ids()) if study.outcomes]
    found = [summarise_study(study, settings) for study in stored]
    return sorted(found, key=lambda study: study.last_activity or datetime.min, reverse=True)


def find_study(study: str, settings: Settings) -> StoredStudy:
    """A study by its id or, where that names one study only, by its name. Raises StudyError."""
    reader = StudyReader(settings.study_database)
    known = reader.list_ids()
    named = [found for found in known if study in (found, found.rpartition("-")[0])]
    if len(named) == 1:
        return reader.read(named[0])
    suggestion = f"several have that name: {', '.join(named)}" if named else did_you_mean(study, known)
    raise StudyError(f'no one study "{study}"; {suggestion}; list them with: memtune study list')


def summarise_study(stored: StoredStudy, settings: Settings) -> StudySummary:
    """A study's figures."""
    file, trials = read_study_file(stored.id, settings), [*stored.outcomes, *stored.repeats]
    objective = get_objective(stored)
    return StudySummary(
        id=stored.id,
        name=stored.id.rpartition("-")[0],
        question=file.get("question", ""),
        corpus=file.get("corpus", ""),
        objective=objective,
        trials=dict(Counter(outcome.state for outcome in stored.outcomes)),
        best=find_best_trial(stored.outcomes, objective),
        tokens=sum(outcome.usage.tokens for outcome in trials),
        cpu_hours=sum(outcome.usage.cpu_seconds for outcome in trials) / 3600,
        gpu_hours=sum(outcome.usage.gpu_seconds for outcome in trials) / 3600,
        seconds=stored.seconds,
        last_activity=stored.last_activity,
    )


def get_objective(stored: StoredStudy) -> Objective:
    """The objective of a study's trials; perplexity before the first trial."""
    configurations = [outcome.configuration for outcome in stored.outcomes[:1]]
    return next((TrialConfig.model_validate(c).task.objective for c in configurations), "perplexity")


def find_best_trial(outcomes: list[Outcome], objective: Objective) -> BestTrial | None:
    """The trial with the best validation, the first of equals; None before the first validation."""
    points = [
        (cost, outcome.number, tokens, outcome)
        for outcome in outcomes
        for tokens, cost in outcome.curve.items()
    ]
    if not points:
        return None
    cost, number, tokens, outcome = min(points, key=lambda point: point[:3])
    figure = format_figure(objective, cost, 3)
    return BestTrial(number=number, family=outcome.family, cost=cost, figure=figure, tokens=tokens)


def read_study_file(study: str, settings: Settings) -> dict[str, Any]:
    """The study's terms as its last driver stored them; empty where they are missing."""
    return Folder.open(f"{settings.studies_folder}/{study}").read_json("study.json") or {}


def compute_cost(study: str, settings: Settings | None = None) -> StudyCost:
    """What a study, by id or name, has spent and what early stopping has saved. Raises StudyError."""
    settings = settings or Settings.from_environment()
    stored = find_study(study, settings)
    file = read_study_file(stored.id, settings)
    prices = None if file.get("prices") is None else Prices.model_validate(file["prices"])

    def count_full_tokens(outcome: Outcome) -> int:
        config = TrialConfig.model_validate(outcome.configuration)
        return config.count_tokens(
            lambda: (
                open_task(
                    config.task, open_corpus(file["corpus"], settings.corpus_store), config.protocol
                ).epoch_tokens
            )
        )

    trials = [*stored.outcomes, *stored.repeats]
    return compute_study_cost(stored.id, trials, stored.seconds, prices, count_full_tokens)


def measure_study(study: str, settings: Settings | None = None) -> RemovedStudy:
    """What a removal of a study, by id or name, would delete."""
    settings = settings or Settings.from_environment()
    stored = find_study(study, settings)
    size = Folder.open(f"{settings.studies_folder}/{stored.id}").measure_bytes()
    return RemovedStudy(id=stored.id, trials=len(stored.outcomes), checkpoint_bytes=size)


def remove_study(study: str, *, with_runs: bool = False, settings: Settings | None = None) -> RemovedStudy:
    """Delete a study's checkpoints and its trials in the study database; with `with_runs` also MLflow's runs.

    Registered models stay. Raises StudyError for an unknown study, and while a driver runs it.
    """
    settings = settings or Settings.from_environment()
    removed = measure_study(study, settings)
    file = read_study_file(removed.id, settings)
    with Lease(settings.study_database, removed.id):
        runs = delete_study_runs(settings.tracking_uri, file["corpus"], removed.id) if with_runs else None
        Folder.open(f"{settings.studies_folder}/{removed.id}").delete()
        StudyReader(settings.study_database).delete(removed.id)
    return removed.model_copy(update={"runs": runs})
