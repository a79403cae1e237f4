"""The overhead of a search: wall time x number of workers over the training seconds of its trials.

The studies train on the embedded corpus with workers of one core, and without early stopping, so that
every trial trains its whole budget. Each study runs in a new process, so that it pays for its imports and for
Ray. The training seconds of a trial are those that its trainer measures, evaluations included. All other time
from the call of the search on is overhead: start and end of Ray, imports, a new tracking store, scheduling,
sampling, records, checkpoints, and idle workers at the end. No time is reported unless every trial is
complete.

- Overhead of a minute and of ten minutes of training on two workers.
- The same minute with Tune, Optuna and MLflow connected as in their guides (`baseline_search`).
- The same minute on one worker: the gain of a second worker.
- The cost of one more trial, from two studies of short trials, against the start of a new worker: a Ray actor
  that imports the modules of a trial.

    python -m benchmarks.search_overhead [MINUTES ...]

Where the overhead of one search is: its start, its trials without their training, and its end.

    python -m benchmarks.search_overhead --phases TRIALS TOKENS [WORKERS]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import ray

from benchmarks.side_by_side import describe_machine, format_measure
from memtune.api import run_search
from memtune.corpora import open_corpus
from memtune.corpora.grammar.embedded_corpus import import_grammar
from memtune.ray_backend.ray_connection import connect_ray
from memtune.ray_backend.ray_executor import RayExecutor
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.executor import Executor, ExecutorRun
from memtune.tracking import read_leaderboard
from memtune.tracking.mlflow_connection import connect
from memtune.training import create_trainer
from memtune.trial_state import TrialState

WORKERS = 2
TRIALS = 8
SHORT_TRIAL_TOKENS, FEW_TRIALS, MANY_TRIALS = 2_000, 4, 24
PROBE_TOKENS = 500_000
"""Tokens of the trial that measures the training speed in tokens per second."""
OVERHEAD_BOUNDS = {1: (1.12, None), 10: (1.05, 1.10)}
"""Goal and must of the overhead by minutes of training. The overhead is a number of seconds, most of them for
imports in four processes, so a minute has no must: the seconds depend on the processor. Those of
`baseline_search` in the same run are the measure."""
STUDY_TOML = """question = "What does a search cost on top of its training?"

corpus = "grammar"
spaces = ["lstm.toml"]

[protocol]
kind = "sentence"
batch_size = 32

[training]
tokens = {tokens}
report_every = {report_every}

[sampler]
kind = "random"

[early_stopping]
kind = "none"

[budget]
trials = {trials}

[resources]
max_concurrent = {workers}
"""
SPACE_TOML = """
[model]
family = "lstm"
width = 64

[training.optimiser]
kind = "adam"
learning_rate = { float = [1e-3, 1e-2], log = true }
"""


class SearchTimes(NamedTuple):
    """Wall seconds of a search, and the training seconds of its trials."""

    wall_seconds: float
    training_seconds: list[float]
    start_seconds: float = 0.0
    """Wall seconds from the call until trials may run; not measured of the baseline."""
    end_seconds: float = 0.0
    """Wall seconds from the end of the last trial until the call returns; not measured of the baseline."""

    @property
    def total_training_seconds(self) -> float:
        """Training seconds of all trials."""
        return sum(self.training_seconds)

    def list_phases(self, workers: int) -> dict[str, float]:
        """Wall seconds of the phases of a search on this number of workers, without its training."""
        running = self.wall_seconds - self.start_seconds - self.end_seconds
        return {
            "start": self.start_seconds,
            "trials without training": running - self.total_training_seconds / workers,
            "end": self.end_seconds,
        }


class TimedExecutor:
    """An executor that notes when it starts to run trials and when these have ended."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.start_time = self.end_time = 0.0

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        """Connect the executor."""
        self._executor.connect(cpus_per_trial, max_concurrent_trials)

    def find_gpu_bytes(self) -> int | None:
        """Ask the executor."""
        return self._executor.find_gpu_bytes()

    def run_trials(self, run: ExecutorRun) -> None:
        """Run trials between two readings of the clock."""
        self.start_time = time.perf_counter()
        self._executor.run_trials(run)
        self.end_time = time.perf_counter()

    def close(self) -> None:
        """Close the executor."""
        self._executor.close()


def write_study(folder: Path, trials: int, tokens: int, workers: int) -> Path:
    """Write the study and its space; returns the path of the study."""
    (folder / "lstm.toml").write_text(SPACE_TOML)
    study = folder / "overhead.toml"
    study.write_text(
        STUDY_TOML.format(trials=trials, tokens=tokens, report_every=tokens // 2, workers=workers)
    )
    return study


def measure_search(store: str, trials: int, tokens: int, workers: int) -> SearchTimes:
    """Run a search in this process with a new MEMTUNE_HOME."""
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as name:
        folder = Path(name)
        settings = Settings.from_environment(folder / "home").model_copy(update={"corpus_store": store})
        study = write_study(folder, trials, tokens, workers)
        executor = TimedExecutor(RayExecutor())
        start = time.perf_counter()
        run_search(study, settings=settings, progress=False, executor=executor)
        end = time.perf_counter()
        client = connect(settings.tracking_uri)
        rows = read_leaderboard(settings.tracking_uri, "grammar")
        if len(rows) != trials or any(
            row.state != TrialState.COMPLETE or row.tokens < tokens for row in rows
        ):
            raise SystemExit("no result: a trial is missing or incomplete")
        return SearchTimes(
            end - start,
            [client.get_metric_history(row.run_id, "seconds")[-1].value for row in rows],
            executor.start_time - start,
            end - executor.end_time,
        )


def run_memtune_process(store: str, trials: int, tokens: int, workers: int = WORKERS) -> SearchTimes:
    """A memtune search in a new process."""
    return run_module("benchmarks.search_overhead", "--run", store, str(trials), str(tokens), str(workers))


def run_baseline_process(store: str, trials: int, tokens: int) -> SearchTimes:
    """The baseline search in a new process."""
    return run_module("benchmarks.baseline_search", store, str(trials), str(tokens), str(WORKERS))


def run_module(module: str, *arguments: str) -> SearchTimes:
    """Run a module in a new process, which may write bytecode caches; returns its last line."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        check=True,
    )
    return SearchTimes(*json.loads(done.stdout.splitlines()[-1]))


def measure_tokens_per_second(store: str) -> float:
    """Tokens per second of one trial, evaluations included, on an idle machine."""
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as name:
        settings = Settings.from_environment(Path(name) / "home").model_copy(update={"corpus_store": store})
        study = write_study(Path(name), 1, PROBE_TOKENS, 1)
        resolved = resolve_study(study, load_study(study), settings)
        trainer = create_trainer(resolved.sample(RandomChooser(0)), open_corpus("grammar", store))
        trainer.advance()
        return trainer.advance().tokens / trainer.curve[-1].seconds


class IdleWorker:
    """A worker without a trial."""

    def ready(self) -> None:
        """Import the modules of a trial."""
        import memtune.ray_backend.trial_actor  # noqa: F401


def measure_worker_start_seconds() -> float:
    """Median seconds from the creation of a worker until it can start a trial."""
    with connect_ray(None):
        time.sleep(3)  # Ray starts one idle worker per core in advance; use them up first
        actor: Any = ray.remote(num_cpus=0)(IdleWorker)
        prestarted = [actor.remote() for _ in range(os.cpu_count() or 1)]
        ray.get([worker.ready.remote() for worker in prestarted])
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            worker = actor.remote()
            ray.get(worker.ready.remote())
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)


def print_overhead(minutes: int, times: SearchTimes) -> None:
    """Print the ratio; lower is better, and 1 means no overhead."""
    goal, must = OVERHEAD_BOUNDS.get(minutes, OVERHEAD_BOUNDS[1])
    name = f"search wall time x {WORKERS} workers / training time, about {minutes} min of training"
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in times.list_phases(WORKERS).items())
    detail = (
        f"{times.wall_seconds:.1f} s for {times.total_training_seconds:.1f} s of "
        f"{len(times.training_seconds)} trials: {phases}"
    )
    print(
        format_measure(
            name,
            times.wall_seconds * WORKERS / times.total_training_seconds,
            goal,
            must,
            at_most=True,
            detail=detail,
        ),
        flush=True,
    )


def print_baseline_comparison(baseline: SearchTimes, ours: SearchTimes) -> None:
    """Print the overhead of `baseline_search` over that of memtune; above 1, memtune has less."""
    overheads = [run.wall_seconds * WORKERS - run.total_training_seconds for run in (baseline, ours)]
    ratio = baseline.wall_seconds * WORKERS / baseline.total_training_seconds
    detail = (
        f"{ratio:.2f} for the baseline: {baseline.wall_seconds:.1f} s for "
        f"{baseline.total_training_seconds:.1f} s"
    )
    print(
        format_measure(
            "overhead in seconds, connected by hand / memtune",
            overheads[0] / overheads[1],
            1.5,
            1.0,
            detail=detail,
        ),
        flush=True,
    )


def print_scaling(one: SearchTimes, two: SearchTimes) -> None:
    """Print the parallel efficiency of two workers: 1 means that they halve the wall time."""
    detail = f"{one.wall_seconds:.1f} s / {two.wall_seconds:.1f} s of wall time, one study"
    name = "parallel efficiency, wall time on 1 worker / 2 x wall time on 2 workers"
    print(
        format_measure(name, one.wall_seconds / (2 * two.wall_seconds), 0.92, 0.82, detail=detail), flush=True
    )


def print_trial_cost(store: str) -> None:
    """Print the overhead of one more trial over the start of a new worker."""
    few, many = (
        run_memtune_process(store, FEW_TRIALS, SHORT_TRIAL_TOKENS),
        run_memtune_process(store, MANY_TRIALS, SHORT_TRIAL_TOKENS),
    )
    overhead = WORKERS * (many.wall_seconds - few.wall_seconds) - (
        many.total_training_seconds - few.total_training_seconds
    )
    per_trial, start = overhead / (MANY_TRIALS - FEW_TRIALS), measure_worker_start_seconds()
    detail = f"{1e3 * per_trial:.0f} ms / {start:.1f} s"
    print(
        format_measure(
            "overhead of one more trial / start of a new worker",
            per_trial / start,
            0.02,
            0.1,
            at_most=True,
            detail=detail,
        )
    )


def print_phases(trials: int, tokens: int, workers: int = WORKERS) -> None:
    """Print the wall seconds of one search by phase."""
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as folder:
        store = f"{folder}/corpora"
        import_grammar("grammar", store)
        times = run_memtune_process(store, trials, tokens, workers)
    print(f"search of {trials} trials of {tokens:,} tokens on {workers} workers: {times.wall_seconds:.1f} s")
    for name, seconds in times.list_phases(workers).items():
        print(f"{name}: {seconds:.1f} s")


def main(*minutes: str) -> None:
    print(describe_machine())
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as folder:
        store = f"{folder}/corpora"
        import_grammar("grammar", store)
        tokens = int(60 * measure_tokens_per_second(store) / TRIALS)
        # The first runs read modules from disk; later ones find them in the page cache.
        for warm_up in (run_memtune_process, run_baseline_process):
            warm_up(store, WORKERS, SHORT_TRIAL_TOKENS)
        runs = {}
        for training_minutes in [int(text) for text in minutes] or list(OVERHEAD_BOUNDS):
            runs[training_minutes] = run_memtune_process(store, TRIALS, training_minutes * tokens)
            print_overhead(training_minutes, runs[training_minutes])
        if 1 in runs:
            print_baseline_comparison(run_baseline_process(store, TRIALS, tokens), runs[1])
            print_scaling(run_memtune_process(store, TRIALS, tokens, workers=1), runs[1])
        print_trial_cost(store)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(measure_search(sys.argv[2], *(int(text) for text in sys.argv[3:]))))
    elif sys.argv[1:2] == ["--phases"]:
        print_phases(*(int(text) for text in sys.argv[2:]))
    else:
        main(*sys.argv[1:])
