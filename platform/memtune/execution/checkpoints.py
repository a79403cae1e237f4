"""Checkpoints of a study's trials in shared storage: the newest whole one, and the one before.

Layout: `<study>/checkpoints/<identity>/latest.json` names the folders of the two newest checkpoints, newest
first, with the SHA-256 of every file. It is written after the files, so a checkpoint is read whole or not at
all, and a damaged newest one leaves the one before.
"""

import logging
import tempfile
from pathlib import Path

from memtune.corpora import Corpus
from memtune.errors import CheckpointError
from memtune.storage import Folder, sha256_of
from memtune.training import Learner
from memtune.values import Value

__all__ = ["Checkpoints"]

log = logging.getLogger(__name__)
KEPT = 2


class Entry(Value):
    """One stored checkpoint: its folder's name and the digests of its files."""

    name: str
    sha256: dict[str, str]


class Checkpoints:
    """The checkpoints of one trial."""

    def __init__(self, root: str, identity: str) -> None:
        """`root` is the study's folder of checkpoints; raises StorageError where it cannot be opened."""
        self._folder = Folder.at(root) / identity

    def save(self, learner: Learner) -> None:
        """Store the learner's state as the newest checkpoint. On a StorageError the older ones stay."""
        name = f"{learner.tokens:012d}"
        with tempfile.TemporaryDirectory(prefix="memtune-checkpoint-") as scratch:
            local = Path(scratch) / name
            learner.save(local)
            digests = {path.name: sha256_of(path) for path in sorted(local.iterdir())}
            (self._folder / name).upload(local)
        known = [entry for entry in self._index() if entry.name != name]
        kept = [Entry(name=name, sha256=digests), *known][:KEPT]
        self._folder.write_json("latest.json", [entry.model_dump() for entry in kept])
        for entry in known[KEPT - 1 :]:
            (self._folder / entry.name).delete()

    def restore(self, corpus: Corpus, device: str) -> Learner | None:
        """The learner of the newest checkpoint that is whole, or None when there is none yet.

        A damaged checkpoint is named in the log and the one before is used; CheckpointError when there are
        checkpoints and none can be read.
        """
        problems = []
        for entry in self._index():
            try:
                return self._read(entry, corpus, device)
            except CheckpointError as error:
                log.warning("checkpoint passed over: %s", error)
                problems.append(str(error))
        if problems:
            raise CheckpointError("; ".join(problems))
        return None

    def fetch(self, target: Path) -> Path:
        """Copy the newest whole checkpoint into `target` and return its folder.

        Raises CheckpointError when there is none.
        """
        for entry in self._index():
            folder = target / entry.name
            (self._folder / entry.name).download(folder)
            if not self._damage(entry, folder):
                return folder
        raise CheckpointError(f"no whole checkpoint in {self._folder}; train the trial again")

    def _index(self) -> list[Entry]:
        return [Entry.model_validate(entry) for entry in self._folder.read_json("latest.json") or []]

    def _read(self, entry: Entry, corpus: Corpus, device: str) -> Learner:
        with tempfile.TemporaryDirectory(prefix="memtune-checkpoint-") as scratch:
            local = Path(scratch)
            (self._folder / entry.name).download(local)
            damage = self._damage(entry, local)
            if damage:
                raise CheckpointError(damage)
            return Learner.restore(local, corpus, device)

    def _damage(self, entry: Entry, local: Path) -> str | None:
        for name, sha256 in entry.sha256.items():
            path = local / name
            if not path.exists():
                return f"{self._folder}/{entry.name}: {name} is missing"
            if sha256_of(path) != sha256:
                return f"{self._folder}/{entry.name}: {name} was altered or cut short"
        return None
