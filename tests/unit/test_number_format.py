"""Counts are formatted with a singular or plural noun."""

import subprocess
import sys

import pytest

from memtune.number_format import format_count, format_parameters, format_short_count


def test_a_count_of_one_is_singular() -> None:
    assert [format_count(number, "trial") for number in (0, 1, 2, 1000)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "1,000 trials",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (596_645, "597k"),
        (999_499, "999k"),
        (999_500, "1M"),
        (5_971_234, "5.97M"),
        (2_000_000_000, "2G"),
    ],
)
def test_a_short_count_has_three_digits(number: int, text: str) -> None:
    assert format_short_count(number) == text


def test_formatting_a_count_needs_no_torch() -> None:
    program = "import sys; sys.modules['torch'] = None; from memtune.number_format import format_count"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_model_that_counts_has_no_trained_parameters() -> None:
    assert format_parameters(0) == format_parameters(0, is_short=True) == "no trained parameters"
    assert format_parameters(1) == "1 parameter"
    assert format_parameters(596_645, is_short=True) == "597k parameters"
