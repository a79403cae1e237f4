"""Memory that a process keeps for its next step. What changes malloc runs in a process of its own."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE_RELEASED_BYTES = """
block = torch.ones(64 * 2**20 // 4)
before = measure_resident_bytes()
del block
print(before - measure_resident_bytes())
"""
PROGRAM = f"""
import sys
from pathlib import Path
import torch
from memtune.training import GradientTrainer
from memtune.training.memory_footprint import keep_freed_memory, measure_resident_bytes, return_freed_memory
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.unit.training.conftest import make_small_trial
{MEASURE_RELEASED_BYTES}
GradientTrainer(make_small_trial(), make_tiny_corpus(Path(sys.argv[1])))
{MEASURE_RELEASED_BYTES}
held = measure_resident_bytes()
return_freed_memory()
print(held - measure_resident_bytes())
assert keep_freed_memory()
"""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are those of glibc"),
]


def test_a_trainer_keeps_a_large_block_in_the_process_until_it_is_returned_on_request(tmp_path: Path) -> None:
    """By default glibc returns it at once: otherwise nothing would have to keep it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    by_default, kept, on_request = map(int, printed.splitlines())
    assert by_default > 60 * 2**20
    assert kept < 2**20
    assert on_request > 60 * 2**20
