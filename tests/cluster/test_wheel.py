"""The wheel, installed outside of the source tree: its files are found by name, and its demo runs."""

import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from memtune.library import FileKind, list_packaged
from tests.cluster.wheel_build import run_outside

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SMALLER = {"1_600_000": "4_000", "400_000": "2_000", "trials = 8": "trials = 1"}
"""Changes of the study `demo` that make it a matter of seconds."""


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with memtune's wheel, and with the libraries of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "environment", symlinks=True)
    bin_folder = folder / "environment" / "bin"
    place = run_outside(
        bin_folder / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
    )
    # The path is appended by code, so that the .pth file of an editable memtune in it is not read.
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(place.strip()) / "libraries.pth").write_text(f"import sys; sys.path.extend({sorted(libraries)})\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    python = ("--python", bin_folder / "python")
    run_outside(*pip, *python, "install", "--no-deps", "--no-index", wheel, folder=folder)
    return bin_folder


def test_the_installed_package_has_every_file_of_the_library(programs: Path, tmp_path: Path) -> None:
    program = (
        "import memtune, memtune.library as library\n"
        "print(memtune.__file__)\n"
        "for kind in library.FileKind: print(*library.list_packaged(kind))\n"
    )
    place, *names = run_outside(programs / "python", "-c", program, folder=tmp_path).splitlines()
    assert Path(place).is_relative_to(programs.parent), "the source tree is imported, not the wheel"
    assert [line.split() for line in names] == [list_packaged(kind) for kind in FileKind]


def test_a_copied_demo_runs_outside_of_the_source_tree(programs: Path, tmp_path: Path) -> None:
    memtune = programs / "memtune"
    run_outside(memtune, "study", "new", "demo", folder=tmp_path)
    study = tmp_path / "demo.toml"
    for full, small in SMALLER.items():
        assert full in study.read_text()
        study.write_text(study.read_text().replace(full, small))
    out = run_outside(memtune, "demo", folder=tmp_path)
    assert "1 of 1 trial ended" in out
    assert "new champion models:/grammar@champion" in out
    assert "grammar, protocol sentence, 1 trial" in out
    assert {path.name for path in tmp_path.iterdir()} == {".memtune", "cache", "demo.toml"}
