"""What the tests with real processes share: the record of strikes, a cluster on two hosts, services."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.disks import MountDisk, explain_unmountable, mount_tmpfs
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


@pytest.fixture
def record_fault(request: pytest.FixtureRequest) -> RecordFault:
    """Called as `record_fault(row, kills, lost, note)` by a test that has seen the outcome hold.

    `row` is a name of `fault_table.FAULTS`, `kills` how often it struck, `lost` how many trials, reports or
    metrics were missing or double in the end, `note` what was done and seen, in a sentence.
    """

    def record(row: str, kills: int, lost: int, note: str) -> None:
        append_observation(Observation(row, request.node.name, kills, lost, note))

    return record


@pytest.fixture(scope="module")
def own_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove locations from the environment and give the module its own cache."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI"):
            patch.delenv(name, raising=False)
        patch.setenv("MEMTUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[MountDisk]:
    """Mounts small disks for a test."""
    if reason := explain_unmountable(tmp_path / "tried"):
        pytest.skip(reason)
    with ExitStack() as mounts:
        yield lambda folder, kilobytes: mounts.enter_context(mount_tmpfs(folder, kilobytes))


@pytest.fixture(scope="session")
def idle_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnPremisesCluster]:
    """Two hosts, and a project that describes them as a cluster; nothing runs on them."""
    with boot_cluster(tmp_path_factory.mktemp("hosts")) as cluster:
        yield cluster


@pytest.fixture
def cluster(idle_cluster: OnPremisesCluster) -> OnPremisesCluster:
    """The cluster on those hosts, up with every node."""
    idle_cluster.up()
    return idle_cluster


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """Passwords of the services, as clusters/services makes them."""
    return make_secrets(tmp_path_factory.mktemp("services") / "secrets")


@pytest.fixture(scope="session")
def running_postgres(secrets: Secrets) -> Iterator[Postgres]:
    """A PostgreSQL with the services' databases; skipped where none is installed."""
    programs = find_postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL here: apt install postgresql")
    with make_private_folder(find_unprivileged_user()) as folder:
        server = Postgres(folder, programs, secrets.database_password)
        server.start()
        server.make_databases()
        yield server
        if server.is_up:
            server.stop()


@pytest.fixture
def postgres(running_postgres: Postgres) -> Postgres:
    """The PostgreSQL that tests share, up at the beginning of each."""
    if not running_postgres.is_up:
        running_postgres.start()
    return running_postgres


@pytest.fixture
def user_home(secrets: Secrets, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that holds the passwords in the files that docs/cluster.md names, and nothing in variables."""
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
    """MLflow's server over PostgreSQL and the object store; the bucket "artifacts" is there."""
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
    """The MLflow server that tests share, up at the beginning of each."""
    if not running_mlflow.is_up:
        running_mlflow.start()
    return running_mlflow
