"""Checkpoints of a study's trials in shared storage: the newest whole one, and the one before.

Layout: `<study>/checkpoints/<identity>/latest.json` names the folders of the two newest checkpoints, newest
first. It is written after their files, so a checkpoint is read whole or not at all; each holds the digests of
its own files, so a damaged newest one is noticed and leaves the one before.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memtune.corpora import Corpus
from memtune.errors import CheckpointError
from memtune.storage import Folder
from memtune.training import AnyLearner, Report, read_checkpoint, restore_learner

__all__ = ["Checkpoints"]

log = logging.getLogger(__name__)
INDEX = "latest.json"
KEPT = 2


class Checkpoints:
    """The checkpoints of one trial."""

    def __init__(self, root: str, identity: str) -> None:
        """`root` is the study's folder of checkpoints; raises StorageError where it cannot be opened."""
        self._folder = Folder.at(root) / identity

    def save(self, learner: AnyLearner) -> None:
        """Store the learner's state as the newest checkpoint. On a StorageError the older ones stay."""
        name = f"{learner.tokens:012d}"
        with tempfile.TemporaryDirectory(prefix="memtune-checkpoint-") as scratch:
            learner.save(Path(scratch) / name)
            (self._folder / name).upload(Path(scratch) / name)
        known = [older for older in self._names() if older != name]
        self._folder.write_json(INDEX, [name, *known][:KEPT])
        for spent in known[KEPT - 1 :]:
            (self._folder / spent).delete()

    def restore(self, corpus: Corpus, device: str) -> AnyLearner | None:
        """The learner of the newest checkpoint that is whole, or None when there is none yet.

        Raises CheckpointError when there are checkpoints and none can be read.
        """
        if not self._names():
            return None
        with self.newest() as folder:
            return restore_learner(folder, corpus, device)

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
        problems = []
        with tempfile.TemporaryDirectory(prefix="memtune-checkpoint-") as scratch:
            for name in self._names():
                folder = Path(scratch) / name
                (self._folder / name).download(folder)
                try:
                    read_checkpoint(folder)
                except CheckpointError as error:
                    log.warning("checkpoint %s/%s is passed over: %s", self._folder, name, error)
                    problems.append(str(error))
                    continue
                yield folder
                return
        raise CheckpointError("; ".join([f"no whole checkpoint in {self._folder}", *problems]))

    def _names(self) -> list[str]:
        return [str(name) for name in self._folder.read_json(INDEX) or []]
