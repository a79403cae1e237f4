"""Complete searches with real processes: Ray, Optuna's storage, MLflow's store."""

import math
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.trial_state import TrialState
from tests.cluster.drivers import (
    Driver,
    find_run_folder,
    find_trial_processes,
    load_resolved_study,
    open_temporary_folder,
    read_files,
    read_outcomes,
    run_driver,
)
from tests.cluster.poll import poll_until
from tests.cluster.study_setup import EARLY_STOPPING_TOML, lengthen
from tests.conftest import import_tiny_corpus, open_home, write_study
from tests.presence import require

pytestmark = pytest.mark.cluster

TUNE_STEP_TIMEOUT_SECONDS = 10
"""Seconds that Ray Tune gives a worker to end a step of its training."""
TRAINING_SECONDS = 2.0
"""Of a worker before it is interrupted."""
CANARIES = {
    name: f"canary{secrets.token_hex(12)}"
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SECURITY_TOKEN",
        "RAY_AUTH_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
        "PGPASSWORD",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "GOOGLE_API_KEY",
        "AZURE_STORAGE_KEY",
        "WANDB_API_KEY",
        "GITHUB_TOKEN",
    )
}
"""Secrets of a search's environment."""


@dataclass(frozen=True)
class EndedSearch:
    """A search, and what was seen of it."""

    study_file: Path
    settings: Settings
    temporary_folder: Path
    """Its temporary folder, which only it uses. Its home folder is in it."""
    code: int
    out: str
    err: str
    stop_seconds: float = 0.0
    """Between Ctrl-C and its end."""
    secrets_in_logs: dict[str, str] = field(default_factory=dict)
    """The secrets of its environment that files of its temporary folder contained while it ran."""


@contextmanager
def open_study(
    factory: pytest.TempPathFactory, empty_store: Path, cache: Path
) -> Iterator[tuple[Path, Settings, dict[str, str]]]:
    """A study in a home of its own, and the variables of a home folder and a temporary folder of its own."""
    folder = factory.mktemp("search")
    with (
        open_home(folder, empty_store) as settings,
        open_temporary_folder() as temporary_folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        # torch's compiler, once imported by a test, sets it to a folder of another process
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        shutil.copytree(cache, folder / "cache")
        import_tiny_corpus(settings)
        (home := temporary_folder / "home").mkdir()
        yield (
            write_study(folder),
            settings,
            {"TMPDIR": str(temporary_folder), "HOME": str(home), "RAY_TMPDIR": ""},
        )


@pytest.fixture(scope="module")
def completed(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path, filled_cache: Path
) -> Iterator[EndedSearch]:
    """A search with early stopping and repeats."""
    with open_study(tmp_path_factory, empty_store, filled_cache) as (study_file, settings, environment):
        terms = f"\n[repeats]\nbest = 1\nseeds = 2\n\n{EARLY_STOPPING_TOML}"
        study_file.write_text(study_file.read_text() + terms)
        with run_driver(study_file, environment=environment) as driver:
            ended = driver.wait_for_exit()
        yield EndedSearch(study_file, settings, Path(environment["TMPDIR"]), *ended)


@pytest.fixture(scope="module")
def interrupted(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path, filled_cache: Path
) -> Iterator[EndedSearch]:
    """A search with secrets in its environment, ended by Ctrl-C in the middle of its training.

    Ray's logs are searched while they exist, during a stop of the driver.
    """
    with open_study(tmp_path_factory, empty_store, filled_cache) as (study_file, settings, environment):
        lengthen(study_file)
        temporary_folder = Path(environment["TMPDIR"])
        with run_driver(study_file, "--trials", "1", environment=environment | CANARIES) as driver:
            driver.wait_for_line("running")
            driver.process.send_signal(signal.SIGSTOP)
            logs = find_run_folder(temporary_folder) / "ray" / "session_latest" / "logs"
            poll_until((logs / "runtime_env_agent.log").exists, "the log of Ray's agent")
            found = find_canaries(temporary_folder)
            driver.process.send_signal(signal.SIGCONT)
            driver.process.send_signal(signal.SIGINT)
            pressed = time.monotonic()
            driver.wait_for_line("stopping")
            ended = driver.wait_for_exit()
        seconds = time.monotonic() - pressed
        yield EndedSearch(study_file, settings, temporary_folder, *ended, seconds, found)


def find_canaries(folder: Path) -> dict[str, str]:
    """The secrets that files below a folder contain, with one of the files."""
    found: dict[str, str] = {}
    for path, content in read_files(folder).items():
        found |= {name: str(path) for name, canary in CANARIES.items() if canary.encode() in content}
    return found


def test_a_search_ends_with_every_trial_recorded_and_a_champion_that_reproduces_its_figure(
    completed: EndedSearch,
) -> None:
    settings = completed.settings
    assert completed.code == 0, completed.err
    assert "new champion models:/tiny@champion" in completed.out
    outcomes = read_outcomes(completed.study_file, settings)
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
    evaluated = evaluate("models:/tiny@champion", settings=settings)
    assert champion.trial_cost is not None
    assert math.log(evaluated.metrics.perplexity) == pytest.approx(champion.trial_cost, rel=1e-6)


def test_a_search_leaves_no_temporary_file(completed: EndedSearch) -> None:
    folder = completed.temporary_folder
    assert not list(folder.glob("memtune_*/*"))
    assert {path.name for path in folder.iterdir()} <= {"home", f"memtune_{os.geteuid()}"}
    assert not (folder / "home" / ".ray" / "auth_token").exists()


def test_ctrl_c_ends_a_search_with_the_command_that_resumes_it(interrupted: EndedSearch) -> None:
    assert interrupted.code == 1
    assert f"memtune search {interrupted.study_file} --resume" in interrupted.err
    assert "Traceback" not in interrupted.err
    states = {row.state for row in compare("tiny", settings=interrupted.settings).rows}
    assert TrialState.RUNNING not in states
    assert TrialState.INTERRUPTED in states


def test_ctrl_c_waits_for_no_worker_in_the_middle_of_its_training(interrupted: EndedSearch) -> None:
    """A resume trains again what the worker trained since its checkpoint, as after a kill."""
    assert interrupted.stop_seconds < TUNE_STEP_TIMEOUT_SECONDS
    assert "waiting" not in interrupted.out
    open_trials = read_outcomes(interrupted.study_file, interrupted.settings)
    assert open_trials
    assert {trial.state for trial in open_trials} == {TrialState.RUNNING}


def test_no_secret_of_the_environment_reaches_a_file(interrupted: EndedSearch) -> None:
    assert interrupted.secrets_in_logs == {}
    assert not [name for name, canary in CANARIES.items() if canary in interrupted.out + interrupted.err]
    for folder in (interrupted.temporary_folder, interrupted.settings.home, interrupted.study_file.parent):
        assert find_canaries(folder) == {}


@pytest.fixture
def start_search(study_file: Path, settings: Settings) -> Iterator[Callable[..., Driver]]:
    """Starts a search of the study with options."""
    with ExitStack() as drivers:
        yield lambda *options: drivers.enter_context(run_driver(study_file, *options))


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


def wait_for_training(search: Driver) -> None:
    """Wait until the only worker has computed for TRAINING_SECONDS, however busy the machine is."""
    (worker,) = poll_until(lambda: find_trial_processes(search.process.pid), "a worker")
    begun = read_cpu_seconds(worker)
    poll_until(lambda: read_cpu_seconds(worker) > begun + TRAINING_SECONDS, "training")


def read_cpu_seconds(process: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_a_study_whose_terminal_is_interrupted_repeatedly_makes_progress(
    start_search: Callable[..., Driver], study_file: Path, settings: Settings
) -> None:
    """Ctrl-C reaches every process of the terminal, long before the only report of a trial."""
    lengthen(study_file)
    tokens = [0]
    for options in ([], ["--resume"], ["--resume"]):
        search = start_search("--trials", "1", *options)
        search.wait_for_line("running")
        wait_for_training(search)
        os.killpg(search.process.pid, signal.SIGINT)
        code, _, err = search.wait_for_exit()
        assert (code, "Traceback" in err) == (1, False)
        (trial,) = read_outcomes(study_file, settings)
        checkpoint_root = load_resolved_study(study_file, settings).checkpoint_root
        assert trial.state is TrialState.RUNNING
        tokens.append(Checkpoints(checkpoint_root, trial.identity).read().record.position.tokens)
    assert tokens == sorted(set(tokens)), "a run did not continue from the checkpoint of the one before"


def test_an_unavailable_tracking_store_ends_a_search_before_it_stores_anything(
    start_search: Callable[..., Driver], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts while the store is checked, and has to end with the search."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    search = start_search("--trials", "1")
    code, out, err = search.wait_for_exit()
    assert code == 1
    assert "no tracking server answers at http://127.0.0.1:9" in err
    assert "trial" not in out
    assert not any(Path(settings.studies_folder).glob("*/study.json"))
    with pytest.raises(ProcessLookupError):
        os.killpg(search.process.pid, 0)
