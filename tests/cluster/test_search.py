"""Whole searches with real processes: Ray, Optuna's storage, MLflow's store."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate_model
from memtune.search import Outcome
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.study import ResolvedStudy, load_study, resolve_study
from memtune.training import read_checkpoint
from memtune.trial_state import TrialState
from tests.cluster.places import EARLY_STOPPING_TOML

pytestmark = pytest.mark.cluster

PATIENCE = 240
TUNE_WAITS = 10
"""Seconds that Ray Tune gives a worker to end a step of its training."""


class Search:
    """`memtune search` in a process of its own, its events read as they come."""

    def __init__(self, study: Path, *options: str) -> None:
        command = [sys.executable, "-m", "memtune.cli", "search", str(study), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait_for(self, words: str) -> str:
        """The first line with these words; fails when the search ends without one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return line
        raise AssertionError(f"no line with {words!r}: {self.process.communicate()[1]}")

    def finish(self) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """End the driver's process group, if it is still there, and close its pipes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        with self.process:
            pass


@pytest.fixture
def run(study_file: Path, settings: Settings) -> Iterator[Callable[..., Search]]:
    started: list[Search] = []

    class Tracked(Search):
        def __init__(self, *options: str) -> None:
            super().__init__(study_file, *options)
            started.append(self)

    yield Tracked
    for search in started:
        search.kill()


def outcomes(study_file: Path, settings: Settings) -> tuple[ResolvedStudy, list[Outcome]]:
    ready = resolve_study(study_file, load_study(study_file), settings)
    return ready, ready.open_proposals().list_outcomes()


def test_a_search_ends_with_every_trial_recorded_and_a_champion_that_reproduces_its_figure(
    run: Callable[..., Search], study_file: Path, settings: Settings
) -> None:
    study_file.write_text(
        f"{study_file.read_text()}\n[repeats]\nbest = 1\nseeds = 2\n\n{EARLY_STOPPING_TOML}"
    )
    code, out, err = run().finish()
    assert code == 0, err
    assert "new champion models:/tiny@champion" in out
    _, known = outcomes(study_file, settings)
    assert len(known) == 4
    assert {outcome.state for outcome in known} <= {TrialState.COMPLETE, TrialState.STOPPED}
    rows = compare("tiny", settings=settings).rows
    assert len(rows) == 5, "four configurations and one repeat"
    assert {row.state for row in rows} <= {TrialState.COMPLETE, TrialState.STOPPED}
    (champion,) = find_champions("tiny", settings)
    (original,) = {row.name.partition(" seed ")[0] for row in rows if " seed " in row.name}
    costs = [math.log(row.figure) for row in rows if row.name.partition(" seed ")[0] == original]
    assert champion.cost == pytest.approx(sum(costs) / 2, rel=1e-12), "the mean over both seeds"
    evaluated = evaluate_model("models:/tiny@champion", settings=settings)
    assert champion.trial_cost is not None
    assert math.log(evaluated.metrics.perplexity) == pytest.approx(champion.trial_cost, rel=1e-6)


def test_a_trial_is_promoted_on_ray_after_its_pause(
    run: type[Search], study_file: Path, settings: Settings
) -> None:
    early_stopping = '[early_stopping]\nkind = "promotion"\ngrace = 300\nfactor = 2\nmax_survivors = 1\n'
    study_file.write_text(f"{study_file.read_text()}\n[resources]\nmax_concurrent = 2\n\n{early_stopping}")
    code, out, err = run().finish()  # type: ignore[call-arg]
    assert code == 0, err
    assert "promotion: rank" in out
    _, known = outcomes(study_file, settings)
    assert {outcome.state for outcome in known} == {TrialState.COMPLETE, TrialState.PAUSED}
    complete = [outcome for outcome in known if outcome.state is TrialState.COMPLETE]
    assert all(len(outcome.curve) == 3 for outcome in complete)
    assert {row.trial: row.state for row in compare("tiny", settings=settings).rows} == {
        outcome.identity: outcome.state for outcome in known
    }


def test_ctrl_c_stops_in_order_and_tells_how_to_resume(
    run: Callable[..., Search], study_file: Path, settings: Settings
) -> None:
    search = run()
    search.wait_for("tokens")
    search.process.send_signal(signal.SIGINT)
    search.wait_for("stopping")
    code, _, err = search.finish()
    assert code == 1
    assert f"memtune search {study_file} --resume" in err
    assert "Traceback" not in err
    states = {row.state for row in compare("tiny", settings=settings).rows}
    assert TrialState.RUNNING not in states
    assert TrialState.INTERRUPTED in states


def test_a_study_whose_terminal_is_interrupted_repeatedly_makes_progress(
    run: Callable[..., Search], study_file: Path, settings: Settings
) -> None:
    """Ctrl-C reaches every process of the terminal, long before the only report of a trial."""
    text = study_file.read_text().replace("900", "900_000_000").replace("300", "900_000_000")
    study_file.write_text(text.replace("trials = 4", "trials = 1"))
    tokens = [0]
    for options in ([], ["--resume"], ["--resume"]):
        search = run(*options)
        search.wait_for("running")
        interruption = threading.Timer(2.0, os.killpg, (search.process.pid, signal.SIGINT))
        interruption.start()
        code, _, err = search.finish()
        interruption.join()
        assert (code, "Traceback" in err) == (1, False)
        ready, (trial,) = outcomes(study_file, settings)
        assert trial.state is TrialState.RUNNING
        with Checkpoints(ready.checkpoint_root, trial.identity).open_newest() as folder:
            tokens.append(read_checkpoint(folder).record.position.tokens)
    assert tokens == sorted(set(tokens)), "each run continued from the checkpoint of the one before"


def test_ctrl_c_waits_for_no_worker_in_the_middle_of_its_training(
    run: Callable[..., Search], study_file: Path, settings: Settings
) -> None:
    """What it trained since its checkpoint is trained again by a resume, as after any other end."""
    study_file.write_text(study_file.read_text().replace("900", "900_000_000").replace("300", "900_000_000"))
    search = run()
    search.wait_for("running")
    pressed = time.monotonic()
    search.process.send_signal(signal.SIGINT)
    code, out, err = search.finish()
    assert time.monotonic() - pressed < TUNE_WAITS
    assert (code, "Traceback" in err) == (1, False)
    assert "waiting" not in out
    _, open_trials = outcomes(study_file, settings)
    assert open_trials
    assert {trial.state for trial in open_trials} == {TrialState.RUNNING}


def test_a_tracking_store_that_does_not_answer_ends_a_search_before_anything_is_left(
    run: Callable[..., Search], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts beside the question to the store: it has to be gone again."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    search = run()
    code, out, err = search.finish()
    assert code == 1
    assert "no tracking server answers at http://127.0.0.1:9" in err
    assert "trial" not in out
    assert not any(Path(settings.studies_folder).glob("*/study.json"))
    with pytest.raises(ProcessLookupError):
        os.killpg(search.process.pid, 0)
