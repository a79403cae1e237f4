"""TOML texts outside of the bounds are refused, by every reader of studies and search spaces."""

from pathlib import Path

import pytest

from memtune.errors import SpaceError, StudyError
from memtune.spaces import load_space, read_space
from memtune.studies.definition.toml_files import read_toml
from memtune.toml_text import parse_toml

OUTSIDE = {
    "500 nested brackets": "a = " + "[" * 500 + "]" * 500,
    "33 nested tables": ".".join("a" * 33) + " = 1",
    "100,000 nested tables of dotted keys": "a" + ".a" * 100_000 + " = 1",
    "a number of 4,301 digits": "a = " + "9" * 4301,
    "a number of 65 bits": f"a = {2**64}",
}


@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE)
def test_a_text_outside_of_the_bounds_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested|digits|64 bits"):
        parse_toml(text)


@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE)
def test_spaces_and_studies_name_the_file_of_a_text_outside_of_the_bounds(text: str, tmp_path: Path) -> None:
    path = tmp_path / "crafted.toml"
    path.write_text(text)
    with pytest.raises(SpaceError, match="crafted"):
        read_space(text, "crafted")
    with pytest.raises(SpaceError, match="crafted"):
        load_space(path)
    with pytest.raises(StudyError, match="crafted"):
        read_toml(path)


def test_a_file_of_more_than_a_mebibyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text("#" * (2**20 + 1))
    with pytest.raises(StudyError, match="1,048,576 bytes"):
        read_toml(path)


def test_texts_within_the_bounds_are_read() -> None:
    assert parse_toml(".".join("a" * 32) + f" = {2**63 - 1}")
    assert parse_toml("a = 1\r\nb = [[2]]") == {"a": 1, "b": [[2]]}


@pytest.mark.parametrize("kind", ["float = [-1e308, 1e308]", "float = [0.0, 1e308], step = 1e-300"])
def test_ranges_beyond_floating_point_numbers_are_refused(kind: str) -> None:
    with pytest.raises(SpaceError, match=r"wider|divide"):
        read_space(f"[model]\nwidth = {{ {kind} }}", "crafted")
