"""A checkpoint: a folder that holds all a trial needs to go on as if it had never stopped.

model.safetensors the weights, best.safetensors those of the best validation report, learner.safetensors the
optimiser, the random states, the state carried along a stream and what was summed since the last report,
learner.json the rest: configuration,
position, curve, and the digest of every file, so that an altered checkpoint is told from a whole one.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor

from memtune.corpora.store import Corpus
from memtune.errors import CheckpointError
from memtune.models.interface import Model
from memtune.tasks import build
from memtune.training.configuration import TrialConfig
from memtune.training.interval import IntervalRecord
from memtune.training.reports import Report
from memtune.training.weights import load_weights, read_tensors, write_tensors
from memtune.values import Value, digest

__all__ = [
    "Checkpoint",
    "Position",
    "Record",
    "check_origin",
    "load_best_model",
    "read_checkpoint",
    "read_record",
    "write_checkpoint",
]

SCHEMA_VERSION = 2
MODEL = "model.safetensors"
BEST = "best.safetensors"
LEARNER = "learner.safetensors"
RECORD = "learner.json"


class Position(Value):
    """Where in the data and in its updates a trial is."""

    epoch: int = 0
    """Epochs begun before this one."""
    batch: int = 0
    """Batches of this epoch behind it."""
    tokens: int = 0
    """Predicted tokens behind it."""
    updates: int = 0
    """Steps behind it."""


class Record(Value):
    """What learner.json tells."""

    config: TrialConfig
    identity: str
    corpus: str
    corpus_digest: str
    vocabulary_size: int
    position: Position
    curve: tuple[Report, ...]
    scaler: dict[str, float] | None
    versions: dict[str, str]
    seconds: float | None = None
    """Spent training and evaluating so far; up to the last report where a record of schema 1 tells none."""
    interval: IntervalRecord | None = None
    """How far the interval to the next report has come; None at a report."""


@dataclass(frozen=True)
class Checkpoint:
    """What the files of a checkpoint hold, in memory."""

    record: Record
    model: dict[str, Tensor]
    best: dict[str, Tensor] | None
    learner: dict[str, Tensor]


def write_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint whole or not at all: a sibling of the folder is filled and takes its place."""
    filled = folder.with_name(f".{folder.name}.writing")
    try:
        shutil.rmtree(filled, ignore_errors=True)  # of a writer that was killed
        filled.mkdir(parents=True)
        _fill(checkpoint, filled)
        _put_in_place(filled, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(filled, ignore_errors=True)
        raise CheckpointError(f"cannot write a checkpoint to {folder}: {error}") from error


def _fill(checkpoint: Checkpoint, folder: Path) -> None:
    tensors = {MODEL: checkpoint.model, LEARNER: checkpoint.learner}
    if checkpoint.best is not None:
        tensors[BEST] = checkpoint.best
    for name, group in tensors.items():
        write_tensors(group, folder / name)
    record = checkpoint.record.model_dump(mode="json")
    files = {name: _file_digest(folder / name) for name in sorted(tensors)}
    content = {"schema_version": SCHEMA_VERSION, "record": record, "files": files}
    sealed = {"digest": digest(content), **content}
    (folder / RECORD).write_text(json.dumps(sealed, indent=1) + "\n", encoding="utf-8")


def _put_in_place(filled: Path, folder: Path) -> None:
    """Move a filled folder to its place; a checkpoint already there steps aside until that has happened."""
    aside = _aside(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder, aside)
    os.replace(filled, folder)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.aside")


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder; a CheckpointError names what is missing, truncated, altered or too new.

    A checkpoint that a writer killed half-way had put aside is read from there.
    """
    folder = _standing(folder)
    content = _read_content(folder)
    for name, expected in content["files"].items():
        _check_file(folder / name, expected)
    best = read_tensors(folder / BEST) if BEST in content["files"] else None
    return Checkpoint(
        _record(content, folder), read_tensors(folder / MODEL), best, read_tensors(folder / LEARNER)
    )


def read_record(folder: Path) -> Record:
    """What the checkpoint in a folder tells of itself, its tensors left unread; raises as read_checkpoint."""
    folder = _standing(folder)
    return _record(_read_content(folder), folder)


def _standing(folder: Path) -> Path:
    """The folder, or where a writer that was killed half-way had put its checkpoint aside."""
    return _aside(folder) if not folder.exists() and _aside(folder).exists() else folder


def _record(content: dict[str, Any], folder: Path) -> Record:
    try:
        return Record.model_validate(content["record"])
    except ValidationError as error:
        raise CheckpointError(f"{folder / RECORD} makes no sense: {error}") from None


def check_origin(record: Record, corpus: Corpus, folder: Path) -> None:
    """CheckpointError unless the record in a folder is of this corpus and of the trial it says."""
    if record.corpus_digest != corpus.digest:
        raise CheckpointError(
            f'the checkpoint in {folder} was trained on corpus "{record.corpus}" with digest '
            f'{record.corpus_digest[:12]}, not on "{corpus.name}" with {corpus.digest[:12]}; open that'
        )
    if record.identity != (now := record.config.identity(corpus.digest)):
        raise CheckpointError(
            f"{folder} holds trial {record.identity}, but its configuration is now that of "
            f"{now}; it was saved by another version of memtune"
        )


def load_best_model(folder: Path) -> Model:
    """The model of a checkpoint with the weights of its best validation report."""
    checkpoint = read_checkpoint(folder)
    if checkpoint.best is None:
        raise CheckpointError(f"the trial of {folder} has no validation report yet; train it further")
    config, vocabulary_size = checkpoint.record.config, checkpoint.record.vocabulary_size
    model = build(config.task, config.model, vocabulary_size, seed=0)
    load_weights(model, checkpoint.best, folder / BEST)
    return model


def _read_content(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    try:
        sealed = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"no checkpoint in {folder}: cannot read {RECORD}: {error.strerror}") from None
    except ValueError:
        raise CheckpointError(f"{path} is truncated or altered; resume from an older checkpoint") from None
    if not isinstance(sealed, dict) or not isinstance(version := sealed.get("schema_version"), int):
        raise CheckpointError(f"{path} is not the record of a checkpoint")
    if version > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema {version}, this memtune reads up to {SCHEMA_VERSION}; update it"
        )
    content = {name: value for name, value in sealed.items() if name != "digest"}
    if sealed.get("digest") != digest(content):
        raise CheckpointError(f"{path} is altered; resume from an older checkpoint")
    return content


def _check_file(path: Path, expected: str) -> None:
    if not path.exists():
        raise CheckpointError(f"{path} is missing; resume from an older checkpoint")
    if _file_digest(path) != expected:
        raise CheckpointError(f"{path} is truncated or altered; resume from an older checkpoint")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
