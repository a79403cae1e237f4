"""The report of a corpus: all its studies, by the label under which their figures compare."""

from collections.abc import Sequence
from datetime import UTC, datetime

from memtune.errors import StudyError, TrackingError
from memtune.objective import Objective
from memtune.results.insight.study_catalogue import list_studies, open_study_corpus
from memtune.results.reporting.study_leaderboard import LeaderboardEntry, StudyLeaderboard, join_leaderboards
from memtune.results.reporting.study_report import StudyReport, report_study
from memtune.settings import Settings
from memtune.tracking import RegisteredVersion, count_test_accesses, list_champions
from memtune.values import Value

__all__ = ["CorpusReport", "LabelReport", "report_corpus"]


class LabelReport(Value):
    """The studies of a corpus under one protocol and task: only their figures compare."""

    label: str
    objective: Objective
    champion: RegisteredVersion | None
    """None where the registry has none, or does not answer."""
    leaderboard: StudyLeaderboard
    """The configurations of all studies at the largest full length; their names start with the study's."""
    shorter: tuple[LeaderboardEntry, ...]
    """The best configuration of each study whose full length is smaller: it does not compare."""
    studies: tuple[StudyReport, ...]
    """The latest first."""


class CorpusReport(Value):
    """What `memtune report --corpus NAME --json` prints."""

    written: datetime
    """In coordinated universal time."""
    corpus: str
    digest: str | None
    """None where the store does not have the corpus any more."""
    splits: dict[str, int]
    """Tokens of each split."""
    vocabulary: int | None
    ideal: float | None
    """The validation perplexity that no model can beat, where it is known."""
    test_accesses: int | None
    labels: tuple[LabelReport, ...]
    """Those with a champion first."""


def report_corpus(corpus: str, settings: Settings | None = None, now: datetime | None = None) -> CorpusReport:
    """The report of a corpus over its studies. Raises StudyError where none has a trial."""
    settings = Settings.resolve(settings)
    names = [summary.id for summary in list_studies(settings) if summary.corpus == corpus]
    if not names:
        raise StudyError(
            f'no study has run on corpus "{corpus}" in this home; list studies with: memtune study list'
        )
    studies = [report_study(name, settings, now) for name in names]
    champions, accesses = _read_tracking(corpus, settings)
    opened = open_study_corpus(corpus, settings)
    ideal = (opened.manifest.ideal or {}).get("valid") if opened else None
    labels = sorted({study.label for study in studies})
    found = [
        _report_label(label, [study for study in studies if study.label == label], champions)
        for label in labels
    ]
    return CorpusReport(
        written=now or datetime.now(UTC),
        corpus=corpus,
        digest=opened.digest if opened else None,
        splits={name: split.tokens for name, split in opened.manifest.splits.items()} if opened else {},
        vocabulary=len(opened.vocabulary) if opened else None,
        ideal=ideal,
        test_accesses=accesses,
        labels=tuple(sorted(found, key=lambda own: (own.champion is None, own.label))),
    )


def _report_label(
    label: str, studies: Sequence[StudyReport], champions: Sequence[RegisteredVersion]
) -> LabelReport:
    names = {study.detail.summary.id: study.detail.summary.name for study in studies}
    # Two studies of one name differ in their digests, which tell them apart then.
    unique = {
        study: name if list(names.values()).count(name) == 1 else study for study, name in names.items()
    }
    leaderboard, shorter = join_leaderboards(
        [(unique[study.detail.summary.id], study.leaderboard) for study in studies]
    )
    return LabelReport(
        label=label,
        objective=studies[0].detail.summary.objective,
        champion=next((found for found in champions if found.protocol == label), None),
        leaderboard=leaderboard,
        shorter=shorter,
        studies=tuple(studies),
    )


def _read_tracking(corpus: str, settings: Settings) -> tuple[list[RegisteredVersion], int | None]:
    """Champions and accesses to the test split; nothing where the tracking store does not answer."""
    try:
        return list_champions(settings.tracking_uri, corpus), count_test_accesses(
            settings.tracking_uri, corpus
        )
    except TrackingError:
        return [], None
