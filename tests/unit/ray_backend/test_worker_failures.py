"""What is recorded of a worker's failure is what happened, in a line."""

from pathlib import Path

from memtune.ray_backend.worker_failures import read_last_failure

LOW = """1 worker(s) were killed due to the node running low on memory. \
Memory on the node (IP: 192.0.2.2, ID: 9bac) was 22.9GB used / 23.5GB limit (0.97)
OOM kill reason: Memory usage 3232989184B exceeded threshold of 505530016B (2.0% of 25276502016B limit)
Top 10 memory users: PID	MEM(GB)	COMMAND
11999	0.75	python -m something
Refer to the documentation on how to address the out of memory issue: https://example.org/debug-memory.html.
"""
DEAD = """The actor died unexpectedly before finishing this task.
	class_name: TrialActor
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: \
Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the \
process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called.
"""
RAISED = """ray::TrialActor.train() (pid=17, ip=192.0.2.2)
  File "trial.py", line 46, in step
    raise
ValueError: no such thing
"""


def told(tmp_path: Path, *failures: str) -> str:
    """The reason that comes of a report of these failures."""
    report = tmp_path / "error.txt"
    heads = (f"Failure # {number} (occurred at 2026-01-01_00-00-00)\n" for number in range(1, 9))
    report.write_text("".join(head + failure for head, failure in zip(heads, failures, strict=False)))
    return read_last_failure(str(report))


def test_a_worker_ended_for_want_of_memory_is_told_as_that(tmp_path: Path) -> None:
    assert told(tmp_path, RAISED, LOW) == (
        "its node ran low on memory and Ray ended the worker: 22.9GB used / 23.5GB limit (0.97)"
    )


def test_a_worker_that_died_is_told_as_that(tmp_path: Path) -> None:
    died = "the worker process died: it crashed, or was killed"
    assert told(tmp_path, LOW, DEAD) == died
    assert read_last_failure(None) == read_last_failure(str(tmp_path / "nothing.txt")) == died


def test_what_a_trial_raised_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, DEAD, RAISED) == "ValueError: no such thing"
