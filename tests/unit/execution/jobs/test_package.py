"""What travels to a cluster: the source and the study with its spaces, and nothing that is too large."""

from pathlib import Path

import pytest

from memtune.errors import ClusterError, ConfigurationError, StudyError
from memtune.execution.clusters.delivery import LARGEST_UPLOAD
from memtune.execution.jobs.package import StudyFiles, collect, write_package
from memtune.execution.settings import Settings
from memtune.execution.study import load_study, prepare
from memtune.values import parse


@pytest.fixture
def files(study_file: Path) -> StudyFiles:
    return collect(study_file, load_study(study_file))


def test_a_study_in_a_package_is_the_study_it_was(
    files: StudyFiles, study_file: Path, settings: Settings, tmp_path: Path
) -> None:
    write_package(files, tmp_path / "package")
    packed = tmp_path / "package" / files.study
    assert (
        prepare(packed, load_study(packed), settings).id
        == prepare(study_file, load_study(study_file), settings).id
    )


def test_spaces_named_without_a_path_travel_with_what_they_list(study_file: Path) -> None:
    folder = study_file.parent / "search_spaces"
    folder.mkdir()
    (folder / "both.toml").write_text('spaces = ["one", "two"]')
    for name in ("one", "two", "another"):
        (folder / f"{name}.toml").write_text((study_file.parent / "space.toml").read_text())
    study_file.write_text(study_file.read_text().replace('"space.toml"', '"both"'))
    found = collect(study_file, load_study(study_file))
    assert set(found.texts) == {
        "layers.toml",
        "search_spaces/both.toml",
        "search_spaces/one.toml",
        "search_spaces/two.toml",
    }


def test_a_study_below_the_working_folder_keeps_its_path(
    study_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study_file.parent.parent)
    place = study_file.parent.name
    found = collect(study_file, load_study(study_file))
    assert set(found.texts) == {f"{place}/layers.toml", f"{place}/space.toml"}


def test_a_space_beside_another_folder_stays_beside_it(study_file: Path) -> None:
    elsewhere = study_file.parent / "studies"
    elsewhere.mkdir()
    moved = study_file.rename(elsewhere / "layers.toml")
    moved.write_text(moved.read_text().replace("space.toml", "../space.toml"))
    found = collect(moved, load_study(moved))
    assert (found.study, set(found.texts)) == ("studies/layers.toml", {"studies/layers.toml", "space.toml"})


def test_a_space_by_an_absolute_path_cannot_travel(study_file: Path) -> None:
    absolute = study_file.parent / "space.toml"
    study_file.write_text(study_file.read_text().replace("space.toml", str(absolute)))
    with pytest.raises(StudyError, match="absolute path, which a cluster does not have"):
        collect(study_file, load_study(study_file))


def test_what_python_and_editors_leave_behind_stays_here(files: StudyFiles, tmp_path: Path) -> None:
    source = tmp_path / "memtune"
    for name in ("__init__.py", "models/lstm.py", "models/__pycache__/lstm.pyc", ".cache/large"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    write_package(files, tmp_path / "package", source)
    packed = {
        path.relative_to(tmp_path / "package").as_posix() for path in (tmp_path / "package").rglob("*.*")
    }
    assert packed == {*files.texts, "platform/memtune/__init__.py", "platform/memtune/models/lstm.py"}


def test_a_package_over_the_limit_is_refused_with_its_largest_files(
    files: StudyFiles, tmp_path: Path
) -> None:
    source = tmp_path / "memtune"
    source.mkdir()
    with open(source / "corpus.arrow", "wb") as sparse:
        sparse.truncate(LARGEST_UPLOAD)
    with pytest.raises(ClusterError, match=r"platform/memtune/corpus\.arrow \(100 MiB\)"):
        write_package(files, tmp_path / "package", source)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("path", ["../x.toml", "/etc/x.toml", "a/../../x.toml", "platform/memtune/cli.py"])
def test_files_that_come_back_from_a_job_stay_inside_the_package(path: str) -> None:
    with pytest.raises(ConfigurationError, match="no path of a TOML file below the package"):
        parse(StudyFiles, {"study": path, "texts": {path: ""}}, "the metadata of job x")
