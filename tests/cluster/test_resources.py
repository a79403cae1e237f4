"""Resources that trials request from Ray: GPUs by their memory, and all missing nodes together."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.tables.memtune_search import NoRecords
from memtune.ray_backend.jobs.job_server import JobServer
from memtune.ray_backend.jobs.job_submission import prepare_submission, submit
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.definition.study_terms import Resources
from memtune.studies.director import DirectedTrial, Director
from memtune.studies.executor import StopRequest
from memtune.studies.study_run import make_assignment
from memtune.studies.trial_worker import Assignment
from memtune.trial_state import TrialState
from tests.cluster.poll import poll_until
from tests.cluster.ray_head import RayHead

pytestmark = pytest.mark.cluster

SPACE = """
[model]
family = "lstm"
width = 4
layers = { int = [1, 4] }
"""
HEAD_NODE = "f" * 51 + "00000"


@pytest.fixture
def two_logical_gpus() -> Iterator[None]:
    import ray

    import memtune.ray_backend.ray_connection  # noqa: F401 - configures Tune's logging before Ray is loaded

    with TemporaryDirectory(prefix="mt-") as folder:
        ray.init(
            "local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder
        )
        try:
            yield
        finally:
            ray.shutdown()


@pytest.fixture
def resolved(study_file: Path, settings: Settings) -> ResolvedStudy:
    (study_file.parent / "space.toml").write_text(SPACE)
    terms = {"resources.gpus_per_trial": "fit", "resources.gpu_memory": "2GB"}
    return resolve_study(study_file, load_study(study_file, terms), settings)


def list_requested_gpus() -> dict[str, float]:
    """The GPUs of each trial that has a placement group on a node now."""
    from ray.util import placement_group_table

    created = [group for group in placement_group_table().values() if group["state"] == "CREATED"]
    return {group["placement_group_id"]: group["bundles"][0].get("GPU", 0.0) for group in created}


def test_trials_are_packed_on_gpus_by_their_memory(
    two_logical_gpus: None, resolved: ResolvedStudy, settings: Settings, tmp_path: Path
) -> None:
    """Two trials fit on each of two GPUs; they train on the CPU."""
    from memtune.ray_backend.tune_adapters import run_trials
    from memtune.studies.executor import ExecutorRun

    memory = resolved.study.resources.gpu_memory
    seen: list[dict[str, float]] = []
    proposals = resolved.open_proposals()
    director = Director(proposals, NoRecords(), 4, None, [lambda trial: seen.append(list_requested_gpus())])

    def assign(trial: DirectedTrial) -> Assignment:
        # This machine has no GPU: the worker of a share of one trains on a core.
        return make_assignment(resolved, trial, memory).model_copy(update={"device": "cpu"})

    run = ExecutorRun(director, assign, Resources(), resolved.compute_average_gpus(memory), StopRequest())
    run_trials(run, tmp_path)
    assert [outcome.state for outcome in proposals.list_outcomes()] == [TrialState.COMPLETE] * 4
    assert {gpus for now in seen for gpus in now.values()} == {0.5}
    assert max(map(len, seen)) == 4, "two on each GPU, all at once"


@pytest.fixture
def growing_head() -> Iterator[RayHead]:
    """A head without cores whose autoscaler may add three nodes, each a process here."""
    head = RayHead(
        "--num-cpus=0",
        environment={
            "RAY_FAKE_CLUSTER": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_NODE,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_NODE,
        },
    )
    provider = {"type": "fake_multinode", "gcs_address": head.gcs_address, "head_node_id": HEAD_NODE}
    empty: dict[str, list[str]] = {name: [] for name in COMMANDS}
    config = {
        "cluster_name": "growing",
        "max_workers": 3,
        "upscaling_speed": 8,
        "idle_timeout_minutes": 5,
        "provider": {**provider, "launch_multiple": True},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 3},
        },
        "auth": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **empty,
    }
    head.set_autoscaling_config(config)
    try:
        head.start()
        yield head
    finally:
        head.stop()


COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
)


def count_nodes(head: RayHead) -> int:
    """Nodes in the cluster, the head's included."""
    token = {"Authorization": f"Bearer {head.token.read_text()}"}
    request = urllib.request.Request(f"{head.address}/nodes?view=summary", headers=token)
    with urllib.request.urlopen(request, timeout=30) as answer:
        listed = json.load(answer)["data"]["summary"]
    return sum(node["raylet"].get("state") == "ALIVE" for node in listed)


@pytest.mark.long
def test_a_cluster_without_a_node_grows_to_what_a_study_can_use(
    growing_head: RayHead, study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(growing_head.token))
    study_file.write_text(study_file.read_text().replace("tokens = 900", "tokens = 900_000_000"))
    environment = {"MEMTUNE_HOME": str(settings.home), "MEMTUNE_STORE": settings.corpus_store}
    server = JobServer(growing_head.address)
    job = submit(server, prepare_submission(study_file, environment=environment))

    def has_grown() -> bool:
        assert not server.get_job(job).has_ended, server.read_log(job)
        return count_nodes(growing_head) == 1 + 3

    poll_until(has_grown, "three nodes")
    assert server.stop(job)
    poll_until(lambda: server.get_job(job).has_ended, "the end of the job")
