"""A small study of two families with repeats in a home of its own, for tests of its report."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.results.study.study_report import StudyReport, report_study
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.conftest import SPACE_TOML, import_tiny_corpus, make_once, open_home

HOSTILE_QUESTION = "Is </script><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} best?"
"""What a study file may contain: it must reach the page as text."""
RNN_TOML = SPACE_TOML.replace('"lstm"', '"rnn"').replace(
    "layers = { int = [1, 2] }", 'activation = { choice = ["relu", "sigmoid"] }'
)
STUDY_TOML = f"""question = "{HOSTILE_QUESTION}"

corpus = "tiny"
spaces = ["lstm.toml", "rnn.toml"]

[training]
tokens = 900
report_every = 300

[early_stopping]
kind = "successive_halving"
grace = 300
factor = 2

[prices]
cpu_hour = 1.0

[budget]
trials = 12

[repeats]
best = 2
seeds = 3
"""


def run_reported_study(store: Path, folder: Path) -> None:
    """Run the study "families" in a home below `folder`, with a copy of `store`, which is MLflow's file."""
    with open_home(folder, store) as settings:
        import_tiny_corpus(settings)
        (folder / "lstm.toml").write_text(SPACE_TOML)
        (folder / "rnn.toml").write_text(RNN_TOML)
        (folder / "families.toml").write_text(STUDY_TOML)
        run_search(folder / "families.toml", settings=settings, executor=InProcessExecutor())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    """The home of the study, trained once for all modules that import this fixture; tests only read it."""
    folder = make_once(tmp_path_factory, "report", partial(run_reported_study, empty_store))
    with open_home(folder) as settings:
        yield settings


@pytest.fixture(scope="module")
def report(home: Settings) -> StudyReport:
    """The report of the study."""
    return report_study("families", home)
