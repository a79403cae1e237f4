"""The study that drivers are struck in: where it lies, and what is left of it."""

import json
from pathlib import Path

from memtune.corpora import import_corpus
from memtune.execution.comparison import champions, compare
from memtune.execution.settings import Settings
from memtune.search import Outcome
from tests.cluster.drivers import RayInstance, outcomes, prepared
from tests.conftest import SENTENCES, SPACE

__all__ = ["INTERVAL", "STUDY", "Place"]

INTERVAL = 340
"""Tokens between two checkpoints, which here are those of the reports: 300, and the rest of a batch."""
STUDY = """question = "Does a second layer help?"

corpus = "tiny"
spaces = ["space.toml"]
seed = {seed}

[training]
tokens = 900
report_every = 300

[sampler]
startup_trials = 3

[halving]
grace = 300
factor = 2

[budget]
trials = 6

[resources]
max_concurrent = 1
"""


class Place:
    """A home with the tiny corpus in it, and a study."""

    def __init__(self, folder: Path, ray: RayInstance, seed: int = 0) -> None:
        self.home, self.ray = folder / "home", ray
        self.environment = ray.environment | {"MEMTUNE_HOME": str(self.home)}
        self.settings = Settings.read(self.home)
        import_corpus("tiny", dict.fromkeys(("train", "valid", "test"), SENTENCES * 20), self.settings.store)
        (folder / "space.toml").write_text(SPACE)
        self.study = folder / "layers.toml"
        self.study.write_text(STUDY.format(seed=seed))

    def elsewhere(self, folder: Path) -> dict[str, str]:
        """What a driver has that shares the study's places and no home."""
        return self.environment | {
            "MEMTUNE_HOME": str(folder / "elsewhere"),
            "MEMTUNE_STORE": self.settings.store,
            "MEMTUNE_STUDIES": self.settings.studies,
            "MEMTUNE_PROPOSALS": self.settings.proposals,
            "MLFLOW_TRACKING_URI": self.settings.tracking,
        }

    def outcomes(self) -> list[Outcome]:
        return outcomes(self.study, self.settings)

    def checkpoints(self, identity: str) -> list[Path]:
        """Those of a trial, oldest first."""
        folder = Path(prepared(self.study, self.settings).checkpoints) / identity
        return sorted(path for path in folder.iterdir() if path.is_dir())

    def cut_off(self) -> dict[int, str]:
        """The newest checkpoint of each trial that a dead driver left open and that has one, by number."""
        index = Path(prepared(self.study, self.settings).checkpoints)
        left = [outcome for outcome in self.outcomes() if outcome.state == "running"]
        found = {each.number: index / each.identity / "latest.json" for each in left}
        return {number: json.loads(path.read_text())[0] for number, path in found.items() if path.exists()}

    def check_records(self) -> None:
        """MLflow tells of each trial what the study's own records tell, once, and of one champion."""
        ended = self.outcomes()
        rows = compare("tiny", settings=self.settings).rows
        assert sorted(row.trial for row in rows) == sorted(outcome.identity for outcome in ended)
        assert {row.state for row in rows} == {"finished"}
        assert {row.trial: row.tokens for row in rows} == {
            outcome.identity: max(outcome.curve) for outcome in ended
        }
        (champion,) = champions("tiny", self.settings)
        assert champion.version == 1
