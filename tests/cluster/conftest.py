"""Fixtures of tests with real processes: the record of faults, a cluster on two hosts, services."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from memtune.search import StoredTrial
from memtune.settings import Settings
from tests.cluster.disks import MountDisk, explain_unmountable, mount_tmpfs
from tests.cluster.drivers import RayInstance, start_ray_instance
from tests.cluster.fault_table import Observation, RecordFault, append_observation
from tests.cluster.on_premises_cluster import OnPremisesCluster, boot_cluster
from tests.cluster.servers import (
    MlflowServer,
    ObjectStore,
    Postgres,
    Secrets,
    find_postgres_programs,
    find_unprivileged_user,
    make_private_folder,
    make_secrets,
)
from tests.cluster.study_setup import StudySetup, run_undisturbed
from tests.cluster.wheel_build import build_wheel
from tests.conftest import make_once
from tests.reported_study import home, report

__all__ = ["home", "report"]


@pytest.fixture
def record_fault(request: pytest.FixtureRequest) -> RecordFault:
    """A test calls `record_fault(row, kills, lost, note)` after it has checked the outcome.

    `row` is a name of `fault_table.FAULTS`, `kills` the number of injected faults, `lost` the number of
    trials, reports or metrics that are missing or duplicated at the end, `note` one sentence about the fault
    and its outcome.
    """

    def record(row: str, kills: int, lost: int, note: str) -> None:
        append_observation(Observation(row, request.node.name, kills, lost, note))

    return record


def fill_cache(folder: Path) -> None:
    """Put into a cache what each process with an empty one makes for seconds: kernels, scripts of pages."""
    from memtune.reports.report_page.page import load_vega
    from memtune.training.optimisation.matmul_backend import probe_backends, store_backend

    store_backend(probe_backends(), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMTUNE_CACHE", str(folder))
        load_vega.cache_clear()
        load_vega()


@pytest.fixture(scope="session")
def filled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a node on which memtune has run; tests copy it."""
    return make_once(tmp_path_factory, "cache", fill_cache)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, filled_cache: Path) -> Settings:
    """The same home, on a node on which memtune has run."""
    shutil.copytree(filled_cache, tmp_path / "cache", dirs_exist_ok=True)
    return settings


@pytest.fixture(scope="module")
def own_locations(tmp_path_factory: pytest.TempPathFactory, filled_cache: Path) -> Iterator[Path]:
    """Remove locations from the environment and give the module its own cache: this folder."""
    cache = tmp_path_factory.mktemp("cache")
    shutil.copytree(filled_cache, cache, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        patch.setenv("MEMTUNE_CACHE", str(cache))
        yield cache


@pytest.fixture(scope="module")
def ray_instance() -> Iterator[RayInstance]:
    """A Ray instance that the drivers share, like a cluster."""
    with start_ray_instance(cores=2) as instance:
        yield instance


@pytest.fixture
def study_setup(tmp_path: Path, ray_instance: RayInstance, empty_store: Path) -> StudySetup:
    return StudySetup(tmp_path, ray_instance, empty_store)


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
    ray_instance: RayInstance,
    own_locations: Path,
    empty_store: Path,
) -> list[StoredTrial]:
    """The trials of the study without faults."""
    study_setup = StudySetup(tmp_path_factory.mktemp("undisturbed"), ray_instance, empty_store)
    return run_undisturbed(study_setup.study_file, study_setup.settings)


@pytest.fixture
def mount_disk(tmp_path: Path) -> Iterator[MountDisk]:
    """Mounts small disks for a test."""
    if reason := explain_unmountable(tmp_path / "probe"):
        pytest.skip(reason)
    with ExitStack() as mounts:
        yield lambda folder, kilobytes: mounts.enter_context(mount_tmpfs(folder, kilobytes))


@pytest.fixture(scope="module")  # not of the session: Ray on two idle hosts takes part of a core
def idle_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnPremisesCluster]:
    """Two hosts, and a project that describes them as a cluster; nothing runs on them."""
    with boot_cluster(tmp_path_factory.mktemp("hosts")) as cluster:
        yield cluster


@pytest.fixture
def cluster(idle_cluster: OnPremisesCluster) -> OnPremisesCluster:
    """The cluster on these hosts, running with every node."""
    idle_cluster.up()
    return idle_cluster


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """memtune's wheel."""
    return build_wheel(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """Passwords of the services, made by clusters/services."""
    return make_secrets(tmp_path_factory.mktemp("services") / "secrets")


@pytest.fixture(scope="session")
def running_postgres(secrets: Secrets) -> Iterator[Postgres]:
    """A PostgreSQL with the services' databases; skipped where it is not installed."""
    programs = find_postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    with make_private_folder(find_unprivileged_user()) as folder:
        server = Postgres(folder, programs, secrets.database_password)
        server.start()
        server.make_databases()
        yield server
        if server.is_up:
            server.stop()


@pytest.fixture
def postgres(running_postgres: Postgres) -> Postgres:
    """The PostgreSQL that tests share, running at the start of each test."""
    if not running_postgres.is_up:
        running_postgres.start()
    return running_postgres


@pytest.fixture
def user_home(secrets: Secrets, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the passwords in the files that docs/cluster/services.md names; no variable holds one."""
    home = tmp_path / "user"
    secrets.install(home, postgres.port)
    for name in ("PGPASSFILE", "PGPASSWORD", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server that tests share."""
    with ObjectStore(tmp_path_factory.mktemp("s3") / "server.log").serve() as server:
        yield server


@pytest.fixture(scope="session")
def running_mlflow(
    secrets: Secrets,
    running_postgres: Postgres,
    object_store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MlflowServer]:
    """MLflow's server over PostgreSQL and the object store; the bucket "artifacts" exists."""
    folder = tmp_path_factory.mktemp("mlflow")
    object_store.make_bucket("artifacts")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **object_store.build_client_environment()}
    server = MlflowServer(folder, secrets, running_postgres, "s3://artifacts/mlflow", environment)
    server.start()
    yield server
    if server.is_up:
        server.kill()


@pytest.fixture
def mlflow_server(running_mlflow: MlflowServer, postgres: Postgres) -> MlflowServer:
    """The MLflow server that tests share, running at the start of each test."""
    if not running_mlflow.is_up:
        running_mlflow.start()
    return running_mlflow
