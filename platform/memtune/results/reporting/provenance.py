"""Where a report's values come from, and how to repeat them: digests, versions, machines and commands."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from memtune.corpora import Corpus
from memtune.errors import CheckpointError, ConfigurationError, StorageError, TrackingError
from memtune.results.ranking.selection import RankedTrial, Ranking
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
from memtune.training import CheckpointRecord
from memtune.training.checkpoint import read_record
from memtune.values import Value

__all__ = ["Provenance", "ShellCommand", "collect_provenance", "read_study_file"]

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


def collect_provenance(
    study: str, corpus_name: str, corpus: Corpus | None, ranking: Ranking | None, settings: Settings
) -> Provenance:
    """The provenance of a study by its id. Records that cannot be read are left out."""
    winner = ranking.winner.best if ranking else None
    record = _read_winner(study, winner, settings) if winner else None
    versions, accesses = _read_tracking(corpus_name, settings)
    registered = next((found for found in versions if found.study == study), None)
    return Provenance(
        study=study,
        corpus=corpus_name,
        corpus_digest=corpus.digest if corpus else None,
        splits={name: split.tokens for name, split in corpus.manifest.splits.items()} if corpus else {},
        vocabulary=len(corpus.vocabulary) if corpus else None,
        winner_trial=winner.identity if winner else None,
        trained_with=_add_commit(record.versions, study, winner, settings) if record and winner else {},
        written_with=list_versions(),
        version=registered,
        test_accesses=accesses,
        commands=tuple(_list_commands(study, corpus_name, winner, registered, corpus)),
        study_file=read_study_file(study, settings),
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
    return format_toml({name: value for name, value in stored.items() if name != "name"})


def _read_winner(study: str, winner: RankedTrial, settings: Settings) -> CheckpointRecord | None:
    """The record of the winner's newest checkpoint; None where it has none that can be read."""
    checkpoints = Checkpoints(f"{settings.studies_folder}/{study}/checkpoints", winner.identity)
    with suppress(CheckpointError, StorageError), checkpoints.open_newest() as folder:
        return read_record(folder)
    return None


def _add_commit(
    versions: Mapping[str, str], study: str, winner: RankedTrial, settings: Settings
) -> dict[str, str]:
    """The versions of the winner's checkpoint with the full version of the code from its run.

    A checkpoint has the release alone. A run of another release, such as the one that a newer driver has
    recorded again, says nothing of the commit.
    """
    found = dict(versions)
    with suppress(TrackingError, ConfigurationError):
        code = find_trial_run(settings.tracking_uri, f"{study}{winner.name}").code
        if code.partition("+")[0] == found.get("memtune"):
            found["memtune"] = code
    return found


def _read_tracking(corpus: str, settings: Settings) -> tuple[list[RegisteredVersion], int | None]:
    """The champions and how often the test split was read; nothing where the store does not answer."""
    try:
        versions = list_champions(settings.tracking_uri, corpus)
        return versions, count_test_accesses(settings.tracking_uri, corpus)
    except (TrackingError, ConfigurationError):
        return [], None


def _list_commands(
    study: str,
    corpus_name: str,
    winner: RankedTrial | None,
    registered: RegisteredVersion | None,
    corpus: Corpus | None,
) -> list[ShellCommand]:
    name = study.rpartition("-")[0]
    rows = [
        ("run the study again", f"memtune search {shlex.quote(name)}.toml"),
        ("show its values in a terminal", f"memtune study show {shlex.quote(study)}"),
        ("compare all trials of the corpus", f"memtune compare --corpus {shlex.quote(corpus_name)}"),
        ("write this report", f"memtune report {shlex.quote(study)} --out report.html"),
    ]
    model = registered.uri if registered else None
    if model is None and winner is not None:
        model = f"{study}{winner.name}"
    if model is not None:
        split = " --split test" if corpus is not None and "test" in corpus.manifest.splits else ""
        rows.insert(1, ("evaluate the best model", f"memtune evaluate {shlex.quote(model)}"))
        if split:
            rows.insert(2, ("read its test figure, once", f"memtune evaluate {shlex.quote(model)}{split}"))
    return [ShellCommand(purpose=purpose, command=command) for purpose, command in rows]
