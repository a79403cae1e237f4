"""Counts are formatted with a singular or plural noun."""

import subprocess
import sys

from memtune.number_format import format_count


def test_a_count_of_one_is_singular() -> None:
    assert [format_count(number, "trial") for number in (0, 1, 2, 1000)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "1,000 trials",
    ]


def test_formatting_a_count_needs_no_torch() -> None:
    program = "import sys; sys.modules['torch'] = None; from memtune.number_format import format_count"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
