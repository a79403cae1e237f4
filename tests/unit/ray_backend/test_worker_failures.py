"""The recorded reason of a worker's failure is one line about its cause."""

from pathlib import Path

from memtune.ray_backend.tune_adapters import read_last_failure

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


def read_reason(tmp_path: Path, *failures: str) -> str:
    """The reason from Tune's error file of these failures."""
    report = tmp_path / "error.txt"
    heads = (f"Failure # {number} (occurred at 2026-01-01_00-00-00)\n" for number in range(1, 9))
    report.write_text("".join(head + failure for head, failure in zip(heads, failures, strict=False)))
    return read_last_failure(str(report))


def test_the_reason_of_a_worker_killed_for_memory_has_the_memory_of_its_node(tmp_path: Path) -> None:
    assert read_reason(tmp_path, RAISED, LOW) == (
        "its node ran low on memory and Ray ended the worker: 22.9GB used / 23.5GB limit (0.97)"
    )


def test_the_reason_of_a_dead_worker_is_its_death(tmp_path: Path) -> None:
    died = "the worker process died: it crashed, or was killed"
    assert read_reason(tmp_path, LOW, DEAD) == died
    assert read_last_failure(None) == read_last_failure(str(tmp_path / "nothing.txt")) == died


def test_the_reason_of_an_exception_is_its_message(tmp_path: Path) -> None:
    assert read_reason(tmp_path, DEAD, RAISED) == "ValueError: no such thing"
