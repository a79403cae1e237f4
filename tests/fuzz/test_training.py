"""Hostile files of users, checkpoints and packages raise only MemtuneError (a fixed sample of inputs)."""

from pathlib import Path

import pytest

from tests.fuzz.training import TARGETS, run_inputs

INPUTS = {"spaces": 150, "studies": 100, "trials": 100, "papers": 50, "checkpoints": 150, "packages": 150}


@pytest.mark.parametrize("target", TARGETS)
def test_a_hostile_input_is_accepted_or_raises_a_memtune_error(target: str, tmp_path: Path) -> None:
    count, accepted = run_inputs(target, INPUTS[target], seed=0, folder=tmp_path)
    assert 0 < accepted < count, "only valid or only invalid inputs"
