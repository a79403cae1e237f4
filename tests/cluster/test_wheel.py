"""The wheel, installed outside of the source tree: its files are found by name, and its demo runs."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from memtune.library import FileKind, list_packaged

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SOURCES = ("platform/memtune", "search_spaces", "jobs", "pyproject.toml", "README.md", "LICENSE")
SMALLER = {"1_600_000": "4_000", "400_000": "2_000", "trials = 8": "trials = 1"}
"""Changes of the study `demo` that make it a matter of seconds."""


def run(*command: str | Path, folder: Path) -> str:
    """The output of a command in a folder, without the variables that name the source tree or a home."""
    hidden = ("PYTHONPATH", "RAY_ADDRESS", "MLFLOW_TRACKING_URI")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith("MEMTUNE_")
    }
    environment["MEMTUNE_CACHE"] = str(folder / "cache")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with memtune's wheel, and with the libraries of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source, target = ROOT / name, folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "./source", folder=folder)
    (wheel,) = folder.glob("*.whl")
    shutil.rmtree(folder / "source")
    venv.create(folder / "environment", symlinks=True)
    bin_folder = folder / "environment" / "bin"
    place = run(
        bin_folder / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
    )
    # The path is appended by code, so that the .pth file of an editable memtune in it is not read.
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(place.strip()) / "libraries.pth").write_text(f"import sys; sys.path.extend({sorted(libraries)})\n")
    python = ("--python", bin_folder / "python")
    run(*pip, *python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    return bin_folder


def test_the_installed_package_has_every_file_of_the_library(programs: Path, tmp_path: Path) -> None:
    program = (
        "import memtune, memtune.library as library\n"
        "print(memtune.__file__)\n"
        "for kind in library.FileKind: print(*library.list_packaged(kind))\n"
    )
    place, *names = run(programs / "python", "-c", program, folder=tmp_path).splitlines()
    assert Path(place).is_relative_to(programs.parent), "the source tree is imported, not the wheel"
    assert [line.split() for line in names] == [list_packaged(kind) for kind in FileKind]


def test_a_copied_demo_runs_outside_of_the_source_tree(programs: Path, tmp_path: Path) -> None:
    memtune = programs / "memtune"
    run(memtune, "study", "new", "demo", folder=tmp_path)
    study = tmp_path / "demo.toml"
    for full, small in SMALLER.items():
        assert full in study.read_text()
        study.write_text(study.read_text().replace(full, small))
    out = run(memtune, "demo", folder=tmp_path)
    assert "1 of 1 trial ended" in out
    assert "new champion models:/grammar@champion" in out
    assert "grammar, protocol sentence, 1 trial" in out
    assert {path.name for path in tmp_path.iterdir()} == {".memtune", "cache", "demo.toml"}
