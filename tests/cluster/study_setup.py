"""The study of the driver tests: its folder, its files, and checks of what it stored."""

import json
import shutil
from pathlib import Path

from memtune.api import run_search
from memtune.results.comparison import compare, find_champions
from memtune.search import StoredTrial
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.training.optimisation.matmul_backend import select_backend
from memtune.trial_state import TrialState
from tests.cluster.drivers import RayInstance, load_resolved_study, read_outcomes
from tests.conftest import SPACE_TOML, import_tiny_corpus

__all__ = [
    "CHECKPOINT_INTERVAL_TOKENS",
    "EARLY_STOPPING_TOML",
    "STUDY_TOML",
    "StudySetup",
    "describe_outcomes",
    "lengthen",
    "make_home",
    "run_undisturbed",
]

CHECKPOINT_INTERVAL_TOKENS = 340
"""Tokens between two checkpoints, one per report: 300, and the rest of a batch."""
EARLY_STOPPING_TOML = """[early_stopping]
kind = "successive_halving"
grace = 300
factor = 2
"""
STUDY_TOML = f"""question = "Does a second layer help?"

corpus = "tiny"
spaces = ["space.toml"]
seed = {{seed}}

[training]
tokens = 900
report_every = 300

[sampler]
startup_trials = 3

{EARLY_STOPPING_TOML}
[budget]
trials = 6

[resources]
max_concurrent = 1
"""


class StudySetup:
    """A home with the tiny corpus, and a study."""

    def __init__(self, folder: Path, ray: RayInstance, store: Path) -> None:
        """`store` is MLflow's file without trials."""
        self.home, self.ray = folder / "home", ray
        self.environment = ray.environment | {"MEMTUNE_HOME": str(self.home)}
        self.settings = make_home(self.home, store)
        (folder / "space.toml").write_text(SPACE_TOML)
        self.study_file = folder / "layers.toml"
        self.study_file.write_text(STUDY_TOML.format(seed=0))

    def build_environment_without_home(self, folder: Path) -> dict[str, str]:
        """The environment of a driver that shares the study's locations but has another home."""
        return self.environment | {
            "MEMTUNE_HOME": str(folder / "elsewhere"),
            "MEMTUNE_STORE": self.settings.corpus_store,
            "MEMTUNE_STUDIES": self.settings.studies_folder,
            "MEMTUNE_PROPOSALS": self.settings.study_database,
            "MLFLOW_TRACKING_URI": self.settings.tracking_uri,
        }

    def read_outcomes(self) -> list[StoredTrial]:
        return read_outcomes(self.study_file, self.settings)

    def list_checkpoints(self, identity: str) -> list[Path]:
        """The checkpoints of a trial, oldest first."""
        folder = Path(load_resolved_study(self.study_file, self.settings).checkpoint_root) / identity
        return sorted(path for path in folder.iterdir() if path.is_dir())

    def find_interrupted_checkpoints(self) -> dict[int, str]:
        """The newest checkpoint of each open trial that has one, by number, after the driver died."""
        index = Path(load_resolved_study(self.study_file, self.settings).checkpoint_root)
        open_trials = [outcome for outcome in self.read_outcomes() if outcome.state is TrialState.RUNNING]
        found = {each.number: index / each.identity / "latest.json" for each in open_trials}
        return {number: json.loads(path.read_text())[0] for number, path in found.items() if path.exists()}

    def check_records(self) -> None:
        """MLflow has each trial once, with the state and tokens of the study database, and one champion."""
        ended = self.read_outcomes()
        rows = compare("tiny", settings=self.settings).rows
        assert sorted(row.trial for row in rows) == sorted(outcome.identity for outcome in ended)
        assert {row.trial: row.state for row in rows} == {
            outcome.identity: outcome.state for outcome in ended
        }
        assert {row.trial: row.tokens for row in rows} == {
            outcome.identity: max(outcome.curve) for outcome in ended
        }
        (champion,) = find_champions("tiny", self.settings)
        assert champion.version == 1


def make_home(home: Path, store: Path) -> Settings:
    """A home with the corpus "tiny" and a copy of `store`, which is MLflow's file."""
    settings = Settings.from_environment(home)
    import_tiny_corpus(settings)
    shutil.copy(store, home / "mlflow.db")
    return settings


def lengthen(study_file: Path) -> None:
    """Make a trial longer than any test; its only report is at its end."""
    study_file.write_text(study_file.read_text().replace("900", "900_000_000").replace("300", "900_000_000"))


def run_undisturbed(study: Path, settings: Settings) -> list[StoredTrial]:
    """The trials of a study in this process, on the kernels of the present cache, as workers with it use."""
    select_backend.cache_clear()
    run_search(study, settings=settings, executor=InProcessExecutor())
    return read_outcomes(study, settings)


def describe_outcomes(outcomes: list[StoredTrial]) -> list[tuple[object, ...]]:
    """The trials without their numbers, which skip proposals that a kill interrupted."""
    return [(each.identity, each.state, each.value, each.curve, each.end) for each in outcomes]
