"""Thousands of tiny trials through the recorder into MLflow on sqlite, without Ray.

Checks that every trial arrives complete, and that memory grows by less than 20 kB per trial.

    python -m tests.soak.tracking --trials 5000
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from logging.handlers import BufferingHandler
from pathlib import Path

from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import CorpusInput, Recorder
from memtune.tracking.mlflow_connection import connect
from memtune.training import Report
from memtune.trial_state import StopReason, TrialEnd, TrialState

MAX_GROWTH_BYTES = 20_000
"""Per trial, of the resident memory."""
WARM_UP_TRIALS = 200
"""Trials after which imports, caches and connection pools have their size."""
REPORTS_PER_TRIAL = 3
CORPUS = CorpusInput(
    name="soak", digest="0" * 64, store="/soak", vocabulary_size=100, splits={"train": {"tokens": 1000}}
)


def make_report(number: int) -> Report:
    """The report number `number`, from 1, of a trial."""
    return Report(
        tokens=1000 * number,
        epoch=float(number),
        train_loss=2.0 / number,
        train_perplexity=8.0 / number,
        valid_loss=2.1 / number,
        valid_perplexity=9.0 / number,
        gradient_norm=1.0,
        learning_rate=0.1,
        tokens_per_second=1e4,
        seconds=float(number),
        peak_memory_bytes=10**9,
        end=None,
    )


def record_trial(recorder: Recorder, number: int) -> None:
    """Record one trial of 30 parameters, as a search does."""
    identity = f"trial-{number:06d}"
    parameters = {f"model.parameter_{index}": index * number for index in range(30)}
    tags = {"family": "lstm", "protocol": "stream", "objective": "perplexity"}
    recorder.start_trial(identity, f"lstm #{number}", parameters, tags, CORPUS)
    recorder.log_files(identity, {"configuration.json": "{}"})
    for report in range(1, REPORTS_PER_TRIAL + 1):
        recorder.log_reports(identity, [make_report(report)])
    recorder.finish_trial(identity, TrialState.COMPLETE, TrialEnd(reason=StopReason.BUDGET))


def read_resident_bytes() -> int:
    """The resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def find_incomplete(uri: str) -> Iterator[str]:
    """The trials in the store that lack a report, their end, or a parameter."""
    client = connect(uri)
    experiment = client.get_experiment_by_name("soak")
    assert experiment is not None
    token: str | None = None
    while True:
        page = client.search_runs(
            [experiment.experiment_id], "tags.`memtune.role` = 'trial'", page_token=token
        )
        for run in page:
            is_complete = (
                run.info.status == "FINISHED"
                and len(run.data.params) == 30
                and run.data.metrics.get("train_loss") == 2.0 / REPORTS_PER_TRIAL
                and "best_validation" in run.data.metrics
            )
            yield "" if is_complete else run.info.run_name
        token = page.token
        if not token:
            return


def main() -> None:
    """Run the soak; exit code 1 when a trial is incomplete or memory grows too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5000)
    count = parser.parse_args().trials
    with tempfile.TemporaryDirectory(prefix="memtune-soak-") as folder:
        uri = make_sqlite_uri(Path(folder))
        logging.getLogger("memtune.tracking").addHandler(refused := BufferingHandler(count))
        refused.setLevel(logging.ERROR)
        started = time.monotonic()
        with Recorder(uri, "soak") as recorder:
            recorder.start_study("soak", "soak", {})
            baseline = 0
            for number in range(count):
                record_trial(recorder, number)
                if number == min(WARM_UP_TRIALS, count // 2):
                    assert recorder.flush(120)
                    baseline = read_resident_bytes()
            is_recorded = recorder.flush(120)
            growth = (read_resident_bytes() - baseline) / (count - min(WARM_UP_TRIALS, count // 2))
        seconds = time.monotonic() - started
        found = list(find_incomplete(uri))
    incomplete = [name for name in found if name]
    print(f"{len(found):,} of {count:,} trials recorded, {len(incomplete):,} incomplete", end=", ")
    print(f"{len(refused.buffer):,} refusals, {seconds:.0f} s, {1000 * seconds / count:.0f} ms per trial")
    print(f"memory grows by {growth / 1000:.1f} kB per trial (at most {MAX_GROWTH_BYTES / 1000:.0f})")
    is_good = is_recorded and not incomplete and not refused.buffer and len(found) == count
    sys.exit(not (is_good and growth < MAX_GROWTH_BYTES))


if __name__ == "__main__":
    main()
