"""Paths in URIs are found again, whatever characters they hold."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from memtune.search.database.study_database import open_study_database
from memtune.storage.uris import JOURNAL_PREFIX, SQLITE_PREFIX, find_path, make_path_uri

AWKWARD = ("a b", "é à", "50%41", "100%", "what?", "why?not=1", "#1", "a:b@c", "%3F?#")


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("prefix", [SQLITE_PREFIX, f"{JOURNAL_PREFIX}/"])
def test_a_path_is_found_again_in_its_uri(name: str, prefix: str) -> None:
    path = Path("/tmp") / name / "file.db"
    assert find_path(make_path_uri(prefix, path), prefix) == path


@pytest.mark.parametrize("name", AWKWARD)
def test_sqlalchemy_finds_the_same_path(name: str) -> None:
    path = Path("/tmp") / name / "file.db"
    assert make_url(make_path_uri(SQLITE_PREFIX, path)).database == str(path)


def test_a_plain_path_and_a_query_are_as_written() -> None:
    assert make_path_uri(SQLITE_PREFIX, Path("/home/me/mlflow.db")) == "sqlite:////home/me/mlflow.db"
    assert find_path("sqlite:////home/me/mlflow.db?timeout=5", SQLITE_PREFIX) == Path("/home/me/mlflow.db")
    assert find_path("postgresql://me@host/name", SQLITE_PREFIX) is None


@pytest.mark.parametrize("prefix", [SQLITE_PREFIX, f"{JOURNAL_PREFIX}/"])
def test_a_study_database_is_the_file_that_was_named(prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "50%41 done? #1 é" / "study"
    open_study_database(make_path_uri(prefix, file))
    assert file.is_file()
    assert [path.name for path in tmp_path.iterdir()] == [file.parent.name]
