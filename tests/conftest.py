"""A tiny corpus in a home of its own, and a study over it that samples small models.

Tests run side by side, one a core: torch takes one thread in each, and in the processes they start.
"""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest

from memtune.corpora import import_corpus
from memtune.settings import Settings

# Tests press Ctrl-C: a shell that starts pytest in the background has it, and what it starts, ignore that.
signal.signal(signal.SIGINT, signal.default_int_handler)

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
    places = ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI")
    for name in (*places, "RAY_ADDRESS"):
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
