"""What logging costs a trial, per report: on the thread that trains, and in CPU time with the writing thread.

Reports go one by one through a Recorder into a fresh sqlite store. The first ratio counts the time inside
the calls; the second all CPU time of the process, so also what the writer takes from a trainer beside it.
Gated: afterwards the store must hold every report exactly once.

    OMP_NUM_THREADS=1 python -m benchmarks.tracking_overhead
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.side_by_side import line
from memtune.tracking import Recorder, leaderboard, sqlite_uri
from memtune.tracking.connection import connect
from memtune.training import Report

INTERVAL = 1.0
"""Seconds of training between two reports."""

REPORTS = 200
GOAL = 0.01


def report(number: int) -> Report:
    """A report with every figure there is."""
    return Report(
        tokens=1000 * number,
        epoch=number / 10,
        train_loss=5.0,
        train_perplexity=148.4,
        valid_loss=5.1,
        valid_perplexity=164.0,
        gradient_norm=1.0,
        learning_rate=0.1,
        tokens_per_second=1e4,
        seconds=float(number),
        peak_memory_bytes=10**9,
        finished=False,
        reason=None,
    )


def log_all(recorder: Recorder, reports: list[Report]) -> list[float]:
    """Seconds that each call took of its caller; each report is written before the next, as when training."""
    taken = []
    for one in reports:
        started = time.perf_counter()
        recorder.log_reports("trial", [one])
        taken.append(time.perf_counter() - started)
        assert recorder.flush(60)
    return taken


def check(uri: str) -> None:
    """Refuse to report when a step is missing or doubled."""
    (row,) = leaderboard(uri, "benchmark")
    for name in ("train_loss", "seconds"):
        steps = [metric.step for metric in connect(uri).get_metric_history(row.run_id, name)]
        assert steps == [1000 * number for number in range(1, REPORTS + 1)], "a report was lost or doubled"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri = sqlite_uri(Path(folder))
        with Recorder(uri, "benchmark") as recorder:
            recorder.start_trial("trial", "benchmark", {})
            assert recorder.flush(60)
            reports = [report(number) for number in range(1, REPORTS + 1)]
            before = time.process_time()
            taken = log_all(recorder, reports)
            processor = (time.process_time() - before) / REPORTS
        check(uri)
    print(f"one call: median {1e6 * statistics.median(taken):.0f} us, longest {1e6 * max(taken):.0f} us")
    shares = {
        "logging on the training path": statistics.mean(taken) / INTERVAL,
        "logging in all CPU time, writer included": processor / INTERVAL,
    }
    for name, share in shares.items():
        print(line(f"{name}, share of a {INTERVAL:.0f} s report interval", share, GOAL, at_most=True))
    sys.exit(max(shares.values()) > GOAL)


if __name__ == "__main__":
    main()
