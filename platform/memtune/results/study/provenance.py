"""Where a report's values come from, and how to repeat them: digests, versions, machines and commands."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from memtune.errors import CheckpointError, ConfigurationError, StorageError, TrackingError
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.search import FORMAT_KEY
from memtune.settings import Settings
from memtune.storage.folder import Folder
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
from memtune.values import Value

LIBRARIES = ("torch", "ray", "optuna", "mlflow", "numpy")


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


def collect_provenance(view: StudyView) -> Provenance:
    """The provenance of a study. Records that cannot be read are left out."""
    corpus, winner = view.corpus, view.best.best if view.best else None
    trained_with: dict[str, str] = {}
    if winner is not None:
        with suppress(CheckpointError, StorageError):
            record = Checkpoints(view.checkpoint_root, winner.identity).read().record
            trained_with = _add_commit(record.versions, view, winner)
    versions, accesses = read_registry(view.terms.corpus, view.settings)
    registered = next((found for found in versions if found.study == view.id), None)
    return Provenance(
        study=view.id,
        corpus=view.terms.corpus,
        corpus_digest=corpus.digest if corpus else None,
        splits={name: split.tokens for name, split in corpus.manifest.splits.items()} if corpus else {},
        vocabulary=len(corpus.vocabulary) if corpus else None,
        winner_trial=winner.identity if winner else None,
        trained_with=trained_with,
        written_with=list_versions(),
        version=registered,
        test_accesses=accesses,
        commands=tuple(_list_commands(view, winner, registered)),
        study_file=read_study_file(view.id, view.settings),
    )


def list_versions() -> dict[str, str]:
    """The versions of memtune and of the libraries that this process uses."""
    found = {"memtune": read_code_version()}
    for library in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[library] = version(library)
    return found


def read_study_file(study: str, settings: Settings) -> str:
    """A study's file as TOML, with the fields that are set; empty where nothing is stored."""
    stored = Folder.open(f"{settings.studies_folder}/{study}").read_json(TERMS_FILE)
    if not isinstance(stored, dict):
        return ""
    # The name of a study is that of its file.
    derived = ("name", "alternatives", "searched_fields", FORMAT_KEY)
    return format_toml({name: value for name, value in stored.items() if name not in derived})


def _add_commit(versions: Mapping[str, str], view: StudyView, winner: StudyTrial) -> dict[str, str]:
    """The versions of the winner's checkpoint with the full version of the code from its run.

    A checkpoint has the release alone. A run of another release, such as the one that a newer driver has
    recorded again, says nothing of the commit.
    """
    found = dict(versions)
    with suppress(TrackingError, ConfigurationError):
        code = find_trial_run(view.settings.tracking_uri, f"{view.id}{winner.reference}").code
        if code.partition("+")[0] == found.get("memtune"):
            found["memtune"] = code
    return found


def read_registry(corpus: str, settings: Settings) -> tuple[list[RegisteredVersion], int | None]:
    """The champions and how often the test split was read; nothing where the store does not answer."""
    try:
        versions = list_champions(settings.tracking_uri, corpus)
        return versions, count_test_accesses(settings.tracking_uri, corpus)
    except (TrackingError, ConfigurationError):
        return [], None


def _list_commands(
    view: StudyView, winner: StudyTrial | None, registered: RegisteredVersion | None
) -> list[ShellCommand]:
    rows = [
        ("run the study again", f"memtune search {shlex.quote(view.name)}.toml"),
        ("show its values in a terminal", f"memtune study show {shlex.quote(view.id)}"),
        ("compare all trials of the corpus", f"memtune compare --corpus {shlex.quote(view.terms.corpus)}"),
        ("write this report", f"memtune report {shlex.quote(view.id)} --out report.html"),
    ]
    model = registered.uri if registered else None
    if model is None and winner is not None:
        model = f"{view.id}{winner.reference}"
    if model is not None:
        split = " --split test" if view.corpus is not None and "test" in view.corpus.manifest.splits else ""
        rows.insert(1, ("evaluate the best model", f"memtune evaluate {shlex.quote(model)}"))
        if split:
            rows.insert(2, ("read its test figure, once", f"memtune evaluate {shlex.quote(model)}{split}"))
    return [ShellCommand(purpose=purpose, command=command) for purpose, command in rows]
