"""A tiny corpus in a temporary home, and a study on it that samples small models.

Tests run in parallel, one per core: torch uses one thread in each test and in its processes.
"""

import atexit
import gc
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Each of the processes that tests start would compile memtune again, for half a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tables are as wide as their rows, whatever the width of the terminal that started the tests.
os.environ.pop("COLUMNS", None)

from pathlib import Path

import hypothesis
import pytest
from filelock import FileLock
from sqlalchemy import Engine, event

from memtune.corpora import import_corpus
from memtune.settings import Settings
from memtune.storage.uris import make_sqlite_uri

# Each worker of each run would compile all tests again, with pytest's assertions, for 12 seconds.
sys.dont_write_bytecode = False
# Collection makes a million objects that stay. It takes a quarter longer if they are looked at meanwhile.
gc.disable()
# At its end, Python would go through all objects for seconds.
atexit.register(gc.freeze)

# Tests send SIGINT and SIGHUP, which shells and nohup make background processes and their children ignore.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# This process does not wait for the disk, which would take half of the time of many tests; no power fails.
os.fsync = lambda fd: None


@event.listens_for(Engine, "connect")
def leave_disk(connection: object, _record: object) -> None:
    """Let a connection to a sqlite file return before its data is on the disk."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.hookimpl(trylast=True)  # after the tests that are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that wait for processes to all workers but one, which keeps the processor busy.

    With worksteal each worker begins with an equal part of the list.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers < 3:
        return
    waiting = [item for item in items if item.get_closest_marker("cluster")]
    others = [item for item in items if not item.get_closest_marker("cluster")]
    modules = list(dict.fromkeys(item.path for item in waiting))
    items.clear()
    for worker in range(workers - 1):
        own = modules[worker :: workers - 1]
        begun = [item for item in waiting if item.path in own]
        room = max(0, (len(waiting) + len(others)) // workers - len(begun))
        items += [*begun, *others[:room]]
        others = others[room:]
    items += others


def pytest_collection_finish() -> None:
    """Collect garbage of tests, and never look at their modules."""
    gc.enable()
    gc.freeze()


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


@contextmanager
def open_home(folder: Path, store: Path | None = None) -> Iterator[Settings]:
    """The settings of a home below `folder`, which is that of the block's environment.

    A copy of `store`, which is MLflow's file, is put into it before the block.
    """
    locations = ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI")
    with pytest.MonkeyPatch.context() as patch:
        for name in (*locations, "RAY_ADDRESS"):
            patch.delenv(name, raising=False)
        patch.setenv("MEMTUNE_HOME", str(folder / "home"))
        patch.setenv("MEMTUNE_CACHE", str(folder / "cache"))
        settings = Settings.from_environment()
        if store is not None:
            settings.home.mkdir(exist_ok=True)
            shutil.copyfile(store, settings.home / "mlflow.db")
        yield settings


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder of all workers of a run, which the first one fills."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= name
    with FileLock(f"{folder}.lock"):
        if not (made := folder.with_suffix(".made")).exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def import_tiny_corpus(settings: Settings) -> None:
    """The corpus "tiny": the same sentences in each split."""
    import_corpus("tiny", dict.fromkeys(("train", "valid", "test"), SENTENCES * 20), settings.corpus_store)


def write_study(folder: Path) -> Path:
    """The file of the study "layers" over four trials."""
    (folder / "space.toml").write_text(SPACE_TOML)
    path = folder / "layers.toml"
    path.write_text(STUDY_TOML)
    return path


@pytest.fixture
def settings(tmp_path: Path, empty_store: Path, tiny_corpora: Path) -> Iterator[Settings]:
    """A home with the corpus "tiny" and without trials."""
    with open_home(tmp_path, empty_store) as found:
        shutil.copytree(tiny_corpora, found.corpus_store)
        yield found


@pytest.fixture(scope="module")
def module_settings(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path, tiny_corpora: Path
) -> Iterator[Settings]:
    """A home with the corpus "tiny", for all tests of a module."""
    with open_home(tmp_path_factory.mktemp("module"), empty_store) as found:
        shutil.copytree(tiny_corpora, found.corpus_store)
        yield found


@pytest.fixture(scope="session")
def tiny_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the corpus "tiny", whose import takes longer than all that some tests do with it."""

    def make(folder: Path) -> None:
        with open_home(folder) as found:
            import_tiny_corpus(found)

    return make_once(tmp_path_factory, "corpora", make) / "home" / "corpora"


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with MLflow's empty tables, whose creation takes seconds."""
    from memtune.tracking.mlflow_connection import connect

    return make_once(tmp_path_factory, "store", lambda folder: connect(make_sqlite_uri(folder))) / "mlflow.db"


@pytest.fixture(scope="module")
def without_report() -> Iterator[None]:
    """Studies end without their report, half of their time; tests of results and reports check it."""
    from memtune import api

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "_record_report", lambda study, view, recorder: None)
        yield


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    return write_study(tmp_path)
