"""The table of faults that studies survive, with the results of the last run.

Each row is a fault. A test that causes a fault records it through the fixture
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
    """A row: an event, and the module of `tests/cluster` that causes most of it."""

    title: str
    module: str


FAULTS: Mapping[str, Fault] = {
    "worker killed": Fault("a trial's worker is killed", "test_faults"),
    "driver killed": Fault("the driver is killed, then resumed", "test_drivers"),
    "node lost": Fault("a node is lost in a trial, and connected again", "test_node_faults"),
    "head lost": Fault("the head is killed and started again", "test_node_faults"),
    "server stopped": Fault("MLflow or PostgreSQL stops for a while", "test_postgres"),
    "server hangs": Fault("PostgreSQL hangs with open connections", "test_postgres"),
    "object store": Fault("S3 answers 503, slowly, or closes connections", "test_object_store"),
    "disk full": Fault("the disk of checkpoints, cache or proposals is full", "test_full_disks"),
    "files damaged": Fault("a checkpoint, shard or manifest is damaged", "test_drivers"),
    "two at once": Fault("two studies, or two drivers of one, at once", "test_drivers"),
    "clock and pause": Fault("the clock set back; a process stopped for long", "test_drivers"),
    "bad configuration": Fault("a configuration crashes, hangs, diverges or lacks memory", "test_faults"),
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
    start = f"| {fault.title} | `{fault.module}` |"
    if not observations:
        return f"{start} not run | |"
    kills, lost = sum(each.kills for each in observations), sum(each.lost for each in observations)
    return f"{start} {kills} | {lost} |"


EVIDENCE_TITLE = "## Faults in tests"
EVIDENCE_HEADER = """
`python -m tests.cluster.fault_table` causes each fault on real processes, checks what is stored, and
writes this section ({day}). "kills" counts kills, stops and damages; "lost" what is missing or duplicated.

| fault | test | kills | lost |
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
