"""Checkpoints of a study's trials in shared storage: the two newest ones.

Layout: the index `<study>/checkpoints/<identity>/latest.json` names the folders of the two newest
checkpoints, newest first. It is written after their files, so it names complete checkpoints only. Each
checkpoint holds the digests of its files: where the newest one is damaged or missing, the one before is used,
and where the index is damaged, the newest whole one.
Each save has a folder of its own, named after the tokens seen and a random number: one that fails damages no
earlier one, also where both saw the same tokens. A worker whose heartbeat expired may still write: it changes
no file of the worker that replaced it, and never enters an older checkpoint before a newer one.
"""

import logging
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from memtune.corpora import Corpus
from memtune.errors import CheckpointError, StorageError
from memtune.number_format import format_count
from memtune.storage.folder import Folder
from memtune.storage.local_files import hold_lock, open_scratch_folder
from memtune.training import (
    AnyTrainer,
    Checkpoint,
    Report,
    find_best_report,
    read_checkpoint,
    restore_trainer,
    write_checkpoint,
)
from memtune.usage import UsageMeter
from memtune.values import parse_json

log = logging.getLogger(__name__)
INDEX_FILE, LOCK_FILE = "latest.json", "lock"
CHECKPOINT_NAME_PATTERN = re.compile(r"\d{1,20}-[0-9a-f]{1,32}")
"""Names of checkpoints' folders, which alone are read: none leads out of the trial's folder."""
IDENTITY_PATTERN = re.compile(r"[0-9a-f]{16}")
MAX_KEPT_CHECKPOINTS = 2


class Checkpoints:
    """The checkpoints of one trial."""

    def __init__(self, root: str, identity: str) -> None:
        """`root` is the study's folder of checkpoints; raises StorageError where it cannot be opened."""
        self._folder = Folder.open(root) / identity
        self._damaged_names: set[str] = set()
        self._is_index_damaged = False
        self.remarks: list[str] = []
        """Which checkpoints were skipped and why, and from which one the trial resumes."""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """In the block, no other process holds the trial, where its folder is local; another one waits.

        After the block, unless it raises, what killed processes left there is deleted.
        """
        with ExitStack() as held:
            if self._folder.local_path:
                path, user = self._folder.local_path / LOCK_FILE, f"another training in {self._folder}"
                with self._folder.translate_errors("lock"):
                    self._folder.create()
                    held.enter_context(hold_lock(path, user))
            yield
            if self._folder.local_path:
                self.delete_leftovers()

    def save(self, trainer: AnyTrainer) -> None:
        """Store the trainer's state; raises the errors of `store`."""
        self.store(trainer.make_checkpoint())

    def store(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint. Keeps the two with the most tokens, without damaged ones.

        After a StorageError the storage holds the earlier checkpoints only.
        """
        name = f"{checkpoint.record.position.tokens:012d}-{uuid.uuid4().hex[:8]}"
        with open_scratch_folder() as scratch:
            write_checkpoint(checkpoint, scratch / name)
            try:
                (self._folder / name).upload(scratch / name)
                others = [other for other in self._read_index() if other not in self._damaged_names]
                kept = sorted([name, *others], key=parse_tokens, reverse=True)[:MAX_KEPT_CHECKPOINTS]
                self._folder.write_json(INDEX_FILE, kept)
            except StorageError:
                with suppress(StorageError):  # it would hide the first error
                    (self._folder / name).delete()
                raise
        try:
            self._delete_obsolete(kept)
        except StorageError as error:
            log.warning("an obsolete checkpoint remains: %s", error)

    def read(self, max_tokens: int | None = None) -> Checkpoint:
        """The newest undamaged checkpoint. Raises CheckpointError when there is none.

        One whose best report has more than `max_tokens` counts as damaged: a worker that outlived its driver
        trained past the end of the trial.
        """
        return self._read_newest(max_tokens)[1]

    def exist(self) -> bool:
        """Whether the trial has a checkpoint."""
        return bool(self._read_index())

    def _delete_obsolete(self, kept: list[str]) -> None:
        """Delete damaged checkpoints and those that are older than all in the index.

        Others stay: another worker may be about to enter them. So do files that another one is writing.
        """
        for name in filter(is_checkpoint_name, self._folder.list_names()):
            if name in self._damaged_names or parse_tokens(name) < parse_tokens(kept[-1]):
                (self._folder / name).delete()

    def delete_leftovers(self) -> None:
        """Delete all that the index does not name, which killed workers left; for a trial that has ended.

        What cannot be deleted is named in a warning.
        """
        try:
            kept = self._read_index()
            for name in self._folder.list_names():
                if name not in (INDEX_FILE, LOCK_FILE, *kept):
                    (self._folder / name).delete()
        except StorageError as error:
            log.warning("files of killed workers remain: %s", error)

    def restore(self, corpus: Corpus, device: str, meter: UsageMeter | None = None) -> AnyTrainer | None:
        """The newest undamaged checkpoint's trainer; None without one, CheckpointError if all are damaged."""
        if not self.exist():
            return None
        name, checkpoint = self._read_newest()
        trainer = restore_trainer(checkpoint, corpus, device, meter)
        self.remarks.append(f"resumes from checkpoint {name}")
        return trainer

    def read_curve(self) -> tuple[Report, ...]:
        """The reports of the newest undamaged checkpoint; none when there is no checkpoint."""
        return self.read().record.curve if self.exist() else ()

    def _read_newest(self, max_tokens: int | None = None) -> tuple[str, Checkpoint]:
        """The newest undamaged checkpoint with its name; those before it are logged and skipped."""
        self.remarks = []
        with open_scratch_folder() as scratch:
            for name in self._read_index():
                try:
                    self._download(name, scratch / name)
                    checkpoint = read_checkpoint(scratch / name)
                    _check_best_report(checkpoint, max_tokens)
                except CheckpointError as error:
                    log.warning("checkpoint %s/%s is skipped: %s", self._folder, name, error)
                    self.remarks.append(f"checkpoint {name} is skipped: {error}")
                    self._damaged_names.add(name)
                else:
                    return name, checkpoint
        raise CheckpointError("; ".join([f"no undamaged checkpoint in {self._folder}", *self.remarks]))

    def _download(self, name: str, target: Path) -> None:
        """Download a checkpoint. Raises CheckpointError when its folder is missing."""
        try:
            (self._folder / name).download(target)
        except StorageError:
            if (self._folder / name).list_names():
                raise
            raise CheckpointError(f"{self._folder}/{name} is missing") from None

    def _read_index(self) -> list[str]:
        """The checkpoints that the index names, newest first; where it is damaged, all that are there."""
        data = self._folder.read_document(INDEX_FILE)
        try:
            index = [] if data is None else parse_json(data)
        except ValueError:
            index = None
        if isinstance(index, list) and all(is_checkpoint_name(name) for name in index):
            return index
        found = sorted(filter(is_checkpoint_name, self._folder.list_names()), key=parse_tokens, reverse=True)
        if not self._is_index_damaged:  # said once
            used = "the newest whole checkpoint there is used" if found else "no checkpoint is there"
            log.warning("%s/%s is damaged: %s", self._folder, INDEX_FILE, used)
            self._is_index_damaged = True
        return found


def list_trained(root: str) -> list[str]:
    """The identities of a study's trials that have checkpoints. Raises StorageError."""
    return [*filter(IDENTITY_PATTERN.fullmatch, Folder.open(root).list_names())]


def warn_of_lost_trials(study: str, trained: Iterable[str], stored: Iterable[str]) -> None:
    """Name the identities with checkpoints that the study database does not hold.

    A driver stores a trial before its first checkpoint, so `trained` is listed before `stored` is read.
    """
    if lost := sorted({*trained} - {*stored}):
        log.warning(
            "study %s has checkpoints of %s that its study database lacks (%s%s): restore the database if it "
            "was truncated; they may also belong to another study database",
            study,
            format_count(len(lost), "trial"),
            ", ".join(lost[:3]),
            ", ..." if len(lost) > 3 else "",
        )


def _check_best_report(checkpoint: Checkpoint, max_tokens: int | None) -> None:
    """Raise CheckpointError when the best weights belong to a report with more tokens than allowed."""
    best = find_best_report(checkpoint.record.curve)
    if max_tokens is not None and best is not None and best.tokens > max_tokens:
        raise CheckpointError(
            f"its best weights are of {best.tokens:,} tokens, and the trial was stopped at {max_tokens:,}"
        )


def is_checkpoint_name(name: object) -> bool:
    """Whether this is the name of a checkpoint's folder."""
    return isinstance(name, str) and CHECKPOINT_NAME_PATTERN.fullmatch(name) is not None


def parse_tokens(name: str) -> int:
    """The tokens in the name of a checkpoint's folder."""
    return int(name.partition("-")[0])
