"""A job's package has the source, the study and its spaces, and is smaller than the upload limit."""

from pathlib import Path

import pytest

from memtune.errors import ClusterError, ConfigurationError, StudyError
from memtune.ray_backend.clusters.cluster_check import MAX_UPLOAD_BYTES
from memtune.ray_backend.jobs.job_submission import StudyFiles, collect_study_files, write_package
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study
from memtune.values import parse
from tests.unit.studies.study_files import resolve


@pytest.fixture
def files(study_file: Path) -> StudyFiles:
    return collect_study_files(study_file, load_study(study_file))


def test_a_packaged_study_has_the_id_of_the_original(
    files: StudyFiles, study_file: Path, settings: Settings, tmp_path: Path
) -> None:
    write_package(files, tmp_path / "package")
    packaged = tmp_path / "package" / "study" / files.study
    assert resolve(packaged, settings).id == resolve(study_file, settings).id


def test_spaces_named_without_a_path_are_packaged_with_the_spaces_they_list(study_file: Path) -> None:
    folder = study_file.parent / "search_spaces"
    folder.mkdir()
    (folder / "both.toml").write_text('spaces = ["one", "two"]')
    for name in ("one", "two", "another"):
        (folder / f"{name}.toml").write_text((study_file.parent / "space.toml").read_text())
    study_file.write_text(study_file.read_text().replace('"space.toml"', '"both"'))
    files = collect_study_files(study_file, load_study(study_file))
    assert set(files.texts) == {
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
    files = collect_study_files(study_file, load_study(study_file))
    assert set(files.texts) == {f"{place}/layers.toml", f"{place}/space.toml"}


def test_a_space_in_the_parent_folder_keeps_its_relative_path(study_file: Path) -> None:
    elsewhere = study_file.parent / "studies"
    elsewhere.mkdir()
    moved = study_file.rename(elsewhere / "layers.toml")
    moved.write_text(moved.read_text().replace("space.toml", "../space.toml"))
    files = collect_study_files(moved, load_study(moved))
    assert (files.study, set(files.texts)) == ("studies/layers.toml", {"studies/layers.toml", "space.toml"})


def test_a_space_with_an_absolute_path_is_refused(study_file: Path) -> None:
    absolute = study_file.parent / "space.toml"
    study_file.write_text(study_file.read_text().replace("space.toml", str(absolute)))
    with pytest.raises(StudyError, match="absolute path, which the cluster does not have"):
        collect_study_files(study_file, load_study(study_file))


def test_bytecode_caches_and_hidden_files_are_not_packaged(files: StudyFiles, tmp_path: Path) -> None:
    source = tmp_path / "memtune"
    for name in ("__init__.py", "models/families/lstm.py", "models/__pycache__/lstm.pyc", ".cache/large"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("x")
    write_package(files, tmp_path / "package", source)
    packaged = {
        path.relative_to(tmp_path / "package").as_posix() for path in (tmp_path / "package").rglob("*.*")
    }
    assert packaged == {
        *(f"study/{name}" for name in files.texts),
        "platform/memtune/__init__.py",
        "platform/memtune/models/families/lstm.py",
    }


def test_a_package_over_the_limit_is_refused_with_its_largest_files(
    files: StudyFiles, tmp_path: Path
) -> None:
    source = tmp_path / "memtune"
    source.mkdir()
    with open(source / "corpus.arrow", "wb") as sparse:
        sparse.truncate(MAX_UPLOAD_BYTES)
    with pytest.raises(ClusterError, match=r"platform/memtune/corpus\.arrow \(100 MiB\)"):
        write_package(files, tmp_path / "package", source)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize("path", ["../x.toml", "/etc/x.toml", "a/../../x.toml", "cli.sh"])
def test_paths_outside_of_the_package_are_refused_in_job_metadata(path: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the path of a TOML or Python file inside"):
        parse(StudyFiles, {"study": path, "texts": {path: ""}}, "the metadata of job x")
