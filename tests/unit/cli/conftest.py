"""A home with a trained model for the tests of commands that read one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.settings import Settings
from tests.conftest import import_tiny_corpus, make_once, open_home
from tests.unit.cli.invocation import TRIAL, read_output


@pytest.fixture(scope="module")
def trained_home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Settings]:
    """The home of one trial, which is the champion of "tiny"; tests only read it."""

    def train(folder: Path) -> None:
        with open_home(folder, empty_store) as settings:
            import_tiny_corpus(settings)
            (folder / "trial.toml").write_text(TRIAL)
            read_output("train", str(folder / "trial.toml"))

    with open_home(make_once(tmp_path_factory, "trained", train)) as settings:
        yield settings
