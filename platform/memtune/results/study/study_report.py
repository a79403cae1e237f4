"""The report of a study: everything that its page shows, and how to repeat it, as one value."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from memtune.errors import (
    CheckpointError,
    ConfigurationError,
    CorpusError,
    StorageError,
    StudyError,
    TrackingError,
)
from memtune.objective import Objective, PredictionUnit
from memtune.results.fingerprints import Fingerprint, list_fingerprints
from memtune.results.one_text import open_stored, select_text
from memtune.results.study.study_detail import StudyDetail, describe_study
from memtune.results.study.study_leaderboard import (
    LeaderboardEntry,
    StudyLeaderboard,
    join_leaderboards,
    make_leaderboard,
)
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView, list_views, open_view
from memtune.results.study.verdicts import Verdict
from memtune.search import FORMAT_KEY
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies.budgets import StudyCost
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.study_terms import TERMS_FILE
from memtune.toml_text import format_toml
from memtune.tracking import (
    RegisteredVersion,
    count_test_accesses,
    find_trial_run,
    list_champions,
    read_code_version,
)
from memtune.values import Value, digest

LIBRARIES = ("torch", "ray", "optuna", "mlflow", "numpy")


class ProbedConfiguration(Value):
    """The best configuration of a study that a fingerprint of this home describes."""

    name: str
    alternative: str
    figure: float
    """Its validation perplexity or accuracy."""
    fingerprint: Fingerprint


class ShellCommand(Value):
    """A command that repeats or opens something."""

    purpose: str
    command: str


class Provenance(Value):
    """Digests, versions, machines and commands of a study."""

    study: str
    """Its id, which ends in a digest of its terms, its spaces and its corpus."""
    corpus: str
    corpus_digest: str | None
    """None where the store does not have the corpus any more."""
    splits: dict[str, int]
    """Tokens of each split."""
    vocabulary: int | None
    winner_trial: str | None
    """The identity of its best-validated trial."""
    trained_with: dict[str, str]
    """Versions and machine of the last worker that trained that trial, as its checkpoint names them.

    The version of memtune has the commit that its run in MLflow names.
    """
    written_with: dict[str, str]
    """Versions of the process that wrote the report."""
    version: RegisteredVersion | None
    """The champion that the study's model is; None where another study has it."""
    test_accesses: int | None
    """How often models of the corpus have read a test split; None where the records cannot be read."""
    commands: tuple[ShellCommand, ...]
    study_file: str
    """The study as a TOML file, as the last driver stored it: under its name it is the same study again."""


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
    def probed_alike(self) -> list[list[ProbedConfiguration]]:
        """Those whose fingerprints compare, because their terms and their rows are equal."""
        groups: dict[str, list[ProbedConfiguration]] = {}
        for probed in self.probed:
            found = probed.fingerprint
            rows = [result.corpus for result in found.results]
            groups.setdefault(digest(found.terms.model_dump(mode="json"), rows), []).append(probed)
        return [*groups.values()]

    @property
    def verdict(self) -> Verdict | None:
        """The answer; None before the first validation."""
        return self.detail.verdict


def report_study(study: str, settings: Settings | None = None) -> StudyReport:
    """The report of a study, by id or name. Raises StudyError for an unknown study."""
    return make_study_report(open_view(study, settings))


def make_study_report(view: StudyView) -> StudyReport:
    """The report of a study."""
    cost, leaderboard = None, make_leaderboard(view)
    with suppress(CorpusError, StorageError):
        cost = view.compute_cost()
    return StudyReport(
        written=datetime.now(UTC),
        detail=describe_study(view),
        cost=cost,
        leaderboard=leaderboard,
        ideal=view.ideal,
        label=view.label,
        provenance=_collect_provenance(view),
        probed=tuple(_find_probed(view, leaderboard)),
    )


def _find_probed(view: StudyView, leaderboard: StudyLeaderboard) -> Iterator[ProbedConfiguration]:
    """The fingerprints of each model, with the best configuration that they describe.

    Of equal rows the newest one counts.
    """
    models = {trial.identity: trial.config.model for trial in view.trials}
    fingerprints = [(digest(found.model), found) for found in list_fingerprints(view.settings)[::-1]]
    seen = set[tuple[str, str]]()
    for entry in leaderboard.entries:
        for model, found in fingerprints:
            new = [result for result in found.results if (model, result.corpus) not in seen]
            if new and found.describes(models[entry.identity]):
                seen.update((model, result.corpus) for result in new)
                yield ProbedConfiguration(
                    name=entry.name,
                    alternative=entry.alternative,
                    figure=entry.figure,
                    fingerprint=found.model_copy(update={"results": tuple(new)}),
                )


def _collect_provenance(view: StudyView) -> Provenance:
    """The provenance of a study. Records that cannot be read are left out."""
    corpus, winner = view.corpus, view.best.best if view.best else None
    trained_with: dict[str, str] = {}
    if winner is not None:
        with suppress(CheckpointError, StorageError):
            trained_with = dict(Checkpoints(view.checkpoint_root, winner.identity).read().record.versions)
            with suppress(TrackingError, ConfigurationError):
                # A checkpoint has the release alone. A run of another release, such as the one that a newer
                # driver has recorded again, says nothing of the commit.
                code = find_trial_run(view.settings.tracking_uri, f"{view.id}{winner.reference}").code
                if code.partition("+")[0] == trained_with.get("memtune"):
                    trained_with["memtune"] = code
    written_with = {"memtune": read_code_version()}
    for library in LIBRARIES:
        with suppress(PackageNotFoundError):
            written_with[library] = version(library)
    versions, accesses = _read_registry(view.terms.corpus, view.settings)
    registered = next((found for found in versions if found.study == view.id), None)
    commands = _list_commands(view, winner, registered)
    return Provenance(
        study=view.id,
        corpus=view.terms.corpus,
        corpus_digest=corpus.digest if corpus else None,
        splits={name: split.tokens for name, split in corpus.manifest.splits.items()} if corpus else {},
        vocabulary=len(corpus.vocabulary) if corpus else None,
        winner_trial=winner.identity if winner else None,
        trained_with=trained_with,
        written_with=written_with,
        version=registered,
        test_accesses=accesses,
        commands=tuple(ShellCommand(purpose=purpose, command=command) for purpose, command in commands),
        study_file=_read_study_file(view),
    )


def _read_study_file(view: StudyView) -> str:
    """A study's file as TOML, with the fields that are set; empty where nothing is stored."""
    stored = Folder.open(f"{view.settings.studies_folder}/{view.id}").read_json(TERMS_FILE)
    if not isinstance(stored, dict):
        return ""
    # The name of a study is that of its file.
    derived = ("name", "alternatives", "searched_fields", FORMAT_KEY)
    return format_toml({name: value for name, value in stored.items() if name not in derived})


def _read_registry(corpus: str, settings: Settings) -> tuple[list[RegisteredVersion], int | None]:
    """The champions and how often the test split was read; nothing where the store does not answer."""
    uri = settings.tracking_uri
    with suppress(TrackingError, ConfigurationError):
        return list_champions(uri, corpus), count_test_accesses(uri, corpus)
    return [], None


def _list_commands(
    view: StudyView, winner: StudyTrial | None, registered: RegisteredVersion | None
) -> Iterator[tuple[str, str]]:
    study, trial = shlex.quote(view.id), f"{view.id}{winner.reference}" if winner else None
    yield "run the study again", f"memtune search {shlex.quote(view.name)}.toml"
    if model := registered.uri if registered else trial:
        yield "evaluate the best model", f"memtune evaluate {shlex.quote(model)}"
        if view.corpus is not None and "test" in view.corpus.manifest.splits:
            yield "read its test figure, once", f"memtune evaluate {shlex.quote(model)} --split test"
    yield "show its values in a terminal", f"memtune study show {study}"
    yield "compare all trials of the corpus", f"memtune compare --corpus {shlex.quote(view.terms.corpus)}"
    yield "write this report", f"memtune report {study} --out report.html"


class LabelReport(Value):
    """The studies of a corpus under one protocol and task: only their figures compare."""

    label: str
    objective: Objective
    unit: PredictionUnit = "tokens"
    """What is counted as tokens."""
    champion: RegisteredVersion | None
    """None where the registry has none, or does not answer."""
    leaderboard: StudyLeaderboard
    """The configurations of all studies at the largest full length; their names end with the study's."""
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
    champions, accesses = _read_registry(corpus, settings)
    opened = open_stored(corpus, settings)
    same_text, digest = select_text(views, StudyView.has_read, opened, champions)
    opened = opened if opened is not None and opened.digest == digest else None
    champions = [champion for champion in champions if digest in (None, champion.corpus_digest)]
    studies = [make_study_report(view) for view in same_text]
    ideal = (opened.manifest.ideal or {}).get("valid") if opened else None
    by_label = defaultdict[str, list[StudyReport]](list)
    for study in studies:
        by_label[study.label].append(study)
    found = [_report_label(label, own, champions) for label, own in by_label.items()]
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
    unit = studies[0].detail.summary.unit
    leaderboard, shorter = join_leaderboards(
        [(unique[study.detail.summary.id], study.leaderboard) for study in studies], unit
    )
    return LabelReport(
        label=label,
        objective=studies[0].detail.summary.objective,
        unit=unit,
        champion=next((found for found in champions if found.protocol == label), None),
        leaderboard=leaderboard,
        shorter=shorter,
        studies=tuple(studies),
    )
