"""The table of faults that studies survive, and the page that tells how they did in the last run.

Each row is a fault and the outcome it must have. A test that kills something real says so through the fixture
`record_fault`; with MEMTUNE_FAULTS naming a file, one line of JSON is added to it. The page is made of them:

    python -m tests.cluster.fault_table

runs the cluster tests and writes docs/reliability.md.
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

__all__ = ["FAULTS", "PAGE", "Fault", "Observation", "RecordFault", "append", "page", "read"]

VARIABLE = "MEMTUNE_FAULTS"
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RecordFault = Callable[[str, int, int, str], None]
"""The fixture `record_fault`."""


@dataclass(frozen=True)
class Fault:
    """A row: what happens, and what must come of it."""

    title: str
    outcome: str


FAULTS: Mapping[str, Fault] = {
    "worker killed": Fault(
        "`kill -9` of a trial's worker process",
        "the trial continues from its checkpoint and loses at most one checkpoint interval",
    ),
    "driver killed": Fault(
        "`kill -9` of the driver, then `--resume`",
        "no trial lost, doubled or trained twice; rungs, sampler history and budgets as before; no orphan "
        "process; Optuna and MLflow agree; with one worker, exactly the trials of an uninterrupted run",
    ),
    "node lost": Fault(
        "a worker node cut off or killed in the middle of a trial; it comes back",
        "its trials continue elsewhere; a node that returned is used again",
    ),
    "head lost": Fault("the head node killed and started again", "the study resumes from storage"),
    "server stopped": Fault(
        "MLflow's server or PostgreSQL stopped for a while in the middle of a study",
        "training never stops; no metric is lost or doubled",
    ),
    "server hangs": Fault(
        "PostgreSQL hangs: its processes are stopped (SIGSTOP), its connections stay open",
        "treated as an outage: nobody waits for it for ever, nothing is lost or doubled",
    ),
    "object store": Fault(
        "the S3 endpoint answers 503, slowly, or closes connections",
        "retried with back-off; a clear error after the limit; nothing half-written is ever read",
    ),
    "disk full": Fault(
        "the disk under checkpoints, the cache or the proposals is full",
        "the trial ends with a reason, others continue, nothing corrupt is left",
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
        "no result is lost or doubled",
    ),
    "bad configuration": Fault(
        "a configuration that always crashes, hangs, diverges or runs out of memory",
        "recorded with its reason after bounded tries; the search goes on and avoids it",
    ),
}


@dataclass(frozen=True)
class Observation:
    """What one test saw: a row's name, how often it struck, how many trials or results were lost, and how."""

    fault: str
    test: str
    kills: int
    lost: int
    note: str


def append(observation: Observation) -> None:
    """Add an observation to the file that MEMTUNE_FAULTS names, if it names one. KeyError without a row."""
    FAULTS[observation.fault]
    if path := os.environ.get(VARIABLE):
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(observation)) + "\n")


def read(path: Path) -> list[Observation]:
    """The observations of a file that `append` wrote."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Observation(**json.loads(line)) for line in lines]


def page(observations: Iterable[Observation], day: str) -> str:
    """The page as Markdown: the table, and under it what each test did."""
    by_fault: dict[str, list[Observation]] = {name: [] for name in FAULTS}
    for observation in sorted(observations, key=lambda seen: seen.test):
        by_fault[observation.fault].append(observation)
    rows = [_row(FAULTS[name], seen) for name, seen in by_fault.items()]
    details = [
        f"- **{name}**, `{seen.test}`: {seen.note}" for name, found in by_fault.items() for seen in found
    ]
    return "\n".join([HEADER.format(day=day), *rows, "", "## What was done", "", *details, "", TERMS])


def _row(fault: Fault, seen: list[Observation]) -> str:
    if not seen:
        return f"| {fault.title} | {fault.outcome} | not run | |"
    return (
        f"| {fault.title} | {fault.outcome} | {sum(each.kills for each in seen)} "
        f"| {sum(each.lost for each in seen)} |"
    )


HEADER = """# What a study survives

Every row is tested on real processes: the tests in `tests/cluster` start a study, strike in the middle of it
and look at what is left. The figures are those of the run of {day}; this page is written by

```sh
python -m tests.cluster.fault_table
```

| fault | what must come of it | struck | lost |
|---|---|---:|---:|"""

TERMS = """## What is counted

`struck` counts kills, stops and damages; `lost` trials, reports or metrics that were missing or double in the
end.

## What there is to set

In `[resources]` of a study `checkpoint_every` (default `"10m"`) asks for checkpoints between reports that
are further apart, and `max_silence` (default `"1h"`) says after which time a worker that is not heard of is
ended and its trial tried again.

A trial that fails three times in a row without having come further is failed for good; one that gets
further between two failures goes on for ever, however many nodes it loses. A worker that cannot read the
corpus or the checkpoints, or sees no GPU where one was promised, is no fault of its trial: after three
tries the study stops, names it, and leaves the trial to `--resume`.

A storage of proposals that does not answer is waited for up to ten minutes: a server that is stopped, one
that hangs and has sent nothing of an answer for 10 seconds, a file on a full disk. Trials train on meanwhile,
and what is to be written of them waits; then the driver stops and leaves them to `--resume`.

A driver holds its study by a lease in the study's own storage of proposals and beats every 4 seconds.
Another driver is refused while it beats. One that was killed on the same machine is succeeded at once, any
other after 20 seconds of silence, by the successor's own clock. A driver that lost its study notices before
its next write and stops. One instant is left: a driver that is stopped between that look and its write may,
when it is continued, write one record more: the report or the end that its successor finds for itself, or a
proposal, which stays open until a resume trains it. While the storage is away nobody can renew a lease, nor
take one: the driver keeps its study, and another one is told that the storage does not answer. A driver that
alone is cut off from it loses its study to one that is not.
"""


def main() -> None:
    """Run the tests that strike and write the page; their exit status is this command's."""
    with TemporaryDirectory(prefix="memtune-faults-") as folder:
        seen = Path(folder) / "faults.jsonl"
        side_by_side = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
        command = [sys.executable, "-m", "pytest", "tests/cluster", *side_by_side, *sys.argv[1:]]
        ended = subprocess.run(command, cwd=ROOT, env={**os.environ, VARIABLE: str(seen)}, check=False)
        PAGE.write_text(page(read(seen), time.strftime("%Y-%m-%d")), encoding="utf-8")
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
