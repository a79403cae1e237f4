"""No input crashes or hangs an importer, or leaves a partial corpus."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.corpora import FORMATS
from tests.fuzz.importers import OPTIONS, SEEDS, Attack, as_bytes, fuzz, try_import
from tests.fuzz.time_limit import limit_time

FEW, MANY = 50, 500
"""Inputs for each format; more with `python -m tests.fuzz.importers --inputs 100000`."""


@pytest.mark.parametrize("inputs", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("format", FORMATS)
def test_every_input_is_imported_or_refused(format: str, inputs: int) -> None:
    assert fuzz(format, inputs) > 0


@pytest.mark.parametrize(
    ("format", "options"),
    [(format, options) for format in FORMATS for options in ({}, *OPTIONS.get(format, ()))],
)
def test_the_seed_texts_are_valid(format: str, options: dict[str, str], tmp_path: Path) -> None:
    files = {name: as_bytes(text) for name, text in SEEDS[format].items()}
    attack = Attack(
        format,
        files,
        options,
        skip_bad=False,
        divided=False,
        every_word=False,
        vectors=None,
        tokens="characters" if format == "raw" else "words",
    )
    assert try_import(attack, tmp_path / "fuzz")


def wait_forever() -> None:
    with limit_time(seconds=0.01):
        signal.pause()


def compute_forever() -> None:
    with limit_time(cpu_seconds=0.01):
        while True:
            pass


@pytest.mark.parametrize("hang", [wait_forever, compute_forever])
def test_a_hang_is_a_failure(hang: Callable[[], None]) -> None:
    with pytest.raises(AssertionError, match="more than"):
        hang()
