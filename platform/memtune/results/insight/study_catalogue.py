"""The studies of a home: a list with what each has found and spent, and the removal of one."""

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any

from memtune.arguments import check_type
from memtune.corpora import Corpus, open_corpus
from memtune.data_frames import ResultList, make_frame, render_table
from memtune.errors import ConfigurationError, CorpusError, StorageError, StudyError, did_you_mean
from memtune.estimate import Estimate
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.insight.champion_rule import apply_limits, describe_rule
from memtune.results.insight.ranked_trials import list_ranked_trials
from memtune.results.ranking.selection import RankedTrial, Ranking, rank_trials
from memtune.search import Lease, Outcome, StoredStudy, StudyReader
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies.budgets.study_cost import StudyCost, compute_study_cost
from memtune.studies.definition.study_terms import ChampionLimits, read_stored_terms
from memtune.studies.seed_repeats import TrialNames
from memtune.tasks import open_task
from memtune.tracking import delete_study_runs
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.values import Value, parse

__all__ = [
    "BestTrial",
    "RemovedStudy",
    "StudySummary",
    "compute_cost",
    "find_study",
    "get_objective",
    "list_best_trials",
    "list_studies",
    "measure_study",
    "number_trials",
    "open_study_corpus",
    "rank_study",
    "remove_study",
]

DIGITS = 3
log = logging.getLogger(__name__)


class BestTrial(Value):
    """The best configuration of a study or family: by the mean over seeds at full length (`rank_trials`)."""

    number: int
    """Of the trial that the search started; its repeats have the same."""
    name: str
    """Family and number: "lstm #3"."""
    family: str
    estimate: Estimate
    """The mean cost over seeds with its 95 % interval, lower is better."""
    figure: str
    """The mean in the unit that users read."""
    interval: tuple[float, float] | None
    """The 95 % interval in that unit; None for a single seed."""
    tokens: int
    """At the last report of its best-validated seed."""
    note: str = ""
    """Why it is not ranked: it ended early, or lacks seeds; empty for a ranked one."""


class StudySummary(Value):
    """A study in a few figures."""

    id: str
    name: str
    question: str
    corpus: str
    objective: Objective
    trials: dict[TrialState, int]
    best: BestTrial | None
    champion_rule: str
    """How the best one is chosen."""
    tokens: int
    cpu_hours: float
    gpu_hours: float
    seconds: float
    """Wall-clock seconds of all drivers."""
    last_activity: datetime | None
    """When a trial last started or ended, in local time."""

    def to_frame(self) -> Any:
        """A pandas data frame with one row."""
        return make_frame([_describe_summary(self)])

    def __repr__(self) -> str:
        """The study, its number of trials, and the best one."""
        count = format_count(sum(self.trials.values()), "trial")
        best = f", best {self.best.name} {self.objective} {self.best.figure}" if self.best else ""
        return f"StudySummary({self.id}: {count}{best})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return render_table(f"study {self.id}", self.to_frame())


class RemovedStudy(Value):
    """What the removal of a study deletes."""

    id: str
    trials: int
    checkpoint_bytes: int
    runs: int | None = None
    """Deleted runs in MLflow; None when they are kept."""


def list_studies(settings: Settings | None = None) -> ResultList[StudySummary]:
    """Every study of the home's study database with a trial, the one with the latest activity first.

    A study that this version of memtune cannot read is left out with a warning.
    """
    settings = Settings.resolve(settings)
    reader = StudyReader(settings.study_database)
    found: list[StudySummary] = []
    for name in reader.list_ids():
        try:
            stored = _read_study(reader, name)
            if stored.outcomes:
                found.append(summarise_study(stored, settings))
        except (ConfigurationError, StudyError) as error:
            log.warning("study %s is not listed: %s", name, error)
    latest = sorted(found, key=lambda study: study.last_activity or datetime.min, reverse=True)
    return ResultList(latest, f"studies: {len(latest)}", _describe_summary)


def _describe_summary(study: StudySummary) -> dict[str, Any]:
    """The columns of a study in a data frame."""
    best, (low, high) = study.best, (study.best and study.best.interval) or (None, None)
    return {
        "study": study.id,
        "corpus": study.corpus,
        "question": study.question,
        "trials": sum(study.trials.values()),
        "best": best and best.name,
        "objective": study.objective,
        "figure": best and study.objective.compute_figure(best.estimate.cost),
        "low": low,
        "high": high,
        "tokens": study.tokens,
        "cpu_hours": study.cpu_hours,
        "gpu_hours": study.gpu_hours,
        "last_activity": study.last_activity,
    }


def find_study(study: str, settings: Settings) -> StoredStudy:
    """A study by its id or, where that names one study only, by its name. Raises StudyError."""
    check_type("study", study, str, 'the id or the name of a study, such as "demo"')
    reader = StudyReader(settings.study_database)
    known = reader.list_ids()
    named = [found for found in known if study in (found, found.rpartition("-")[0])]
    if len(named) == 1:
        return _read_study(reader, named[0])
    suggestion = f"several have that name: {', '.join(named)}" if named else did_you_mean(study, known)
    raise StudyError(f'no one study "{study}"; {suggestion}; list them with: memtune study list')


def _read_study(reader: StudyReader, study: str) -> StoredStudy:
    """A study by its id. Raises ConfigurationError for trials of another version of memtune."""
    stored = reader.read(study)
    for outcome in [*stored.outcomes, *stored.repeats]:
        parse(TrialConfig, outcome.configuration, f"study {study}, trial {outcome.number}")
    return stored


def summarise_study(stored: StoredStudy, settings: Settings) -> StudySummary:
    """A study's figures."""
    terms = read_stored_terms(settings.studies_folder, stored.id)
    trials = [*stored.outcomes, *stored.repeats]
    objective, ranking = get_objective(stored), rank_study(stored, settings)
    best, rule = None, describe_rule(ChampionLimits())
    if ranking is not None:
        limits = terms.champion
        corpus = open_study_corpus(terms.corpus, settings) if limits.is_set else None
        eligible = apply_limits(ranking, limits, trials, corpus)
        best = list_best_trials(eligible, stored, objective)[0]
        rule = describe_rule(limits, are_met=eligible is not ranking)
    return StudySummary(
        id=stored.id,
        name=stored.id.rpartition("-")[0],
        question=terms.question,
        corpus=terms.corpus,
        objective=objective,
        trials=dict(Counter(outcome.state for outcome in stored.outcomes)),
        best=best,
        champion_rule=rule,
        tokens=sum(outcome.usage.tokens for outcome in trials),
        cpu_hours=sum(outcome.usage.cpu_seconds for outcome in trials) / 3600,
        gpu_hours=sum(outcome.usage.gpu_seconds for outcome in trials) / 3600,
        seconds=stored.seconds,
        last_activity=stored.last_activity,
    )


def get_objective(stored: StoredStudy) -> Objective:
    """The objective of a study's trials; perplexity before the first trial."""
    configurations = [outcome.configuration for outcome in stored.outcomes[:1]]
    return next((TrialConfig.model_validate(c).task.objective for c in configurations), Objective.PERPLEXITY)


def rank_study(stored: StoredStudy, settings: Settings) -> Ranking | None:
    """The ranking of a study's trials and repeats; None before the first validation."""
    terms = read_stored_terms(settings.studies_folder, stored.id)

    def count_epoch_tokens(config: TrialConfig) -> int | None:
        corpus = open_study_corpus(terms.corpus, settings)
        return None if corpus is None else open_task(config.task, corpus, config.protocol).epoch_tokens

    return rank_trials(
        list_ranked_trials(stored.id, stored.outcomes, stored.repeats, cache(count_epoch_tokens))
    )


def open_study_corpus(corpus: str, settings: Settings) -> Corpus | None:
    """The corpus of a study by its name; None where the store lacks it or it cannot be read."""
    with suppress(CorpusError, StorageError):
        return open_corpus(corpus, settings.corpus_store)
    return None


def list_best_trials(ranking: Ranking, stored: StoredStudy, objective: Objective) -> list[BestTrial]:
    """The best configuration of each family: ranked ones first, then those that ended early."""
    numbers = number_trials(stored)
    found: dict[str, BestTrial] = {}
    for place, configuration in enumerate(ranking.configurations):
        seeds = format_count(configuration.estimate.seeds, "seed")
        note = "" if place < len(ranking.ranked) else f"{seeds}, fewer than others"
        found.setdefault(
            configuration.best.family,
            _make_best_trial(configuration.best, configuration.estimate, note, numbers, objective),
        )
    for short in ranking.short:
        note = f"ended early: {short.describe(objective, DIGITS)}"
        found.setdefault(
            short.trial.family,
            _make_best_trial(short.trial, Estimate(cost=short.cost), note, numbers, objective),
        )
    return list(found.values())


def number_trials(stored: StoredStudy) -> dict[str, int]:
    """The number of each trial by identity; a repeat has that of the trial that it repeats."""
    names = TrialNames(stored.outcomes)
    originals = [
        (outcome, names.find_original(TrialConfig.model_validate(outcome.configuration)))
        for outcome in stored.repeats
    ]
    repeats = {
        outcome.identity: outcome.number if original is None else original for outcome, original in originals
    }
    return repeats | {outcome.identity: outcome.number for outcome in stored.outcomes}


def _make_best_trial(
    trial: RankedTrial, estimate: Estimate, note: str, numbers: Mapping[str, int], objective: Objective
) -> BestTrial:
    number = numbers[trial.identity]
    return BestTrial(
        number=number,
        name=f"{trial.family} #{number}",
        family=trial.family,
        estimate=estimate,
        figure=objective.format_cost(estimate.cost, DIGITS),
        interval=estimate.compute_interval(objective),
        tokens=max(trial.curve),
        note=note,
    )


def compute_cost(study: str, settings: Settings | None = None) -> StudyCost:
    """What a study, by id or name, has spent and what early stopping has saved. Raises StudyError."""
    settings = Settings.resolve(settings)
    stored = find_study(study, settings)
    terms = read_stored_terms(settings.studies_folder, stored.id)

    def count_full_tokens(outcome: Outcome) -> int:
        config = TrialConfig.model_validate(outcome.configuration)
        return config.count_tokens(
            lambda: (
                open_task(
                    config.task, open_corpus(terms.corpus, settings.corpus_store), config.protocol
                ).epoch_tokens
            )
        )

    trials = [*stored.outcomes, *stored.repeats]
    return compute_study_cost(stored.id, trials, stored.seconds, terms.prices, count_full_tokens)


def measure_study(study: str, settings: Settings | None = None) -> RemovedStudy:
    """What a removal of a study, by id or name, would delete."""
    settings = Settings.resolve(settings)
    stored = find_study(study, settings)
    size = Folder.open(f"{settings.studies_folder}/{stored.id}").measure_bytes()
    return RemovedStudy(id=stored.id, trials=len(stored.outcomes), checkpoint_bytes=size)


def remove_study(study: str, *, with_runs: bool = False, settings: Settings | None = None) -> RemovedStudy:
    """Delete a study's checkpoints and its trials in the study database; with `with_runs` also MLflow's runs.

    Registered models stay. Raises StudyError for an unknown study, and while a driver runs it.
    """
    settings = Settings.resolve(settings)
    removed = measure_study(study, settings)
    with Lease(settings.study_database, removed.id):
        runs = _delete_runs(removed.id, settings) if with_runs else None
        Folder.open(f"{settings.studies_folder}/{removed.id}").delete()
        StudyReader(settings.study_database).delete(removed.id)
    return removed.model_copy(update={"runs": runs})


def _delete_runs(study: str, settings: Settings) -> int:
    corpus = read_stored_terms(settings.studies_folder, study).corpus
    if not corpus:
        raise StudyError(
            f"the corpus of study {study} is unknown, because its stored terms are missing, so its runs "
            "cannot be found; remove it without --runs, and its runs on MLflow's pages"
        )
    return delete_study_runs(settings.tracking_uri, corpus, study)
