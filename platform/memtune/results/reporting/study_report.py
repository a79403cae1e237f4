"""The report of a study: everything that its page shows, as one value."""

from contextlib import suppress
from datetime import UTC, datetime

from memtune.errors import CorpusError, StorageError
from memtune.results.insight.champion_rule import apply_limits
from memtune.results.insight.study_catalogue import (
    compute_cost,
    find_study,
    number_trials,
    open_study_corpus,
    rank_study,
)
from memtune.results.insight.study_detail import StudyDetail, show_study
from memtune.results.reporting.provenance import Provenance, collect_provenance
from memtune.results.reporting.study_leaderboard import StudyLeaderboard, make_leaderboard
from memtune.results.reporting.verdicts import Verdict, judge_winner
from memtune.settings import Settings
from memtune.studies.budgets.study_cost import StudyCost
from memtune.studies.definition.study_terms import read_stored_terms
from memtune.training import TrialConfig
from memtune.values import Value

__all__ = ["StudyReport", "report_study"]


class StudyReport(Value):
    """A study's question, its answer, and all that supports it: what `memtune report STUDY --json` prints."""

    written: datetime
    """In coordinated universal time."""
    detail: StudyDetail
    """What `memtune study show --json` prints."""
    cost: StudyCost | None
    """What `memtune study cost --json` prints; None where the corpus is not in the store any more."""
    verdict: Verdict | None
    """None before the first validation."""
    leaderboard: StudyLeaderboard
    ideal: float | None
    """The validation perplexity that no model can beat, where it is known."""
    label: str
    """Protocol and task: figures compare only under one label."""
    provenance: Provenance


def report_study(study: str, settings: Settings | None = None, now: datetime | None = None) -> StudyReport:
    """The report of a study, by id or name. Raises StudyError for an unknown study.

    `now` is the time that the report names; default: the present.
    """
    settings = Settings.resolve(settings)
    detail, stored = show_study(study, settings), find_study(study, settings)
    summary, trials = detail.summary, [*stored.outcomes, *stored.repeats]
    terms = read_stored_terms(settings.studies_folder, stored.id)
    corpus, ranking = open_study_corpus(terms.corpus, settings), rank_study(stored, settings)
    eligible = None if ranking is None else apply_limits(ranking, terms.champion, trials, corpus)
    cost = None
    with suppress(CorpusError, StorageError):
        cost = compute_cost(stored.id, settings)
    ideal = (corpus.manifest.ideal or {}).get("valid") if corpus else None
    root = f"{settings.studies_folder}/{stored.id}/checkpoints"
    return StudyReport(
        written=now or datetime.now(UTC),
        detail=detail,
        cost=cost,
        verdict=None if eligible is None else judge_winner(eligible, summary.objective, root),
        leaderboard=make_leaderboard(
            ranking, trials, number_trials(stored), summary.objective, corpus, terms.prices
        ),
        ideal=ideal if summary.objective.has_ideal else None,
        label=TrialConfig.model_validate(trials[0].configuration).label if trials else "",
        provenance=collect_provenance(stored.id, terms.corpus, corpus, eligible, settings),
    )
