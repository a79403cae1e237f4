"""Kill a study's driver at its writes, resume it, and compare its records with those of an undisturbed run.

    python -m tests.cluster.kill_loop --kills 200 [--between FIRST LAST] [--ray | --shared]

A tiny study with early stopping and repeats runs in a process that a library kills with SIGKILL at a chosen
write to the home folder (see `kill_points`). The chosen writes are spread over all writes of an undisturbed
run, or over those between two. Trials train in the driver's own process, so that the writes of checkpoints
are among them. With `--ray` they train on a private Ray instance, and the writes are those of the driver
alone. With `--shared` the instance outlives the drivers, and its workers store another checkpoint after the
kill.

Compared bit for bit: trials, curves and ends in Optuna; metrics, parameters and states in MLflow; weights and
optimiser states in checkpoints; the registered model; the files that remain. Of the figures that a study's
run shows while it is open, the last ones are compared. Measurements of time and memory are left out, and with
`--shared` the checkpoints, which may have more tokens than their trial.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import memtune.reports.report_page.page  # noqa: F401 - which each child of a fork would load again
from memtune.api import run_search
from memtune.corpora import import_corpus
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import check_tracking
from tests.cluster import kill_points
from tests.cluster.drivers import load_resolved_study, read_outcomes, start_ray_instance
from tests.cluster.study_setup import STUDY_TOML
from tests.conftest import SENTENCES, SPACE_TOML

__all__ = ["KillLoop", "Tally", "run_with_library"]

MEASURED_WORDS = ("second", "hours", "memory", "duration")
"""Metrics and fields with such a word in their name are measurements, which differ from run to run."""
MEASURED_FIELDS = frozenset(
    {"tokens_per_second", "seconds", "cpu_seconds", "gpu_seconds", "usage", "peak_memory_bytes", "digest"}
)
LOG_CHARACTERS = 1500
PROGRESS_KILLS = 10
REPEATS = "\n[repeats]\nbest = 1\nseeds = 2\n"


@dataclass
class Tally:
    """The results of the kills."""

    kills: int = 0
    writes: int = 0
    """Writes of the undisturbed run."""
    differences: list[str] = field(default_factory=list)


class KillLoop:
    """Runs one study again and again in a folder; the process must have been started with the library."""

    def __init__(self, folder: Path, uses_ray: bool = False, shared: dict[str, str] | None = None) -> None:
        """Import the corpus, create MLflow's tables and write the study in `folder`, which must be empty.

        `shared` is the environment in which a driver joins a Ray instance that outlives it. Two thirds of the
        writes of a first study create MLflow's tables. They have a test of their own.
        """
        self._template, self._folder, self._uses_ray = folder / "template", folder / "run", uses_ray
        self._shared = shared
        self._result_file = folder / "result.json"
        self._log = folder / "log"
        self._template.mkdir()
        self._run_forked(self._write_template)
        self._run_forked(lambda: check_tracking(f"sqlite:///{self._template}/home/mlflow.db"))

    def run(
        self, kills: int, report: Callable[[str], object], between: tuple[int, int] | None = None
    ) -> Tally:
        """Run the study undisturbed, then with a kill at each of `kills` writes; compare each.

        `between` are the first and the last write to kill at; None is all of them.
        """
        shutil.copytree(self._template, self._folder)
        self._run_driver(0, resume=False)
        tally = Tally(writes=int(self._folder.with_suffix(".writes").read_text()))
        undisturbed = self._collect()
        for index in range(kills):
            # Spread over all writes, even and odd: the library cuts odd ones in half.
            first, last = between or (1, tally.writes)
            kill_at = first + index * (last - first + 1) // kills
            was_killed, found = self._run_with_kill(kill_at)
            tally.kills += was_killed
            difference = describe_difference(undisturbed, found)
            if difference:
                tally.differences.append(f"killed at write {kill_at}: {difference}")
                report(tally.differences[-1])
            if tally.kills % PROGRESS_KILLS == 0:
                report(f"{tally.kills} kills, up to write {kill_at:,} of {tally.writes:,}")
        return tally

    def run_at(self, kill_at: int) -> dict[str, Any]:
        """What the study stored after a kill at a write and a resume."""
        return self._run_with_kill(kill_at)[1]

    def _run_with_kill(self, kill_at: int) -> tuple[bool, dict[str, Any]]:
        """Whether the driver was killed, and what the study stored after a resume."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._template, self._folder)
        code = self._run_driver(kill_at, resume=False)
        was_killed = code == -signal.SIGKILL
        if was_killed:
            # A study has not begun before its first trial is stored, and --resume refuses it.
            resumed = self._run_driver(0, resume=True) and self._run_driver(0, resume=False)
            if resumed:
                return True, {"a resume failed": self._log.read_text()[-LOG_CHARACTERS:]}
        return was_killed, self._collect()

    @property
    def _study_file(self) -> Path:
        return self._folder / "layers.toml"

    @property
    def _home(self) -> Path:
        return self._folder / "home"

    def _write_template(self) -> None:
        settings = Settings.from_environment(self._template / "home")
        splits = dict.fromkeys(("train", "valid", "test"), SENTENCES * 20)
        import_corpus("tiny", splits, settings.corpus_store)
        (self._template / "space.toml").write_text(SPACE_TOML)
        (self._template / "layers.toml").write_text(STUDY_TOML.format(seed=0) + REPEATS)

    def _run_driver(self, kill_at: int, *, resume: bool) -> int:
        """Exit code of a driver; it is killed at its write of that number (0: never)."""
        if not self._uses_ray and self._shared is None:
            return self._run_forked(lambda: self._search(kill_at, resume))
        command = [sys.executable, "-m", "memtune.cli", "search", str(self._study_file)]
        variables = {
            kill_points.KILL_AT_VARIABLE: str(kill_at),
            kill_points.KILL_FOLDER_VARIABLE: str(self._folder),
        }
        environment = os.environ | {"MEMTUNE_HOME": str(self._home)} | variables | (self._shared or {})
        with self._log.open("wb") as log:
            options = ["--resume"] if resume else []
            return subprocess.run([*command, *options], stdout=log, stderr=log, env=environment).returncode

    def _search(self, kill_at: int, resume: bool) -> None:
        kill_points.arm(kill_at, self._folder)
        settings = Settings.from_environment(self._home)
        run_search(self._study_file, resume=resume, settings=settings, executor=InProcessExecutor())
        self._folder.with_suffix(".writes").write_text(str(kill_points.read_count()))

    def _collect(self) -> dict[str, Any]:
        """What the study stored."""

        def write() -> None:
            found = collect_records(self._study_file, self._home)
            if self._shared is not None:
                del found["checkpoints"], found["files of checkpoints"]
            self._result_file.write_text(json.dumps(found, default=str))

        code = self._run_forked(write)
        if code:
            return {"a record is unreadable": self._log.read_text()[-LOG_CHARACTERS:]}
        result: dict[str, Any] = json.loads(self._result_file.read_text())
        return result

    def _run_forked(self, action: Callable[[], object]) -> int:
        """Exit code of a forked child that runs `action`; its modules are already imported."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                log = os.open(self._log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
                os.dup2(log, 1)
                os.dup2(log, 2)
                action()
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def collect_records(study_file: Path, home: Path) -> dict[str, Any]:
    """Everything that a study stored and that an undisturbed run stores too, by name."""
    settings = Settings.from_environment(home)
    outcomes = read_outcomes(study_file, settings)
    root = Path(load_resolved_study(study_file, settings).checkpoint_root)
    return {
        "Optuna": [
            [each.identity, each.state, each.value, sorted(each.curve.items()), str(each.end)]
            for each in outcomes
        ],
        "MLflow": collect_runs(home / "mlflow.db"),
        "checkpoints": {path.name: collect_checkpoints(path) for path in sorted(root.iterdir())},
        "files of checkpoints": {path.name: list_checkpoint_files(path) for path in sorted(root.iterdir())},
        "temporary files": [path.name for path in Path(tempfile.gettempdir()).glob("memtune-scratch-*")],
    }


def list_checkpoint_files(folder: Path) -> list[str]:
    """The names in a trial's folder without those of writers: two checkpoints and the index."""
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


def collect_runs(database: Path) -> dict[str, Any]:
    """State, parameters and metrics of each run, by name, and the models of the registry."""
    with closing(sqlite3.connect(database)) as store:
        found: dict[str, Any] = {
            "models": store.execute("SELECT name, version FROM model_versions").fetchall()
        }
        runs = store.execute("SELECT run_uuid, status, name FROM runs WHERE lifecycle_stage = 'active'")
        for run, status, name in runs.fetchall():
            identity = store.execute(
                "SELECT value FROM tags WHERE run_uuid = ? AND key = 'memtune.trial'", [run]
            ).fetchone()
            # A study's run shows the moments that its drivers saw; only what it shows at last is comparable.
            metrics = store.execute(
                "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY key, step"
                if identity
                else "SELECT key, step, value, is_nan FROM latest_metrics WHERE run_uuid = ? ORDER BY key",
                [run],
            )
            parameters = store.execute("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", [run])
            entry = {
                "status": status,
                "metrics": [row for row in metrics if not is_measured(row[0])],
                "parameters": parameters.fetchall(),
            }
            found.setdefault(identity[0] if identity else strip_number(name), []).append(entry)
    return found


def is_measured(name: str) -> bool:
    return any(word in name for word in MEASURED_WORDS)


def strip_number(name: str) -> str:
    """A run's name without its trial's number, which skips proposals that a kill interrupted."""
    return name.partition("#")[0]


def collect_checkpoints(folder: Path) -> dict[str, Any]:
    """The checkpoints in a trial's index by their tokens: digests of weights, and records."""
    names = json.loads((folder / "latest.json").read_text())
    found: dict[str, Any] = {}
    for name in names:
        files = sorted((folder / name).iterdir())
        found[name.partition("-")[0]] = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.suffix == ".safetensors"
        } | {
            path.name: drop_measurements(json.loads(path.read_text()))
            for path in files
            if path.suffix == ".json"
        }
    return found


def drop_measurements(value: Any) -> Any:
    """A record without its measurements."""
    if isinstance(value, dict):
        return {
            key: drop_measurements(item)
            for key, item in value.items()
            if key not in MEASURED_FIELDS and not is_measured(key)
        }
    return [drop_measurements(item) for item in value] if isinstance(value, list) else value


def describe_difference(expected: Any, found: Any, where: str = "") -> str:
    """The first place where two values differ, and both values; "" where they are equal."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}, key=lambda key: (key in expected, key)):
            if difference := describe_difference(expected.get(key), found.get(key), f"{where}/{key}"):
                return difference
        return ""
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return next(
            (text for index, (a, b) in pairs if (text := describe_difference(a, b, f"{where}/{index}"))), ""
        )
    return (
        "" if expected == found else f"{where}: {str(expected)[:300]} became {str(found)[-LOG_CHARACTERS:]}"
    )


@contextmanager
def make_temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="memtune-kills-") as folder:
        yield Path(folder)


def run_with_library(
    arguments: list[str], folder: Path, output: int | None = subprocess.PIPE
) -> "subprocess.CompletedProcess[str]":
    """Run this module in a process that has the library; its output is captured, or printed for None."""
    library = kill_points.build_library(folder)
    assert library is not None, "the kill loop needs a C compiler"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMTUNE_")}
    environment |= {
        "LD_PRELOAD": str(library),
        "OMP_NUM_THREADS": "1",
        "MEMTUNE_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "temporary"),
        "RAY_TMPDIR": tempfile.gettempdir(),
    }
    (folder / "temporary").mkdir()
    command = [sys.executable, "-m", "tests.cluster.kill_loop", "--loaded", *arguments]
    return subprocess.run(command, env=environment, text=True, stdout=output)


def main() -> None:
    """Kill and compare; print differences and the number of kills; exit code 1 for a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--between", type=int, nargs=2, metavar=("FIRST", "LAST"), help="default: all writes")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--ray", action="store_true", help="train on a private Ray instance")
    where.add_argument("--shared", action="store_true", help="train on a Ray instance that drivers share")
    parser.add_argument("--loaded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with make_temporary_folder() as folder:
        if not options.loaded:
            sys.exit(run_with_library(sys.argv[1:], folder, None).returncode)
        with start_ray_instance(1) if options.shared else nullcontext() as instance:
            loop = KillLoop(folder, options.ray, instance.environment if instance else None)
            between = tuple(options.between) if options.between else None
            tally = loop.run(options.kills, lambda line: print(line, flush=True), between)
    print(f"{tally.kills} kills over {tally.writes} writes, {len(tally.differences)} studies differ")
    sys.exit(bool(tally.differences))


if __name__ == "__main__":
    main()
