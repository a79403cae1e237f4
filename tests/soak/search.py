"""Thousands of tiny trials through a search with Ray: what its driver keeps of each trial.

Each trial trains on about a hundred tokens, so the driver is what works. Prints the driver's resident memory
and its CPU time at each hundred trials, and the growth of both per trial after the first 200.

    python -m tests.soak.search --trials 2000
"""

import argparse
import tempfile
import time
from dataclasses import replace

from memtune.api import run_search
from memtune.corpora import import_corpus
from memtune.ray_backend.ray_executor import RayExecutor
from memtune.settings import Settings
from memtune.studies.director import DirectedTrial
from memtune.studies.executor import ExecutorRun
from memtune.studies.trial_worker import Assignment
from memtune.trial_state import TrialState
from tests.soak.tracking import WARM_UP_TRIALS, read_resident_bytes

EVERY = 100
STUDY = {
    "question": "What does a driver keep of each trial?",
    "name": "soak",
    "corpus": "soak",
    "spaces": ["lstm"],
    "model": {"width": 2, "layers": 1},
    "training": {
        "tokens": 100,
        "report_every": 50,
        "optimiser": {"kind": "sgd", "learning_rate": {"float": [0.01, 1.0], "log": True}},
        "schedule": {"kind": "constant"},
    },
    "sampler": {"kind": "random"},
}


class MeasuredExecutor(RayExecutor):
    """Ray, with the driver's memory and CPU time at each hundredth trial."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: list[tuple[int, int, float]] = []
        """Trials, bytes and CPU seconds."""

    def run_trials(self, run: ExecutorRun) -> None:
        """Run the trials as `RayExecutor` does."""

        def make_assignment(trial: DirectedTrial) -> Assignment:
            if trial.proposal.number % EVERY == 0:
                number, size, seconds = trial.proposal.number, read_resident_bytes(), time.process_time()
                self.measured.append((number, size, seconds))
                print(f"trials {number:6,}   {size:13,} bytes   {seconds:8.2f} s of CPU", flush=True)
            return run.make_assignment(trial)

        super().run_trials(replace(run, make_assignment=make_assignment))


def main() -> None:
    """Run the study and print what it took per trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    count = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_environment(folder)
        sentences = [["the", "dog", "sees", "a", "cat"], ["a", "cat", "sleeps"]] * 8
        import_corpus("soak", dict.fromkeys(("train", "valid", "test"), sentences), settings.corpus_store)
        executor = MeasuredExecutor()
        result = run_search(
            {**STUDY, "budget": {"trials": count}}, settings=settings, executor=executor, progress=False
        )
    ended = sum(outcome.state.has_ended for outcome in result.outcomes)
    complete = sum(outcome.state is TrialState.COMPLETE for outcome in result.outcomes)
    print(f"{ended:,} of {count:,} trials ended, {complete:,} of them at full length")
    warm = [row for row in executor.measured if row[0] >= WARM_UP_TRIALS]
    middle = len(warm) // 2
    for rows in (warm[: middle + 1], warm[middle:]):
        (first, first_bytes, first_seconds), (last, last_bytes, last_seconds) = rows[0], rows[-1]
        print(
            f"trials {first:,} to {last:,}: {(last_bytes - first_bytes) / (last - first) / 1000:.1f} kB and "
            f"{1000 * (last_seconds - first_seconds) / (last - first):.0f} ms of CPU per trial"
        )


if __name__ == "__main__":
    main()
