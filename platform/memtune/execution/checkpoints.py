"""Checkpoints of a study's trials in shared storage: the newest whole one, and the one before.

Layout: `<study>/checkpoints/<identity>/latest.json` names the folders of the two newest checkpoints, newest
first. It is written after their files, so a checkpoint is read whole or not at all; each holds the digests of
its own files, so a damaged newest one is noticed and leaves the one before. A folder is named after the
tokens seen and its writer: should a worker that was taken for dead go on writing, it touches no file of the
one that took its place, and never puts an older checkpoint before a newer one.
"""

import logging
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memtune.corpora import Corpus
from memtune.errors import CheckpointError, StorageError
from memtune.storage import Folder
from memtune.training import AnyLearner, Report, read_checkpoint, restore_learner

__all__ = ["Checkpoints"]

log = logging.getLogger(__name__)
INDEX = "latest.json"
NAME = re.compile(r"\d{1,20}-[0-9a-f]{1,32}")
"""A folder in the trial's own; anything else an index could name might lie elsewhere."""
KEPT = 2


class Checkpoints:
    """The checkpoints of one trial."""

    def __init__(self, root: str, identity: str) -> None:
        """`root` is the study's folder of checkpoints; raises StorageError where it cannot be opened."""
        self._folder = Folder.at(root) / identity
        self._writer = uuid.uuid4().hex[:8]
        self._damaged: set[str] = set()
        self.remarks: list[str] = []
        """Which checkpoints were passed over and why, and from which one the trial goes on."""

    def save(self, learner: AnyLearner) -> None:
        """Store the learner's state; the two checkpoints furthest on are kept, damaged ones are not.

        On a StorageError the older ones stay, and nothing else.
        """
        name = f"{learner.tokens:012d}-{self._writer}"
        with tempfile.TemporaryDirectory(prefix="memtune-checkpoint-") as scratch:
            learner.save(Path(scratch) / name)
            self._sweep(self._store(Path(scratch) / name))

    def _store(self, checkpoint: Path) -> list[str]:
        """Upload a checkpoint and enter it into the index; those that are kept."""
        name = checkpoint.name
        try:
            (self._folder / name).upload(checkpoint)
            others = [other for other in self._names() if other != name and other not in self._damaged]
            kept = sorted([name, *others], key=tokens_seen, reverse=True)[:KEPT]
            self._folder.write_json(INDEX, kept)
            return kept
        except StorageError:
            with suppress(StorageError):  # which would hide why
                (self._folder / name).delete()
            raise

    def _sweep(self, kept: list[str]) -> None:
        """Delete what is no checkpoint any more, half-written ones of killed workers included.

        One further on than those kept is another worker's, about to enter the index.
        """
        for name in self._folder.names():
            if name[:1].isdigit() and name not in kept and tokens_seen(name) <= tokens_seen(kept[0]):
                (self._folder / name).delete()

    def restore(self, corpus: Corpus, device: str) -> AnyLearner | None:
        """The learner of the newest checkpoint that is whole, or None when there is none yet.

        Raises CheckpointError when there are checkpoints and none can be read.
        """
        if not self._names():
            return None
        with self.newest() as folder:
            learner = restore_learner(folder, corpus, device)
            self.remarks.append(f"goes on from checkpoint {folder.name}")
            return learner

    def curve(self) -> tuple[Report, ...]:
        """The reports of the newest checkpoint that is whole; none when there is no checkpoint."""
        if not self._names():
            return ()
        with self.newest() as folder:
            return read_checkpoint(folder).record.curve

    @contextmanager
    def newest(self) -> Iterator[Path]:
        """A local copy of the newest checkpoint that is whole, for the time of the block.

        A damaged one is named in the log and passed over. Raises CheckpointError when none is whole.
        """
        self.remarks = []
        with tempfile.TemporaryDirectory(prefix="memtune-checkpoint-") as scratch:
            for name in self._names():
                folder = Path(scratch) / name
                (self._folder / name).download(folder)
                try:
                    read_checkpoint(folder)
                except CheckpointError as error:
                    log.warning("checkpoint %s/%s is passed over: %s", self._folder, name, error)
                    self.remarks.append(f"checkpoint {name} is passed over: {error}")
                    self._damaged.add(name)
                    continue
                yield folder
                return
        raise CheckpointError("; ".join([f"no whole checkpoint in {self._folder}", *self.remarks]))

    def _names(self) -> list[str]:
        names = [str(name) for name in self._folder.read_json(INDEX) or []]
        for name in names:
            if not NAME.fullmatch(name):
                raise CheckpointError(f"{self._folder}/{INDEX} names {name}, which is no checkpoint")
        return names


def tokens_seen(name: str) -> int:
    """The tokens that a checkpoint's folder is named after."""
    return int(name.partition("-")[0])
