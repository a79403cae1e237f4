"""The cause of a worker's failure, from the error file that Ray Tune writes for its trial."""

import re
from pathlib import Path

from memtune.ray_backend.compatibility import LOW_MEMORY_PATTERN, WORKER_DIED_TEXT

FAILURE_HEADER_PATTERN = re.compile(r"^Failure # \d+ .*$", re.MULTILINE)
WORKER_DIED_MESSAGE = "the worker process died: it crashed, or was killed"
MAX_REASON_CHARACTERS = 300


def read_last_failure(path: str | None) -> str:
    """The last failure in an error file, on one line; without a file or a cause the worker has died."""
    if not path or not Path(path).exists():
        return WORKER_DIED_MESSAGE
    failure = FAILURE_HEADER_PATTERN.split(Path(path).read_text(encoding="utf-8", errors="replace"))[-1]
    if low := LOW_MEMORY_PATTERN.search(failure):
        return f"its node ran low on memory and Ray ended the worker: {low[1].strip()}"
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    return (
        WORKER_DIED_MESSAGE
        if not lines or WORKER_DIED_TEXT in lines[-1]
        else lines[-1][:MAX_REASON_CHARACTERS]
    )
