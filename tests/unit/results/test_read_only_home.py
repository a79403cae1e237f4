"""A home whose files this user may only read: what needs no write works, and the rest says what it needs."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from memtune.api import run_search
from memtune.errors import StorageError, TrackingError
from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate
from memtune.results.study.study_catalogue import list_studies
from memtune.results.study.study_detail import describe_study
from memtune.results.study.study_view import open_view
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.conftest import import_tiny_corpus, open_home, write_study

pytestmark = pytest.mark.usefixtures("without_report")

OTHER_USER_ID = 65534
READS: tuple[Callable[[Settings], object], ...] = (
    list_studies,
    lambda settings: describe_study(open_view("layers", settings)),
    lambda settings: compare("tiny", settings=settings).rows,
    lambda settings: find_champions("tiny", settings),
    lambda settings: evaluate("layers#0", settings=settings).metrics.tokens,
    lambda settings: evaluate("models:/tiny@champion", settings=settings).metrics.tokens,
)


@pytest.fixture(scope="module")
def read_only(empty_store: Path) -> Iterator[Settings]:
    """A home with a study, which this process may not write any more."""
    user = os.geteuid()
    with TemporaryDirectory(dir="/tmp") as name, open_home(Path(name), empty_store) as settings:
        folder = Path(name)
        import_tiny_corpus(settings)
        run_search(write_study(folder), {"budget.trials": 2}, settings=settings, executor=InProcessExecutor())
        for read in READS:  # another user may not read the files of this one's Python
            assert read(settings)
        shutil.rmtree(settings.home / "models")
        for path in (folder, *folder.rglob("*")):
            is_open = folder / "cache" in (path, *path.parents)
            path.chmod((0o777 if is_open else 0o555) if path.is_dir() else (0o666 if is_open else 0o444))
        if user == 0:
            os.seteuid(OTHER_USER_ID)
        try:
            yield settings
        finally:
            os.seteuid(user)
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o755)


@pytest.mark.parametrize("read", READS)
def test_a_home_that_cannot_be_written_is_read(
    read: Callable[[Settings], object], read_only: Settings
) -> None:
    assert read(read_only)


def test_reading_a_test_split_names_the_file_that_it_may_not_write(read_only: Settings) -> None:
    with pytest.raises(TrackingError, match=r"mlflow\.db failed: .*readonly database; .* permit writing"):
        evaluate("layers#0", "test", settings=read_only)


def test_a_search_names_the_file_that_it_may_not_write(read_only: Settings) -> None:
    file = read_only.home.parent / "layers.toml"
    with pytest.raises(StorageError, match=r"Permission denied: .*proposals\.log\.drivers"):
        run_search(file, settings=read_only, executor=InProcessExecutor(), resume=True)
