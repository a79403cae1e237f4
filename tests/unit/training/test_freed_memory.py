"""Memory that a process keeps for its next step. Each case changes malloc in a process of its own."""

import platform
import subprocess
import sys

import pytest

MEASURE_RELEASED_BYTES = """
block = torch.ones(64 * 2**20 // 4)
before = measure_resident_bytes()
del block
print(before - measure_resident_bytes())
"""
RETURN = """
from memtune.training.memory_footprint import return_freed_memory
held = measure_resident_bytes()
return_freed_memory()
print(held - measure_resident_bytes())
"""
IMPORTS = """
import torch
from memtune.training.memory_footprint import measure_resident_bytes
"""
KEEP = """
from memtune.training.memory_footprint import keep_freed_memory
assert keep_freed_memory()
"""
OPEN_TRAINER = """
import sys
from pathlib import Path
from memtune.training import GradientTrainer
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.unit.training.conftest import make_small_trial
GradientTrainer(make_small_trial(), make_tiny_corpus(Path(sys.argv[1])))
"""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are those of glibc"),
]


def _measure_released_bytes(preparation: str, *arguments: str, end: str = "") -> int:
    """Bytes that a process returns to the system when it frees a block of 64 MiB, or at the `end`."""
    program = IMPORTS + preparation + MEASURE_RELEASED_BYTES + end
    command = [sys.executable, "-c", program, *arguments]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(printed.splitlines()[-1])


def test_glibc_returns_a_large_block_by_default():
    """Otherwise nothing would have to keep it."""
    assert _measure_released_bytes("") > 60 * 2**20


def test_a_large_block_stays_in_the_process():
    assert _measure_released_bytes(KEEP) < 2**20


def test_a_trainer_keeps_freed_memory(tmp_path):
    assert _measure_released_bytes(OPEN_TRAINER, str(tmp_path)) < 2**20


def test_kept_memory_is_returned_on_request():
    assert _measure_released_bytes(KEEP, end=RETURN) > 60 * 2**20
