"""The overlap of mistakes of any set of models."""

from pathlib import Path

import numpy as np
import pytest

from memtune.analysis import Region, overlap
from memtune.errors import CorpusError
from memtune.execution.asking import Asked
from memtune.reports.questions import answers_table, overlap_figure
from memtune.tasks import Answers


def answers(right: str, attractors: str = "", names: str = "") -> Answers:
    """Answers to one question a letter: "+" right, "-" wrong, "?" not asked."""
    nats = np.array([[1.0, 2.0] if sign == "+" else [2.0, 1.0] for sign in right])
    asked = np.array([sign != "?" for sign in right])
    groups = np.array([int(digit) for digit in attractors or "0" * len(right)])
    return Answers(
        "agreement",
        tuple(names or map(str, range(len(right)))),
        nats,
        np.zeros(len(right), int),
        asked,
        groups,
    )


def test_a_mistake_is_in_the_region_of_all_that_make_it():
    regions = overlap({"a": answers("+--+-"), "b": answers("+-+-+"), "c": answers("+-++-")})
    assert {region.models: region.mistakes for region in regions} == {
        ("a", "b", "c"): 1,
        ("a", "c"): 1,
        ("a",): 1,
        ("b",): 1,
    }


def test_the_regions_with_most_mistakes_come_first():
    regions = overlap({"a": answers("---+"), "b": answers("+++-")})
    assert [(region.models, region.mistakes) for region in regions] == [(("a",), 3), (("b",), 1)]


def test_what_one_model_was_not_asked_counts_for_none():
    assert overlap({"a": answers("-?"), "b": answers("--")}) == [Region(models=("a", "b"), mistakes=1)]


def test_other_questions_do_not_compare():
    with pytest.raises(CorpusError, match="ask all of them together"):
        overlap({"a": answers("+-"), "b": answers("+-", names="xy")})


def test_the_figure_has_a_bar_for_each_region(tmp_path: Path):
    overlap_figure(overlap({"a": answers("-+"), "b": answers("--")}), ["a", "b"], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_answers_are_shown_by_attractors_five_and_more_together():
    table = answers_table([Asked("models:/m/1", "lstm", answers("+-++?", "00167"), 0.25)], "asked")
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert [row[2:5] for row in rows] == [
        ("all", "4", "1"),
        ("0", "2", "0"),
        ("1", "1", "0"),
        ("5+", "1", "1"),
    ]
    assert [row[5] for row in rows] == ["75.00%", "50.00%", "100.00%", "100.00%"]
    assert rows[0][7] == "25.00%"
