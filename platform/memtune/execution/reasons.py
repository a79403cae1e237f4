"""Why a worker failed, in words: the end of the report that Ray leaves of it, without what Ray suggests."""

import re
from pathlib import Path

__all__ = ["last_failure"]

FAILURE = re.compile(r"^Failure # \d+ .*$", re.MULTILINE)
LOW = re.compile(r"killed due to the node running low on memory\. Memory on the node .*? was (.*)")
DIED = "worker process has died"
DIED_PLAINLY = "the worker process died: it crashed, or was killed"
LONGEST = 300


def last_failure(path: str | None) -> str:
    """The last of the failures that a file tells of, in a line; a worker that left none has died."""
    if not path or not Path(path).exists():
        return DIED_PLAINLY
    failure = FAILURE.split(Path(path).read_text(encoding="utf-8", errors="replace"))[-1]
    if low := LOW.search(failure):
        return f"its node ran low on memory and Ray ended the worker: {low[1].strip()}"
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    return DIED_PLAINLY if not lines or DIED in lines[-1] else lines[-1][:LONGEST]
