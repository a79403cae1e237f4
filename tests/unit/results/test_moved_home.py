"""A home is a folder that can be moved: nothing in it holds its path."""

import shutil
from pathlib import Path

import pytest
from mlflow.tracking._tracking_service import utils as tracking_service_utils

from memtune.api import run_search
from memtune.results.comparison import compare
from memtune.results.loaded_models import load
from memtune.results.model_evaluation import evaluate_model
from memtune.settings import Settings
from memtune.studies.in_process_executor import InProcessExecutor
from memtune.tracking import link_corpora


@pytest.fixture
def moved(study_file: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a home that was moved after a study of three of its four trials."""
    run_search(study_file, {"budget.trials": 3}, settings=settings, executor=InProcessExecutor())
    shutil.move(settings.home, tmp_path / "elsewhere" / "home")
    # As in a new process: MLflow remembers the folder of each run.
    tracking_service_utils._artifact_repos_cache.clear()
    monkeypatch.setenv("MEMTUNE_HOME", str(tmp_path / "elsewhere" / "home"))
    return Settings.from_environment()


def test_a_moved_home_evaluates_compares_links_and_resumes(
    moved: Settings, settings: Settings, study_file: Path
) -> None:
    assert compare("tiny", settings=moved).rows[0].place == 1
    assert [pages.corpus for pages in link_corpora(moved.tracking_uri)] == ["tiny"]
    assert evaluate_model("models:/tiny@champion", settings=moved).metrics.tokens
    assert evaluate_model("layers#0", settings=moved).metrics.tokens
    assert load("models:/tiny@champion", settings=moved).vocabulary
    resumed = run_search(
        study_file,
        {"budget.trials": 4},
        settings=moved,
        executor=InProcessExecutor(),
        resume=True,
    )
    assert len(resumed.outcomes) == 4
    assert len(compare("tiny", settings=moved).rows) == 4
    assert not settings.home.exists()


def test_no_file_of_a_home_holds_the_path_of_the_home(moved: Settings, settings: Settings) -> None:
    old = str(settings.home).encode()
    holding = [
        str(path.relative_to(moved.home))
        for path in moved.home.rglob("*")
        if path.is_file() and old in path.read_bytes()
    ]
    assert holding == []
