"""What is counted, and how: the same words in all that a user reads."""

import subprocess
import sys

from memtune.execution.wording import counted, unit
from memtune.tasks import TASKS


def test_one_thing_is_no_plural() -> None:
    assert [counted(number, "trial") for number in (0, 1, 2, 1000)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "1,000 trials",
    ]


def test_a_classifier_counts_examples_and_a_text_its_tokens() -> None:
    units = {kind: unit(config.model_validate({})) for kind, config in TASKS.items()}
    assert {kind for kind, found in units.items() if found == "examples"} == {"sentiment", "inference"}


def test_counting_needs_no_torch() -> None:
    program = "import sys; sys.modules['torch'] = None; from memtune.execution.wording import counted"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
