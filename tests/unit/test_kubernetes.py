"""The manifests of clusters/kubernetes: KubeRay accepts them, and no pod has privileges."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

from memtune.ray_backend.cluster_nodes import NodeType, parse_capacity
from tests.kuberay_schema import find_faults

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clusters" / "kubernetes"


def read_manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


@pytest.fixture
def cluster() -> dict[str, Any]:
    return read_manifest("raycluster")


@pytest.fixture
def job() -> dict[str, Any]:
    return read_manifest("rayjob")


def list_groups(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The head and the groups of workers of a cluster."""
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def list_pods(cluster: dict[str, Any], job: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pod of both manifests."""
    specs = (cluster["spec"], job["spec"]["rayClusterSpec"])
    templates = [group["template"] for spec in specs for group in list_groups(spec)]
    return [template["spec"] for template in [*templates, job["spec"]["submitterPodTemplate"]]]


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_kuberay_accepts_the_manifest(name: str) -> None:
    assert find_faults(read_manifest(name)) == []


def test_fields_that_kuberay_does_not_have_and_wrong_types_are_found(cluster: dict[str, Any]) -> None:
    spec = cluster["spec"]
    spec["headGroupSpec"]["template"]["spec"]["volumnes"] = []
    spec["autoscalingOptions"] = {}
    spec["authOptions"]["mode"] = "password"
    spec["workerGroupSpecs"][0]["maxReplicas"] = "4"
    del spec["workerGroupSpecs"][1]["groupName"]
    faults = "\n".join(find_faults(cluster))
    for named in ("volumnes", "autoscalingOptions", "'password'", "'4' is not of type", "'groupName'"):
        assert named in faults
    assert faults.count("\n") == 4


def test_the_claim_is_valid_and_is_the_one_that_the_pods_mount(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    """The definition of a RayCluster holds the schema of a claim too, for claims of one pod."""
    claim = read_manifest("storage")
    with_claim = copy.deepcopy(cluster)
    volumes = with_claim["spec"]["headGroupSpec"]["template"]["spec"]["volumes"]
    volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claim["spec"]}}})
    assert find_faults(with_claim) == []
    mounted = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in list_pods(cluster, job)
        for volume in pod.get("volumes", [])
        if "persistentVolumeClaim" in volume
    }
    assert mounted == {claim["metadata"]["name"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_a_study_alone_has_the_same_cluster_and_the_study(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    spec = job["spec"]["rayClusterSpec"]
    pod = spec["headGroupSpec"]["template"]["spec"]
    assert pod["volumes"].pop() == {"name": "study", "configMap": {"name": "memtune-study"}}
    assert pod["containers"][0]["volumeMounts"].pop() == {"name": "study", "mountPath": "/etc/memtune"}
    assert spec == cluster["spec"]


def test_no_pod_has_the_rights_of_root_or_lacks_resource_requests(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    pods = list_pods(cluster, job)
    assert len(pods) == 7
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] > 0
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= {*container["resources"]["requests"]}
            assert {"cpu", "memory"} <= {*container["resources"]["limits"]}


def test_connections_require_the_token_which_no_manifest_contains(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    expected = {"mode": "token", "secretName": "memtune-ray-token"}
    assert cluster["spec"]["authOptions"] == job["spec"]["rayClusterSpec"]["authOptions"] == expected
    documents = [
        document for path in FOLDER.glob("*.yaml") for document in yaml.safe_load_all(path.read_text())
    ]
    assert "Secret" not in {document["kind"] for document in documents}


def test_the_version_of_ray_is_the_one_of_the_image(cluster: dict[str, Any]) -> None:
    requirements = (ROOT / "clusters" / "requirements.txt").read_text()
    assert f"\nray=={cluster['spec']['rayVersion']} " in requirements


def test_the_autoscaler_gives_every_group_the_resources_of_its_pods(cluster: dict[str, Any]) -> None:
    """Ray's own reading of the manifest, and memtune's of that."""
    cluster["metadata"]["namespace"] = "default"
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    capacity = parse_capacity(config, [NodeType()])
    assert capacity.head_type == NodeType(cpus=0, gpus=0, count=0)
    assert capacity.worker_types == (NodeType(cpus=4, count=4), NodeType(cpus=4, gpus=1, count=8))
    assert capacity.count_slots(cpus=1, gpus=0.5) == 16
    assert capacity.count_slots(cpus=1, gpus=0) == 48
