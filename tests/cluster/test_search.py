"""Complete searches with real processes: Ray, Optuna's storage, MLflow's store."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate_model
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.training import read_checkpoint
from memtune.trial_state import TrialState
from tests.cluster.drivers import Driver, load_resolved_study, read_outcomes, run_driver
from tests.cluster.study_setup import EARLY_STOPPING_TOML
from tests.presence import require

pytestmark = pytest.mark.cluster

TUNE_STEP_TIMEOUT_SECONDS = 10
"""Seconds that Ray Tune gives a worker to end a step of its training."""


@pytest.fixture
def start_search(study_file: Path, settings: Settings) -> Iterator[Callable[..., Driver]]:
    """Starts a search of the study with options."""
    with ExitStack() as drivers:
        yield lambda *options: drivers.enter_context(run_driver(study_file, *options))


def test_a_search_ends_with_every_trial_recorded_and_a_champion_that_reproduces_its_figure(
    start_search: Callable[..., Driver], study_file: Path, settings: Settings
) -> None:
    study_file.write_text(
        f"{study_file.read_text()}\n[repeats]\nbest = 1\nseeds = 2\n\n{EARLY_STOPPING_TOML}"
    )
    code, out, err = start_search().wait_for_exit()
    assert code == 0, err
    assert "new champion models:/tiny@champion" in out
    outcomes = read_outcomes(study_file, settings)
    assert len(outcomes) == 4
    assert {outcome.state for outcome in outcomes} <= {TrialState.COMPLETE, TrialState.STOPPED}
    rows = compare("tiny", settings=settings).rows
    assert len(rows) == 5, "not four configurations and one repeat"
    assert {row.state for row in rows} <= {TrialState.COMPLETE, TrialState.STOPPED}
    (champion,) = find_champions("tiny", settings)
    (original,) = {row.name.partition(" seed ")[0] for row in rows if " seed " in row.name}
    (repeat,) = [row for row in rows if row.name.startswith(f"{original} seed ")]
    cost = math.log(require(repeat.figure))
    assert champion.cost == pytest.approx(cost, rel=1e-12), "not without the seed that selected it"
    evaluated = evaluate_model("models:/tiny@champion", settings=settings)
    assert champion.trial_cost is not None
    assert math.log(evaluated.metrics.perplexity) == pytest.approx(champion.trial_cost, rel=1e-6)


@pytest.mark.long
def test_a_trial_is_promoted_on_ray_after_its_pause(
    start_search: Callable[..., Driver], study_file: Path, settings: Settings
) -> None:
    early_stopping = '[early_stopping]\nkind = "promotion"\ngrace = 300\nfactor = 2\nmax_survivors = 1\n'
    study_file.write_text(f"{study_file.read_text()}\n[resources]\nmax_concurrent = 2\n\n{early_stopping}")
    code, out, err = start_search().wait_for_exit()
    assert code == 0, err
    assert "promotion: rank" in out
    outcomes = read_outcomes(study_file, settings)
    assert {outcome.state for outcome in outcomes} == {TrialState.COMPLETE, TrialState.PAUSED}
    complete = [outcome for outcome in outcomes if outcome.state is TrialState.COMPLETE]
    assert all(len(outcome.curve) == 3 for outcome in complete)
    assert {row.trial: row.state for row in compare("tiny", settings=settings).rows} == {
        outcome.identity: outcome.state for outcome in outcomes
    }


def test_ctrl_c_ends_a_search_with_the_command_that_resumes_it(
    start_search: Callable[..., Driver], study_file: Path, settings: Settings
) -> None:
    search = start_search()
    search.wait_for_line("tokens")
    search.process.send_signal(signal.SIGINT)
    search.wait_for_line("stopping")
    code, _, err = search.wait_for_exit()
    assert code == 1
    assert f"memtune search {study_file} --resume" in err
    assert "Traceback" not in err
    states = {row.state for row in compare("tiny", settings=settings).rows}
    assert TrialState.RUNNING not in states
    assert TrialState.INTERRUPTED in states


@pytest.mark.long
def test_a_study_whose_terminal_is_interrupted_repeatedly_makes_progress(
    start_search: Callable[..., Driver], study_file: Path, settings: Settings
) -> None:
    """Ctrl-C reaches every process of the terminal, long before the only report of a trial."""
    text = study_file.read_text().replace("900", "900_000_000").replace("300", "900_000_000")
    study_file.write_text(text.replace("trials = 4", "trials = 1"))
    tokens = [0]
    for options in ([], ["--resume"], ["--resume"]):
        search = start_search(*options)
        search.wait_for_line("running")
        interruption = threading.Timer(2.0, os.killpg, (search.process.pid, signal.SIGINT))
        interruption.start()
        code, _, err = search.wait_for_exit()
        interruption.join()
        assert (code, "Traceback" in err) == (1, False)
        (trial,) = read_outcomes(study_file, settings)
        checkpoint_root = load_resolved_study(study_file, settings).checkpoint_root
        assert trial.state is TrialState.RUNNING
        with Checkpoints(checkpoint_root, trial.identity).open_newest() as folder:
            tokens.append(read_checkpoint(folder).record.position.tokens)
    assert tokens == sorted(set(tokens)), "a run did not continue from the checkpoint of the one before"


def test_ctrl_c_waits_for_no_worker_in_the_middle_of_its_training(
    start_search: Callable[..., Driver], study_file: Path, settings: Settings
) -> None:
    """A resume trains again what the worker trained since its checkpoint, as after a kill."""
    study_file.write_text(study_file.read_text().replace("900", "900_000_000").replace("300", "900_000_000"))
    search = start_search()
    search.wait_for_line("running")
    pressed = time.monotonic()
    search.process.send_signal(signal.SIGINT)
    code, out, err = search.wait_for_exit()
    assert time.monotonic() - pressed < TUNE_STEP_TIMEOUT_SECONDS
    assert (code, "Traceback" in err) == (1, False)
    assert "waiting" not in out
    open_trials = read_outcomes(study_file, settings)
    assert open_trials
    assert {trial.state for trial in open_trials} == {TrialState.RUNNING}


def test_an_unavailable_tracking_store_ends_a_search_before_it_stores_anything(
    start_search: Callable[..., Driver], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts while the store is checked, and has to end with the search."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    search = start_search()
    code, out, err = search.wait_for_exit()
    assert code == 1
    assert "no tracking server answers at http://127.0.0.1:9" in err
    assert "trial" not in out
    assert not any(Path(settings.studies_folder).glob("*/study.json"))
    with pytest.raises(ProcessLookupError):
        os.killpg(search.process.pid, 0)
