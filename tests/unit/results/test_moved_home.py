"""A home is a folder that can be moved: nothing in it holds its path."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service import utils as tracking_service_utils

from memtune.api import run_search
from memtune.results.comparison import compare
from memtune.results.loaded_models import load
from memtune.results.model_evaluation import evaluate
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import link_corpora
from tests.conftest import import_tiny_corpus, open_home, write_study

pytestmark = pytest.mark.usefixtures("without_report")

AWKWARD_NAME = "50%41 done? #1 é à"
"""Of a folder: each of these characters means something in a URI, and %41 is a letter there."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    """The settings of a home with a study of three of its four trials, before it is moved."""
    folder = tmp_path_factory.mktemp("moved") / AWKWARD_NAME
    folder.mkdir()
    with open_home(folder, empty_store) as settings:
        import_tiny_corpus(settings)
        run_search(write_study(folder), {"budget.trials": 3}, settings=settings, executor=InProcessExecutor())
        yield settings


@pytest.fixture(scope="module")
def moved(original: Settings) -> Iterator[Settings]:
    """The settings of the home at its new place."""
    place = original.home.parent / "elsewhere" / "home"
    shutil.move(original.home, place)
    # As in a new process: MLflow remembers the folder of each run.
    tracking_service_utils._artifact_repos_cache.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMTUNE_HOME", str(place))
        yield Settings.from_environment()


def test_a_moved_home_evaluates_compares_links_and_resumes(moved: Settings, original: Settings) -> None:
    assert compare("tiny", settings=moved).rows[0].place == 1
    assert [pages.corpus for pages in link_corpora(moved.tracking_uri)] == ["tiny"]
    assert evaluate("models:/tiny@champion", settings=moved).metrics.tokens
    assert evaluate("layers#0", settings=moved).metrics.tokens
    assert load("models:/tiny@champion", settings=moved).vocabulary
    resumed = run_search(
        original.home.parent / "layers.toml",
        {"budget.trials": 4},
        settings=moved,
        executor=InProcessExecutor(),
        resume=True,
    )
    assert len(resumed.outcomes) == 4
    assert len(compare("tiny", settings=moved).rows) == 4
    assert not original.home.exists()


def test_a_home_is_where_it_was_named_whatever_its_path_holds(moved: Settings, original: Settings) -> None:
    """Nothing is next to it, neither under its quoted name nor under a part of its name."""
    folder = original.home.parent
    assert [path.name for path in folder.parent.iterdir()] == [AWKWARD_NAME]
    files = {"mlflow.db", "proposals.log", "corpora", "studies", "artifacts"}
    assert files <= {path.name for path in moved.home.iterdir()}
    assert {path.name for path in folder.iterdir()} == {"cache", "elsewhere", "layers.toml", "space.toml"}


def test_no_file_of_a_home_holds_the_path_of_the_home(moved: Settings, original: Settings) -> None:
    old = str(original.home).encode()
    holding = [
        str(path.relative_to(moved.home))
        for path in moved.home.rglob("*")
        if path.is_file() and old in path.read_bytes()
    ]
    assert holding == []
