"""The report of a study: everything that its page shows, as one value."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from memtune.errors import CorpusError, StorageError, StudyError
from memtune.objective import Objective, PredictionUnit
from memtune.results.fingerprints import Fingerprint, list_fingerprints
from memtune.results.one_text import open_stored, select_text
from memtune.results.study.provenance import Provenance, collect_provenance, read_registry
from memtune.results.study.study_detail import StudyDetail, describe_study
from memtune.results.study.study_leaderboard import (
    LeaderboardEntry,
    StudyLeaderboard,
    join_leaderboards,
    make_leaderboard,
)
from memtune.results.study.study_trials import name_by_alternative
from memtune.results.study.study_view import StudyView, list_views, open_view
from memtune.results.study.verdicts import Verdict
from memtune.settings import Settings
from memtune.studies.budgets.study_cost import StudyCost
from memtune.tracking import RegisteredVersion
from memtune.values import Value


class ProbedConfiguration(Value):
    """The best configuration of a study that a fingerprint of this home describes."""

    name: str
    alternative: str
    figure: float
    """Its validation perplexity or accuracy."""
    fingerprint: Fingerprint


class StudyReport(Value):
    """A study's question, its answer, and all that supports it: what `memtune report STUDY --json` prints."""

    written: datetime
    """In coordinated universal time."""
    detail: StudyDetail
    """What `memtune study show --json` prints."""
    cost: StudyCost | None
    """What `memtune study cost --json` prints; None where the corpus is not in the store any more."""
    leaderboard: StudyLeaderboard
    ideal: float | None
    """The validation perplexity that no model can beat, where it is known."""
    label: str
    """Protocol and task: figures compare only under one label."""
    provenance: Provenance
    probed: tuple[ProbedConfiguration, ...] = ()
    """What models answer of probes, beside what they reach in the study; the best first."""

    @property
    def verdict(self) -> Verdict | None:
        """The answer; None before the first validation."""
        return self.detail.verdict


def report_study(study: str, settings: Settings | None = None) -> StudyReport:
    """The report of a study, by id or name. Raises StudyError for an unknown study."""
    return make_report(open_view(study, settings))


def make_report(view: StudyView) -> StudyReport:
    """The report of a study."""
    cost = None
    with suppress(CorpusError, StorageError):
        cost = view.compute_cost()
    leaderboard = make_leaderboard(view)
    return StudyReport(
        written=datetime.now(UTC),
        detail=describe_study(view),
        cost=cost,
        leaderboard=leaderboard,
        ideal=view.ideal,
        label=view.label,
        provenance=collect_provenance(view),
        probed=tuple(_find_probed(view, leaderboard)),
    )


def _find_probed(view: StudyView, leaderboard: StudyLeaderboard) -> Iterator[ProbedConfiguration]:
    """Each model's newest fingerprint, with the best configuration that it describes."""
    models = {trial.identity: trial.config.model for trial in view.trials}
    fingerprints = list_fingerprints(view.settings)[::-1]
    seen = set[str]()
    for entry in leaderboard.entries:
        found = next((own for own in fingerprints if own.describes(models[entry.identity])), None)
        if found is not None and found.name not in seen:
            seen.add(found.name)
            yield ProbedConfiguration(
                name=name_by_alternative(entry),
                alternative=entry.alternative,
                figure=entry.figure,
                fingerprint=found,
            )


class LabelReport(Value):
    """The studies of a corpus under one protocol and task: only their figures compare."""

    label: str
    objective: Objective
    unit: PredictionUnit = "tokens"
    """What is counted as tokens."""
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
    """Of the text that the studies read; None where neither the store nor a champion has it."""
    splits: dict[str, int]
    """Tokens of each split."""
    vocabulary: int | None
    ideal: float | None
    """The validation perplexity that no model can beat, where it is known."""
    test_accesses: int | None
    labels: tuple[LabelReport, ...]
    """Those with a champion first."""
    other_texts: tuple[str, ...] = ()
    """The studies that read another text of this name, by id: they do not compare, and are left out."""


def report_corpus(corpus: str, settings: Settings | None = None) -> CorpusReport:
    """The report of a corpus over its studies of one text: that of the store, else that of a champion.

    Raises StudyError where none has a trial.
    """
    settings = Settings.resolve(settings)
    views = [view for view in list_views(settings) if view.terms.corpus == corpus]
    if not views:
        raise StudyError(
            f'no study has run on corpus "{corpus}" in this home; list studies with: memtune study list'
        )
    champions, accesses = read_registry(corpus, settings)
    opened = open_stored(corpus, settings)
    same_text, digest = select_text(views, StudyView.has_read, opened, champions)
    opened = opened if opened is not None and opened.digest == digest else None
    champions = [champion for champion in champions if digest in (None, champion.corpus_digest)]
    studies = [make_report(view) for view in same_text]
    ideal = (opened.manifest.ideal or {}).get("valid") if opened else None
    labels = sorted({study.label for study in studies})
    found = [
        _report_label(label, [study for study in studies if study.label == label], champions)
        for label in labels
    ]
    return CorpusReport(
        written=datetime.now(UTC),
        corpus=corpus,
        digest=digest,
        splits={name: split.tokens for name, split in opened.manifest.splits.items()} if opened else {},
        vocabulary=len(opened.vocabulary) if opened else None,
        ideal=ideal,
        test_accesses=accesses,
        labels=tuple(sorted(found, key=lambda own: (own.champion is None, own.label))),
        other_texts=tuple(view.id for view in views if view not in same_text),
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
        unit=studies[0].detail.summary.unit,
        champion=next((found for found in champions if found.protocol == label), None),
        leaderboard=leaderboard,
        shorter=shorter,
        studies=tuple(studies),
    )
