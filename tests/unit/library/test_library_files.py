"""Packaged files are found by name, copied, and give way to files of the user."""

from pathlib import Path

import pytest

from memtune.cli.shell_completion import complete_packaged_study, complete_study_file, complete_trial_file
from memtune.errors import StudyError
from memtune.library import (
    JOB_VARIABLE,
    LIBRARY_ROOT,
    FileKind,
    copy_packaged,
    find_file,
    find_packaged,
    format_resumption,
    list_packaged,
)
from memtune.studies.definition.study_loader import find_space
from tests.file_size_limit import limit_file_size

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", FileKind)
def test_every_file_of_the_tree_is_found_by_name(kind: FileKind) -> None:
    folder = ROOT / kind.folder.relative_to(LIBRARY_ROOT)
    assert list_packaged(kind) == sorted(path.stem for path in folder.glob("*.toml"))
    assert [find_packaged(kind, name).stem for name in list_packaged(kind)] == list_packaged(kind)


def test_a_file_of_the_working_folder_has_precedence_over_a_packaged_one(folder: Path) -> None:
    assert find_file(FileKind.STUDY, Path("demo")) == find_packaged(FileKind.STUDY, "demo")
    (folder / "demo.toml").write_text("")
    assert find_file(FileKind.STUDY, Path("demo")) == Path("demo.toml")
    (folder / "demo").write_text("")
    assert find_file(FileKind.STUDY, Path("demo")) == Path("demo")


def test_a_folder_with_the_name_of_a_packaged_file_does_not_hide_it(folder: Path) -> None:
    (folder / "demo").mkdir()
    assert find_file(FileKind.STUDY, Path("demo")) == find_packaged(FileKind.STUDY, "demo")


def test_a_space_of_the_working_folder_has_precedence_for_a_packaged_study(folder: Path) -> None:
    demo = find_packaged(FileKind.STUDY, "demo")
    assert find_space("lstm", demo) == find_packaged(FileKind.SPACE, "lstm")
    (folder / "search_spaces").mkdir()
    (folder / "search_spaces" / "lstm.toml").write_text("")
    assert find_space("lstm", demo) == folder / "search_spaces" / "lstm.toml"


def test_a_copy_has_the_text_of_the_packaged_file_and_overwrites_nothing(folder: Path) -> None:
    text = find_packaged(FileKind.STUDY, "demo").read_text()
    assert copy_packaged(FileKind.STUDY, "demo").read_text() == text
    (folder / "mine").mkdir()
    assert copy_packaged(FileKind.STUDY, "demo", folder / "mine") == folder / "mine" / "demo.toml"
    (folder / "other.toml").write_text("mine")
    with pytest.raises(StudyError, match=r"other\.toml exists and is not overwritten"):
        copy_packaged(FileKind.STUDY, "demo", folder / "other.toml")
    assert (folder / "other.toml").read_text() == "mine"


def test_a_copy_that_does_not_fit_leaves_no_file(folder: Path) -> None:
    with limit_file_size(10), pytest.raises(StudyError, match=r"cannot write demo\.toml: File too large"):
        copy_packaged(FileKind.STUDY, "demo")
    assert list(folder.iterdir()) == []


def test_an_unknown_name_and_a_missing_folder_are_reported(folder: Path) -> None:
    with pytest.raises(StudyError, match='no packaged study "demmo"; did you mean "demo"'):
        copy_packaged(FileKind.STUDY, "demmo")
    with pytest.raises(StudyError, match=r"cannot write missing/x\.toml: No such file or directory"):
        copy_packaged(FileKind.STUDY, "demo", Path("missing/x.toml"))
    (folder / "layers.toml").write_text('corpus = "tiny"\nspaces = ["lstm"]\n')
    with pytest.raises(
        StudyError, match='no file layer and no packaged study "layer"; did you mean "layers"'
    ):
        find_file(FileKind.STUDY, Path("layer"))


def test_a_missing_file_in_a_folder_without_others_is_reported(folder: Path) -> None:
    with pytest.raises(StudyError, match=r"^no file nope\.toml; there is no study in its folder$"):
        find_file(FileKind.STUDY, Path("nope.toml"))


def test_a_folder_in_place_of_a_file_is_answered_with_its_files(folder: Path) -> None:
    (folder / "mine").mkdir()
    with pytest.raises(StudyError, match="mine is a folder; name one study in it; it has none"):
        find_file(FileKind.STUDY, Path("mine"))
    (folder / "mine" / "layers.toml").write_text('corpus = "tiny"\nspaces = ["lstm"]\n')
    (folder / "mine" / "space.toml").write_text("[model]")
    with pytest.raises(StudyError, match=r"mine is a folder; name one study in it: layers\.toml$"):
        find_file(FileKind.STUDY, folder / "mine")


def test_names_and_files_are_completed(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "layers.toml").write_text("")
    (folder / "mine" / "notes.txt").write_text("")
    assert complete_packaged_study("dem") == ["demo"]
    assert complete_study_file("dem") == ["demo"]
    assert complete_study_file("m") == ["mine/"]
    assert complete_study_file("mine/") == ["mine/layers.toml"]
    assert complete_study_file("missing/") == []
    assert complete_trial_file("grammar_r") == ["grammar_rm"]


def test_a_study_is_resumed_from_where_its_user_types(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path("studies/layers.toml")
    monkeypatch.delenv(JOB_VARIABLE, raising=False)
    assert format_resumption(file) == "memtune search studies/layers.toml --resume"
    assert format_resumption(file, ["--no-cache"]) == "memtune search studies/layers.toml --resume --no-cache"
    options = ["--trials 9", "--address auto"]
    again = "--resume --trials 9 --address auto"
    assert format_resumption(file, options) == f"memtune search studies/layers.toml {again}"
    monkeypatch.setenv(JOB_VARIABLE, "layers-3f9a1c")
    assert format_resumption(file) == "memtune jobs resume layers-3f9a1c"
    submitted = "memtune submit studies/layers.toml --resume --trials 9"
    assert format_resumption(file, options, is_edited=True) == submitted
