"""A tiny corpus in a temporary home, and a study on it that samples small models.

Tests run in parallel, one per core: torch uses one thread in each test and in its processes.
"""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tables are as wide as their rows, whatever the width of the terminal that started the tests.
os.environ.pop("COLUMNS", None)

from pathlib import Path

import hypothesis
import pytest

from memtune.corpora import import_corpus
from memtune.settings import Settings

# Tests send SIGINT, which a shell makes background processes and their children ignore.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of one example says little on a machine that other processes use.
hypothesis.settings.register_profile("memtune", deadline=None)
hypothesis.settings.load_profile("memtune")

SPACE_TOML = """
[model]
family = "lstm"
width = { choice = [4, 8] }
layers = { int = [1, 2] }

[training.optimiser]
kind = "sgd"
learning_rate = { float = [0.1, 1.0], log = true }
"""
STUDY_TOML = """question = "Does a second layer help?"

corpus = "tiny"
spaces = ["space.toml"]

[training]
tokens = 900
report_every = 300

[budget]
trials = 4
"""
SENTENCES = [
    ["the", "dog", "sees", "a", "cat"],
    ["a", "cat", "sleeps"],
    ["the", "cat", "and", "the", "dog", "eat"],
]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    locations = ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI")
    for name in (*locations, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEMTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "cache"))
    found = Settings.from_environment()
    import_corpus("tiny", dict.fromkeys(("train", "valid", "test"), SENTENCES * 20), found.corpus_store)
    return found


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    (tmp_path / "space.toml").write_text(SPACE_TOML)
    path = tmp_path / "layers.toml"
    path.write_text(STUDY_TOML)
    return path
