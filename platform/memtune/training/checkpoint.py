"""A checkpoint: a folder with the complete state of a trial, from which it resumes exactly.

model.safetensors holds the weights and best.safetensors the weights of the best validation report.
learner.safetensors holds the optimiser state, the random states, the recurrent state of a stream and the sums
since the last report. learner.json holds the configuration, the position, the curve, and the digest of every
file, which detects altered files.

A checkpoint may come from storage that other users write to. Only regular files of bounded size inside the
folder are read, and every problem with their content raises CheckpointError.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from memtune.corpora.store.corpus import Corpus
from memtune.errors import CheckpointError, ConfigurationError, StorageError, explain_system_error
from memtune.models.architecture import Model
from memtune.tasks import build_task_model
from memtune.training.training_loop import IntervalRecord, Position
from memtune.training.trial_config import TrialConfig, identify
from memtune.training.trial_report import Report
from memtune.training.weight_files import (
    check_size,
    check_tensor_file,
    hash_tensor_file,
    load_weights,
    read_small_file,
    read_tensors,
    write_tensors,
)
from memtune.usage import Usage
from memtune.values import Value, digest, parse

SCHEMA_VERSION = 3
TensorFile = Literal["model.safetensors", "best.safetensors", "learner.safetensors"]
MODEL_FILE: TensorFile = "model.safetensors"
BEST_WEIGHTS_FILE: TensorFile = "best.safetensors"
TRAINER_STATE_FILE: TensorFile = "learner.safetensors"
RECORD_FILE = "learner.json"


class CheckpointRecord(Value):
    """The content of learner.json without the digests."""

    config: TrialConfig
    identity: str
    corpus: str
    corpus_digest: str
    vocabulary_size: int = Field(ge=1)
    position: Position
    curve: tuple[Report, ...]
    scaler: dict[str, float] | None = None
    versions: dict[str, str]
    """Of the worker that wrote it, and its machine; earlier checkpoints name torch alone."""
    seconds: float | None = None
    """Seconds of training and evaluation so far; None in schema 1 and for models that count."""
    interval: IntervalRecord | None = None
    """State of the interval since the last report; None directly after a report."""
    usage: Usage = Usage()
    """What the trial has used so far; nothing in earlier schemas."""

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of training and evaluation so far; without `seconds` those of the last report."""
        return self.seconds or (self.curve[-1].seconds if self.curve else 0.0)

    @property
    def parameter_count(self) -> int:
        """The parameters of the trial's model."""
        return self.config.parameter_count(self.vocabulary_size)


class _SealedRecord(Value):
    """The content of learner.json: the record, the digests of the files, and a digest of both."""

    digest: str
    schema_version: int = Field(ge=1, le=SCHEMA_VERSION)
    record: dict[str, Any]
    files: dict[TensorFile, str]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint's files, in memory."""

    record: CheckpointRecord
    model_weights: dict[str, Tensor]
    best_weights: dict[str, Tensor] | None
    trainer_state: dict[str, Tensor]

    def check_fit(self, corpus: Corpus) -> None:
        """Raise CheckpointError for another corpus, and for weights that do not fit the configuration."""
        record = self.record
        if record.corpus_digest != corpus.digest:
            raise CheckpointError(
                f'trial {record.identity} was trained on corpus "{record.corpus}" with digest '
                f'{record.corpus_digest[:12]}, not on "{corpus.name}" with {corpus.digest[:12]}; '
                "open the former"
            )
        if record.config.model.is_trained_by_gradient:
            check_size(record.parameter_count, self.model_weights, MODEL_FILE)

    def build_best_model(self) -> Model:
        """The model with the weights of the best validation report.

        Raises CheckpointError before the first validation report, and for weights of another configuration.
        """
        record = self.record
        if self.best_weights is None:
            raise CheckpointError(f"trial {record.identity} has no validation report yet; train it further")
        check_size(record.parameter_count, self.best_weights, BEST_WEIGHTS_FILE)
        model = build_task_model(record.config.task, record.config.model, record.vocabulary_size, seed=0)
        load_weights(model, self.best_weights, BEST_WEIGHTS_FILE)
        return model


def join_groups(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Groups of named tensors as one dictionary with names `group/name`."""
    return {f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()}


def split_groups(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The groups that `join_groups` joined, without empty groups."""
    groups: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        group, _, name = path.partition("/")
        groups.setdefault(group, {})[name] = tensor
    return groups


def write_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint to a folder, its record last. Raises StorageError."""
    tensors = {MODEL_FILE: checkpoint.model_weights, TRAINER_STATE_FILE: checkpoint.trainer_state}
    if checkpoint.best_weights is not None:
        tensors[BEST_WEIGHTS_FILE] = checkpoint.best_weights
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, group in tensors.items():
            write_tensors(group, folder / name)
        files = {name: hash_tensor_file(folder / name) for name in sorted(tensors)}
        record = checkpoint.record.model_dump(mode="json")
        content = {"schema_version": SCHEMA_VERSION, "record": record, "files": files}
        sealed = {"digest": digest(content), **content}
        (folder / RECORD_FILE).write_text(json.dumps(sealed, indent=1) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:  # SafetensorError has the system's error as text alone
        raise StorageError(
            f"cannot write a checkpoint to {folder.parent}: {explain_system_error(error)}"
        ) from error


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in a folder; raises CheckpointError for missing, truncated, altered or newer files."""
    sealed = _read_sealed_record(folder)
    for name, expected in sealed.files.items():
        check_tensor_file(folder / name)
        if hash_tensor_file(folder / name) != expected:
            raise CheckpointError(f"{folder / name} is truncated or altered; resume from an older checkpoint")
    best = read_tensors(folder / BEST_WEIGHTS_FILE) if BEST_WEIGHTS_FILE in sealed.files else None
    return Checkpoint(
        _parse_record(sealed, folder),
        read_tensors(folder / MODEL_FILE),
        best,
        read_tensors(folder / TRAINER_STATE_FILE),
    )


def _parse_record(sealed: _SealedRecord, folder: Path) -> CheckpointRecord:
    """The record. Raises CheckpointError for other content, and for the identity of another trial."""
    try:
        record: CheckpointRecord = parse(CheckpointRecord, sealed.record, "record")
    except ConfigurationError as error:
        path = folder / RECORD_FILE
        raise CheckpointError(
            f"{path} is not the record of a trial of this version of memtune: {error}"
        ) from None
    if record.identity != (stored := identify(sealed.record["config"], record.corpus_digest)):
        raise CheckpointError(
            f"{folder} holds trial {record.identity}, but its configuration has identity "
            f"{stored}; resume it with the version of memtune that saved it"
        )
    return record


def _read_sealed_record(folder: Path) -> _SealedRecord:
    path = folder / RECORD_FILE
    try:
        content = json.loads(read_small_file(path))
        _check_schema(content, path)
        sealed = _SealedRecord.model_validate(content)
        unsealed = {name: value for name, value in content.items() if name != "digest"}
        if sealed.digest != digest(unsealed):
            raise CheckpointError(f"{path} is altered; resume from an older checkpoint")
    except ValidationError:
        raise CheckpointError(f"{path} is not the record of a checkpoint") from None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, integers of 4,301 digits; deeply nested JSON
        raise CheckpointError(f"{path} is truncated or altered; resume from an older checkpoint") from None
    if not {MODEL_FILE, TRAINER_STATE_FILE} <= sealed.files.keys():
        raise CheckpointError(f"{path} lacks the digest of a file; resume from an older checkpoint")
    return sealed


def _check_schema(content: Any, path: Path) -> None:
    if not isinstance(content, dict) or not isinstance(version := content.get("schema_version"), int):
        raise CheckpointError(f"{path} is not the record of a checkpoint")
    if version > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema {version}, this memtune reads up to {SCHEMA_VERSION}; update memtune"
        )
