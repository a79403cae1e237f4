"""docs/reliability.md has one row per fault, with the observations of the tests."""

from pathlib import Path

import pytest

from tests.cluster.fault_table import (
    FAULTS,
    PAGE_PATH,
    Observation,
    append_observation,
    format_page,
    read_observations,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_page_has_a_row_for_every_fault(fault: str) -> None:
    lines = [line for line in PAGE_PATH.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert sum(FAULTS[fault].title in line for line in lines) == 1
    assert (PAGE_PATH.parents[1] / "tests" / "cluster" / f"{FAULTS[fault].module}.py").exists()


def test_kills_and_losses_of_a_row_are_summed_over_its_tests() -> None:
    observations = [Observation("head lost", f"test_{name}", 2, 1, "") for name in "ab"]
    (line,) = [
        line
        for line in format_page("", observations, "2026-01-01").splitlines()
        if FAULTS["head lost"].title in line
    ]
    assert line.endswith("| 4 | 2 |")


def test_appended_observations_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTUNE_FAULTS", str(tmp_path / "faults.jsonl"))
    observation = Observation("head lost", "test_a", 1, 0, "the head was killed")
    append_observation(observation)
    append_observation(observation)
    assert read_observations(tmp_path / "faults.jsonl") == [observation, observation]


def test_a_fault_without_a_row_is_refused() -> None:
    with pytest.raises(KeyError):
        append_observation(Observation("meteorite", "test_a", 1, 0, ""))
