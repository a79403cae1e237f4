"""The cost of logging per report: time of the training thread, and CPU time of training and writing threads.

A Recorder writes reports one by one to a new sqlite store. The first ratio counts the time inside the calls,
the second all CPU time of the process, which includes the writing thread. No time is reported unless the
store has every report exactly once.

    OMP_NUM_THREADS=1 python -m benchmarks.tracking_overhead
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.side_by_side import format_measure
from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder, read_leaderboard
from memtune.tracking.mlflow_connection import connect
from memtune.training import Report

REPORT_INTERVAL_SECONDS = 1.0
"""Seconds of training between two reports."""

REPORT_COUNT = 200
GOAL = 0.01


def make_report(number: int) -> Report:
    """A report with all figures."""
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
        end=None,
    )


def time_log_calls(recorder: Recorder, reports: list[Report]) -> list[float]:
    """Seconds of each call in the calling thread; each report is written before the next, as in training."""
    seconds = []
    for report in reports:
        start = time.perf_counter()
        recorder.log_reports("trial", [report])
        seconds.append(time.perf_counter() - start)
        assert recorder.flush(60)
    return seconds


def check_records(uri: str) -> None:
    """Raise AssertionError when a report is missing or stored twice."""
    (row,) = read_leaderboard(uri, "benchmark")
    for name in ("train_loss", "seconds"):
        steps = [metric.step for metric in connect(uri).get_metric_history(row.run_id, name)]
        assert steps == [1000 * number for number in range(1, REPORT_COUNT + 1)], (
            "a report is missing or stored twice"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        uri = make_sqlite_uri(Path(folder))
        with Recorder(uri, "benchmark") as recorder:
            recorder.start_trial("trial", "benchmark", {})
            assert recorder.flush(60)
            reports = [make_report(number) for number in range(1, REPORT_COUNT + 1)]
            before = time.process_time()
            call_seconds = time_log_calls(recorder, reports)
            cpu_seconds = (time.process_time() - before) / REPORT_COUNT
        check_records(uri)
    median, longest = statistics.median(call_seconds), max(call_seconds)
    print(f"one call: median {1e6 * median:.0f} us, longest {1e6 * longest:.0f} us")
    shares = {
        "logging on the training path": statistics.mean(call_seconds) / REPORT_INTERVAL_SECONDS,
        "logging in all CPU time, writer included": cpu_seconds / REPORT_INTERVAL_SECONDS,
    }
    for name, share in shares.items():
        print(
            format_measure(
                f"{name}, share of a {REPORT_INTERVAL_SECONDS:.0f} s report interval",
                share,
                GOAL,
                at_most=True,
            )
        )
    sys.exit(max(shares.values()) > GOAL)


if __name__ == "__main__":
    main()
