"""The table of faults that studies survive, with the results of the last run.

Each row is a fault and its required outcome. A test that causes a fault records it through the fixture
`record_fault`: one line of JSON in the file that MEMTUNE_FAULTS names. The page is made of these lines:

    python -m tests.cluster.fault_table

runs the cluster tests, prints what each has seen, and writes the evidence section of docs/reliability.md.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = [
    "FAULTS",
    "PAGE_PATH",
    "Fault",
    "Observation",
    "RecordFault",
    "append_observation",
    "format_page",
    "read_observations",
]

FAULTS_FILE_VARIABLE = "MEMTUNE_FAULTS"
ROOT = Path(__file__).parents[2]
PAGE_PATH = ROOT / "docs" / "reliability.md"
RecordFault = Callable[[str, int, int, str], None]
"""The fixture `record_fault`."""


@dataclass(frozen=True)
class Fault:
    """A row: an event and its required outcome."""

    title: str
    outcome: str


FAULTS: Mapping[str, Fault] = {
    "worker killed": Fault(
        "`kill -9` of a trial's worker process",
        "the trial continues from its checkpoint and loses at most one checkpoint interval",
    ),
    "driver killed": Fault(
        "`kill -9` of the driver, then `--resume`",
        "no trial lost, duplicated or trained twice; rungs, sampler history and budgets as before; no orphan "
        "process; Optuna and MLflow agree; with one worker, exactly the trials of an uninterrupted run",
    ),
    "node lost": Fault(
        "a worker node disconnected or killed in the middle of a trial, and connected again",
        "its trials continue elsewhere; a node that is connected again is used again",
    ),
    "head lost": Fault("the head node killed and started again", "the study resumes from storage"),
    "server stopped": Fault(
        "MLflow's server or PostgreSQL stopped for a while in the middle of a study",
        "training never stops; no metric is lost or duplicated",
    ),
    "server hangs": Fault(
        "PostgreSQL hangs: its processes are stopped (SIGSTOP), its connections stay open",
        "treated as an outage: every wait is limited; nothing is lost or duplicated",
    ),
    "object store": Fault(
        "the S3 endpoint answers 503, slowly, or closes connections",
        "retried with back-off; a clear error after the limit; no partial file is read",
    ),
    "disk full": Fault(
        "the disk under checkpoints, the cache or the proposals is full",
        "no trial fails: another node continues it, or the study stops and resumes; nothing corrupt is left",
    ),
    "files damaged": Fault(
        "a truncated or altered checkpoint, shard or manifest",
        "it is named; the checkpoint before it is used",
    ),
    "two at once": Fault(
        "two studies, or two drivers of one study, at once",
        "independent studies do not mix; the second driver is refused with who holds the study",
    ),
    "clock and pause": Fault(
        "the clock set back; a worker or driver stopped for long (SIGSTOP), then continued",
        "no result is lost or duplicated",
    ),
    "bad configuration": Fault(
        "a configuration that always crashes, hangs, diverges or runs out of memory",
        "recorded with its reason after a bounded number of attempts; the search continues and avoids it",
    ),
}


@dataclass(frozen=True)
class Observation:
    """The result of one test: a row's name, the counts of kills and lost results, and a description."""

    fault: str
    test: str
    kills: int
    lost: int
    note: str


def append_observation(observation: Observation) -> None:
    """Add an observation to the file that MEMTUNE_FAULTS names, if it names one. KeyError without a row."""
    FAULTS[observation.fault]
    if path := os.environ.get(FAULTS_FILE_VARIABLE):
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(observation)) + "\n")


def read_observations(path: Path) -> list[Observation]:
    """The observations of a file that `append_observation` wrote."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Observation(**json.loads(line)) for line in lines]


def format_page(page: str, observations: Iterable[Observation], day: str) -> str:
    """The page with new evidence, as Markdown: its guide and the table of faults."""
    guide = page.partition(EVIDENCE_TITLE)[0]
    by_fault: dict[str, list[Observation]] = {name: [] for name in FAULTS}
    for observation in observations:
        by_fault[observation.fault].append(observation)
    rows = [_format_row(FAULTS[name], seen) for name, seen in by_fault.items()]
    return "\n".join([guide + EVIDENCE_TITLE, EVIDENCE_HEADER.format(day=day), *rows, ""])


def _format_row(fault: Fault, observations: list[Observation]) -> str:
    if not observations:
        return f"| {fault.title} | {fault.outcome} | not run | |"
    return (
        f"| {fault.title} | {fault.outcome} | {sum(each.kills for each in observations)} "
        f"| {sum(each.lost for each in observations)} |"
    )


EVIDENCE_TITLE = "## Test evidence"
EVIDENCE_HEADER = """
Each row is tested on real processes: tests in `tests/cluster` start a study, cause the fault, and check what
is stored. "kills" counts kills, stops and damages; "lost" counts trials, reports or metrics that were missing
or duplicated at the end. The figures are from the run of {day}. This command runs the tests and writes this
section:

```sh
python -m tests.cluster.fault_table
```

| fault | required outcome | kills | lost |
|---|---|---:|---:|"""


def main() -> None:
    """Run the tests and write the page; exit with their status."""
    with TemporaryDirectory(prefix="memtune-faults-") as folder:
        seen = Path(folder) / "faults.jsonl"
        side_by_side = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
        command = [sys.executable, "-m", "pytest", "-m", "", "tests/cluster", *side_by_side, *sys.argv[1:]]
        ended = subprocess.run(
            command, cwd=ROOT, env={**os.environ, FAULTS_FILE_VARIABLE: str(seen)}, check=False
        )
        observations = read_observations(seen)
        for each in observations:
            print(f"{each.fault}, {each.test}: {each.note}")
        page = PAGE_PATH.read_text(encoding="utf-8")
        PAGE_PATH.write_text(format_page(page, observations, time.strftime("%Y-%m-%d")), encoding="utf-8")
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
