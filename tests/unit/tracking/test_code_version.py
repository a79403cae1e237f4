"""The version of the running code, in a checkout and outside of one."""

import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from memtune.tracking import code_version


def run_git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def read_version(monkeypatch: pytest.MonkeyPatch, module: Path) -> str:
    """The version of the code whose module lies there."""
    monkeypatch.setattr(code_version, "__file__", str(module))
    return code_version.read_code_version.__wrapped__()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one commit, with two copies of a module of memtune."""
    for folder in ("platform", "site-packages"):
        (tmp_path / folder / "memtune" / "tracking").mkdir(parents=True)
        (tmp_path / folder / "memtune" / "tracking" / "code_version.py").write_text("1\n")
    run_git(tmp_path, "init", "--quiet")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "--quiet", "--message", "Add a module")
    return tmp_path


@pytest.fixture(autouse=True)
def release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_version, "version", lambda name: "1.2.3")


def test_the_version_of_a_checkout_has_its_commit_and_tells_of_changes(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = repository / "platform" / "memtune" / "tracking" / "code_version.py"
    commit = run_git(repository, "rev-parse", "--short", "HEAD")
    assert read_version(monkeypatch, module) == f"1.2.3+{commit}"
    (module.parent / "notes.txt").write_text("not tracked\n")
    assert read_version(monkeypatch, module) == f"1.2.3+{commit}"
    module.write_text("2\n")
    assert read_version(monkeypatch, module) == f"1.2.3+{commit}.changed"


def test_an_installed_memtune_has_no_commit_of_the_repository_around_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment usually lies in the repository of a user's own project."""
    installed = repository / "site-packages" / "memtune" / "tracking" / "code_version.py"
    assert read_version(monkeypatch, installed) == "1.2.3"


def test_memtune_without_metadata_is_unreleased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_no_metadata(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(code_version, "version", find_no_metadata)
    module = tmp_path / "platform" / "memtune" / "tracking" / "code_version.py"
    assert read_version(monkeypatch, module) == "unreleased"
