"""Memory that a process keeps for its next step. What changes malloc runs in a process of its own."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys
from pathlib import Path
import torch
from memtune.training.memory_footprint import keep_freed_memory, measure_resident_bytes, return_freed_memory
"""
MEASURE_RELEASED_BYTES = """
block = torch.ones(64 * 2**20 // 4)
before = measure_resident_bytes()
del block
print(before - measure_resident_bytes())
"""
KEEP = """
assert keep_freed_memory()
"""
RETURN = """
held = measure_resident_bytes()
return_freed_memory()
print(held - measure_resident_bytes())
"""
OPEN_TRAINER = """
from memtune.training import GradientTrainer
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.unit.training.conftest import make_small_trial
GradientTrainer(make_small_trial(), make_tiny_corpus(Path(sys.argv[1])))
"""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are those of glibc"),
]


def _run(program: str, *arguments: str) -> list[int]:
    """The numbers that a program prints in a process of its own."""
    command = [sys.executable, "-c", START + program, *arguments]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [int(line) for line in printed.splitlines()]


def test_a_large_block_stays_in_the_process_until_it_is_returned_on_request() -> None:
    """By default glibc returns it at once: otherwise nothing would have to keep it."""
    program = MEASURE_RELEASED_BYTES + KEEP + MEASURE_RELEASED_BYTES + RETURN
    by_default, kept, on_request = _run(program)
    assert by_default > 60 * 2**20
    assert kept < 2**20
    assert on_request > 60 * 2**20


def test_a_trainer_keeps_freed_memory(tmp_path: Path) -> None:
    (released,) = _run(OPEN_TRAINER + MEASURE_RELEASED_BYTES, str(tmp_path))
    assert released < 2**20
