"""What a search costs beside its training: wall time x workers over the seconds its trials trained.

Real studies on the embedded corpus with workers of one core, halving off so that every trial trains its
budget; each in a process of its own, for what is imported or started once would be free for the next. The
seconds of a trial are those its learner measured, evaluations included; everything else from the call of
the search on (Ray's start and end, what it and its workers import, a new tracking store, scheduling,
sampling, records, checkpoints, an idle worker at the end) is overhead. Gated: every trial must have ended in
order with its whole curve.

- Overhead of a minute and of ten minutes of training on two workers.
- The same minute with Tune, Optuna and MLflow wired together by hand (`plain_wiring`).
- The same minute on one worker: what a second worker is worth.
- What one more trial costs its worker, from two studies of short trials, against a fresh worker's start: an
  actor of Ray that imports what a trial needs.

    python -m benchmarks.search_overhead [MINUTES ...]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import ray

from benchmarks.side_by_side import line
from memtune.corpora import open_corpus
from memtune.corpora.grammar import import_grammar
from memtune.execution.cluster import connected
from memtune.execution.search import search
from memtune.execution.settings import Settings
from memtune.execution.study import load_study, prepare
from memtune.spaces import RandomChooser
from memtune.tracking import leaderboard
from memtune.tracking.connection import connect
from memtune.training import new_learner

WORKERS = 2
TRIALS = 8
SHORT, FEW, MANY = 2_000, 4, 24
PROBE = 500_000
"""Tokens of the trial whose speed tells how many a minute holds."""
BOUNDS = {1: (1.12, 1.20), 10: (1.05, 1.10)}
"""Goal and must of the overhead by minutes of training."""
STUDY = """question = "What does a search cost beside its training?"

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

[budget]
trials = {trials}

[resources]
max_concurrent = {workers}
"""
SPACE = """
[model]
family = "lstm"
width = 64

[training.optimiser]
kind = "adam"
learning_rate = { float = [1e-3, 1e-2], log = true }
"""


class Run(NamedTuple):
    """Wall seconds of a search, and the training seconds of its trials."""

    wall: float
    seconds: list[float]

    @property
    def trained(self) -> float:
        """Training seconds in all."""
        return sum(self.seconds)


def write_study(folder: Path, trials: int, tokens: int, workers: int) -> Path:
    """The study's file, with its space beside it."""
    (folder / "lstm.toml").write_text(SPACE)
    study = folder / "overhead.toml"
    study.write_text(STUDY.format(trials=trials, tokens=tokens, report_every=tokens // 2, workers=workers))
    return study


def run(store: str, trials: int, tokens: int, workers: int) -> Run:
    """One search in this process, in a home of its own."""
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as name:
        folder = Path(name)
        settings = Settings.read(folder / "home").model_copy(update={"store": store})
        study = write_study(folder, trials, tokens, workers)
        began = time.perf_counter()
        search(study, settings=settings)
        wall = time.perf_counter() - began
        client = connect(settings.tracking)
        rows = leaderboard(settings.tracking, "grammar")
        if len(rows) != trials or any(row.state != "finished" or row.tokens < tokens for row in rows):
            raise SystemExit("refused: not every trial ended in order with its whole curve")
        return Run(wall, [client.get_metric_history(row.run_id, "seconds")[-1].value for row in rows])


def apart(store: str, trials: int, tokens: int, workers: int = WORKERS) -> Run:
    """A memtune search in a new process."""
    return in_process("benchmarks.search_overhead", "--run", store, str(trials), str(tokens), str(workers))


def by_hand(store: str, trials: int, tokens: int) -> Run:
    """The plain wiring in a new process."""
    return in_process("benchmarks.plain_wiring", store, str(trials), str(tokens), str(WORKERS))


def in_process(module: str, *arguments: str) -> Run:
    """What a module printed last, run in a process whose imports Python may cache as it always does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        check=True,
    )
    return Run(*json.loads(done.stdout.splitlines()[-1]))


def speed(store: str) -> float:
    """Tokens a second of one trial, evaluations included, with nothing beside it."""
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as name:
        settings = Settings.read(Path(name) / "home").model_copy(update={"store": store})
        study = write_study(Path(name), 1, PROBE, 1)
        ready = prepare(study, load_study(study), settings)
        learner = new_learner(ready.sample(RandomChooser(0)), open_corpus("grammar", store))
        learner.advance()
        return learner.advance().tokens / learner.curve[-1].seconds


class Fresh:
    """A worker without a trial."""

    def ready(self) -> None:
        """Import what a trial needs."""
        import memtune.execution.trial  # noqa: F401


def start_of_a_worker() -> float:
    """Median seconds from asking for a new worker to its being ready for a trial."""
    with connected(None):
        time.sleep(3)  # Ray has a worker for each core in store; they are not what is measured here
        taken = [ray.remote(num_cpus=0)(Fresh).remote() for _ in range(os.cpu_count() or 1)]
        ray.get([worker.ready.remote() for worker in taken])
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            worker = ray.remote(num_cpus=0)(Fresh).remote()
            ray.get(worker.ready.remote())
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds)


def tell_overhead(minutes: int, ran: Run) -> None:
    """The ratio; lower is better, 1 is a search that costs nothing."""
    goal, must = BOUNDS.get(minutes, BOUNDS[1])
    name = f"search wall time x {WORKERS} workers / training time, about {minutes} min of training"
    detail = f"{ran.wall:.1f} s for {ran.trained:.1f} s of {len(ran.seconds)} trials"
    print(line(name, ran.wall * WORKERS / ran.trained, goal, must, at_most=True, detail=detail), flush=True)


def tell_by_hand(plain: Run, ours: Run) -> None:
    """How many times the time beside the training of the plain wiring is that of memtune; above 1 is less."""
    beside = [run.wall * WORKERS - run.trained for run in (plain, ours)]
    overhead = plain.wall * WORKERS / plain.trained
    detail = f"{overhead:.2f} by hand: {plain.wall:.1f} s for {plain.trained:.1f} s"
    print(
        line("time beside training, wired by hand / memtune", beside[0] / beside[1], 1, detail=detail),
        flush=True,
    )


def tell_scaling(one: Run, two: Run) -> None:
    """Wall time on one worker over that of twice as many, a share of each; 1 is perfect."""
    detail = f"{one.wall:.1f} s / {two.wall:.1f} s of wall time, one study"
    name = "search on 1 worker / on 2 workers, of each of them"
    print(line(name, one.wall / (2 * two.wall), 0.92, 0.82, detail=detail), flush=True)


def tell_trial(store: str) -> None:
    """What one more trial takes its worker beside its training, of a fresh worker's start."""
    few, many = apart(store, FEW, SHORT), apart(store, MANY, SHORT)
    beside = WORKERS * (many.wall - few.wall) - (many.trained - few.trained)
    each, fresh = beside / (MANY - FEW), start_of_a_worker()
    detail = f"{1e3 * each:.0f} ms / {fresh:.1f} s"
    print(
        line("one more trial / a fresh worker's start", each / fresh, 0.02, 0.1, at_most=True, detail=detail)
    )


def main(*minutes: str) -> None:
    with tempfile.TemporaryDirectory(prefix="memtune-overhead-") as folder:
        store = f"{folder}/corpora"
        import_grammar("grammar", store)
        tokens = int(60 * speed(store) / TRIALS)
        for warm_up in (apart, by_hand):  # what they read from disk is in memory from here on
            warm_up(store, WORKERS, SHORT)
        runs = {}
        for asked in [int(text) for text in minutes] or list(BOUNDS):
            runs[asked] = apart(store, TRIALS, asked * tokens)
            tell_overhead(asked, runs[asked])
        if 1 in runs:
            tell_by_hand(by_hand(store, TRIALS, tokens), runs[1])
            tell_scaling(apart(store, TRIALS, tokens, workers=1), runs[1])
        tell_trial(store)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(run(sys.argv[2], *(int(text) for text in sys.argv[3:]))))
    else:
        main(*sys.argv[1:])
