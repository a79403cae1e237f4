"""A study over PostgreSQL, MLflow with passwords and an object store; servers stop while it runs."""

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from mlflow.server import get_app_client
from psycopg import sql
from pyarrow import fs

from memtune.corpora import import_corpus
from memtune.corpora.grammar.embedded_corpus import generate_sentences
from memtune.errors import TrackingError
from memtune.results.comparison import compare, find_champions
from memtune.results.model_evaluation import evaluate
from memtune.search import StoredTrial
from memtune.search.database.study_database import ANSWER_TIMEOUT_SECONDS
from memtune.settings import Settings
from memtune.tracking import Recorder
from memtune.tracking.mlflow_connection import check_tracking, connect
from memtune.trial_state import TrialState
from tests.cluster.drivers import list_processes, read_files, read_outcomes, run_driver
from tests.cluster.fault_table import RecordFault
from tests.cluster.servers import MlflowServer, ObjectStore, Postgres, Secrets
from tests.conftest import SPACE_TOML

pytestmark = pytest.mark.cluster

STUDY = """question = "Does a second layer help?"

corpus = "grammar"
spaces = ["space.toml"]

[training]
tokens = 24_000
report_every = 2_000

[early_stopping]
kind = "none"

[budget]
trials = 3
"""
REPORTS = 12


@dataclass(frozen=True)
class InterruptedStudy:
    """A study whose servers were stopped while it ran."""

    file: Path
    output: str
    outcomes: list[StoredTrial]
    settings: Settings
    commands: list[str]
    """The command lines of all processes while it ran."""
    ray_files: dict[Path, bytes]
    """The files of its Ray by path, read while it ran: they are removed at its end."""


@pytest.fixture(scope="module")
def environment(
    running_postgres: Postgres,
    running_mlflow: MlflowServer,
    object_store: ObjectStore,
    secrets: Secrets,
    tmp_path_factory: pytest.TempPathFactory,
    filled_cache: Path,
) -> Iterator[dict[str, str]]:
    """A user's environment: locations in variables, passwords and keys in files."""
    home = tmp_path_factory.mktemp("user")
    secrets.install(home, running_postgres.port)
    (home / ".aws").mkdir()
    keys = [f"{name.lower()} = {value}" for name, value in object_store.credentials.items()]
    (home / ".aws" / "credentials").write_text("\n".join(["[default]", *keys]))
    object_store.make_bucket("study")
    shutil.copytree(filled_cache, home / "cache")
    chosen = {
        "HOME": str(home),
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": object_store.address,
        "MEMTUNE_HOME": str(home / "memtune"),
        "MEMTUNE_CACHE": str(home / "cache"),
        "MEMTUNE_STORE": "s3://study/corpora",
        "MEMTUNE_STUDIES": "s3://study/studies",
        "MEMTUNE_PROPOSALS": running_postgres.url,
        "MLFLOW_TRACKING_URI": running_mlflow.uri,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "PG", "MLFLOW_", "RAY_"))]:
            patch.delenv(name)
        for name, value in chosen.items():
            patch.setenv(name, value)
        yield chosen


@pytest.fixture(scope="module")
def interrupted_study(
    environment: dict[str, str], running_postgres: Postgres, running_mlflow: MlflowServer
) -> Iterator[InterruptedStudy]:
    """A study during which PostgreSQL hung, and then PostgreSQL and MLflow's server restarted."""
    settings = Settings.from_environment()
    drawn = {
        split: [one.words for one in generate_sentences(split, 60)] for split in ("train", "valid", "test")
    }
    import_corpus("grammar", drawn, settings.corpus_store)
    (settings.home / "space.toml").write_text(SPACE_TOML)
    file = settings.home / "layers.toml"
    file.write_text(STUDY)
    with (
        tempfile.TemporaryDirectory(prefix="mt-") as ray,  # a short path, because Ray's sockets are below it
        run_driver(file, environment={"RAY_TMPDIR": ray}) as driver,
    ):
        driver.wait_for_line("tokens")
        with running_postgres.suspend():
            driver.wait_for_error_line("is unavailable; training continues")
        driver.wait_for_error_line("database is available again")
        running_mlflow.kill()
        running_postgres.stop(signal.SIGQUIT)
        driver.wait_for_error_line("is unavailable; training continues", 2)
        line_count = len([line for line in driver.lines if "tokens" in line])
        driver.wait_for_line("tokens", line_count + 3)
        running_postgres.start()
        commands = [command for _, _, command in list_processes()]
        ray_files = read_files(Path(ray))
        running_mlflow.start()
        output = driver.wait_for_success() + "".join(driver.errors)
        yield InterruptedStudy(file, output, read_outcomes(file, settings), settings, commands, ray_files)


def test_training_continues_during_an_outage_of_postgresql_and_mlflow_without_losses_or_duplicates(
    interrupted_study: InterruptedStudy, record_fault: RecordFault
) -> None:
    assert len(re.findall("is unavailable; training continues", interrupted_study.output)) == 2
    assert len(re.findall("the study database is available again", interrupted_study.output)) == 2
    assert [outcome.state for outcome in interrupted_study.outcomes] == [TrialState.COMPLETE] * 3
    assert [len(outcome.curve) for outcome in interrupted_study.outcomes] == [REPORTS] * 3
    client = connect(interrupted_study.settings.tracking_uri)
    experiment = client.get_experiment_by_name("grammar")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'trial'")
    assert {run.info.status for run in runs} == {"FINISHED"}
    found = {
        run.data.tags["memtune.trial"]: [
            point.step for point in client.get_metric_history(run.info.run_id, "valid_loss")
        ]
        for run in runs
    }
    assert len(runs) == 3
    assert found == {outcome.identity: list(outcome.curve) for outcome in interrupted_study.outcomes}
    record_fault(
        "server stopped", 2, 0, "PostgreSQL and MLflow stopped at once while trials trained and reported"
    )
    record_fault(
        "server hangs",
        1,
        0,
        f"PostgreSQL, the storage of proposals and MLflow, hung for longer than the timeout of the driver "
        f"({ANSWER_TIMEOUT_SECONDS:.0f} s): every report of every trial is stored once",
    )


def test_the_champion_of_the_study_reproduces_its_figure(interrupted_study: InterruptedStudy) -> None:
    rows = compare("grammar", settings=interrupted_study.settings).rows
    (champion,) = find_champions("grammar", interrupted_study.settings)
    assert champion.figure == pytest.approx(rows[0].figure, rel=1e-12)
    evaluated = evaluate("models:/grammar@champion", settings=interrupted_study.settings)
    assert evaluated.metrics.perplexity == pytest.approx(champion.figure, rel=1e-6)


def test_no_secret_is_in_any_record_file_or_command(
    interrupted_study: InterruptedStudy,
    secrets: Secrets,
    object_store: ObjectStore,
    running_postgres: Postgres,
    running_mlflow: MlflowServer,
) -> None:
    hidden = [
        secrets.database_password,
        *secrets.server_environment.values(),
        object_store.credentials["AWS_SECRET_ACCESS_KEY"],
    ]
    places: dict[str, bytes] = {"the output of the driver": interrupted_study.output.encode()}
    places |= {f"command {number}": line.encode() for number, line in enumerate(interrupted_study.commands)}
    assert any(path.name.startswith("worker-") for path in interrupted_study.ray_files), "Ray's logs"
    files = (
        interrupted_study.ray_files
        | read_files(interrupted_study.settings.home)
        | read_files(running_mlflow.folder)
    )
    places |= {str(path): content for path, content in files.items()}
    places |= read_objects("study") | read_objects("artifacts")
    for database in ("optuna", "mlflow"):
        places |= read_tables(running_postgres, database)
    assert len(places) > 50
    found = [place for place, content in places.items() for secret in hidden if secret.encode() in content]
    assert found == []


def read_objects(bucket: str) -> dict[str, bytes]:
    """Every object of a bucket."""
    files, root = fs.FileSystem.from_uri(f"s3://{bucket}")
    found = files.get_file_info(fs.FileSelector(root, recursive=True))
    return {info.path: files.open_input_stream(info.path).read() for info in found if info.is_file}


def read_tables(postgres: Postgres, database: str) -> dict[str, bytes]:
    """Every table of a database, as text."""
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    with psycopg.connect(postgres.url.replace("optuna", database)) as connection:
        names = [name for (name,) in connection.execute(tables)]
        texts = {name: sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name)) for name in names}
        return {
            f"{database}.{name}": "\n".join(text for (text,) in connection.execute(query)).encode()
            for name, query in texts.items()
        }


def test_a_wrong_password_is_refused_by_mlflow_without_repeating_it(
    environment: dict[str, str], mlflow_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "not-the-password")
    with pytest.raises(TrackingError, match=r"refuses this user") as refused:
        check_tracking(mlflow_server.uri)
    assert "not-the-password" not in str(refused.value)


def test_mlflow_answers_nothing_without_a_password(
    environment: dict[str, str], mlflow_server: MlflowServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TrackingError, match=r"keep user and password in ~/\.mlflow/credentials"):
        check_tracking(mlflow_server.uri)


def test_a_user_records_where_the_administrator_has_granted_it(
    environment: dict[str, str], mlflow_server: MlflowServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = connect(mlflow_server.uri).create_experiment("shared")
    administrator = get_app_client("basic-auth", mlflow_server.uri)
    administrator.create_user("bob", "bob-of-the-lab")
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
        patch.setenv("MLFLOW_TRACKING_PASSWORD", "bob-of-the-lab")
        with pytest.raises(TrackingError, match=r'user bob .* may not write experiment "shared"'):
            check_tracking(mlflow_server.uri, "shared")
    administrator.grant_user_permission("bob", "experiment", experiment, "EDIT")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "bob-of-the-lab")
    check_tracking(mlflow_server.uri, "shared")


def test_metrics_reach_an_mlflow_whose_database_is_stopped_repeatedly(
    environment: dict[str, str],
    mlflow_server: MlflowServer,
    postgres: Postgres,
    record_fault: RecordFault,
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = range(1, 301)
    with Recorder(mlflow_server.uri, "outages") as recorder:
        recorder.start_trial("trial", "trial", {})
        for step in steps:
            recorder.log_reports("trial", [{"tokens": step, "valid_perplexity": 100 / step}])
            if step % 100 == 50:
                postgres.stop(signal.SIGQUIT)
            if step % 100 == 80:
                assert recorder.flush(1) is False, "nothing can be recorded now"
                postgres.start()
            if step % 100 == 0:
                assert recorder.flush(60)
        recorder.finish_trial("trial", TrialState.COMPLETE)
        assert recorder.flush(120)
    assert "was not recorded" not in caplog.text
    client = connect(mlflow_server.uri)
    experiment = client.get_experiment_by_name("outages")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    found = [point.step for point in client.get_metric_history(run.info.run_id, "valid_perplexity")]
    assert found == list(steps)
    record_fault("server stopped", 3, 0, "MLflow's PostgreSQL stopped at once while metrics came")
