"""How many trials a cluster holds, now and after its autoscaler has added all nodes."""

from pathlib import Path

import pytest
import yaml

from memtune.ray_backend.cluster_nodes import Capacity, NodeType, parse_capacity

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("cpus", "gpus", "held"),
    [(1, 0, 4), (3, 0, 1), (1, 0.5, 4), (1, 1, 2), (1, 2, 1), (5, 0, 0)],
)
def test_a_node_holds_what_its_cores_and_its_gpus_allow(cpus: float, gpus: float, held: int) -> None:
    assert NodeType(cpus=4, gpus=2).count_slots(cpus, gpus) == held


def test_cores_of_two_nodes_do_not_make_one_trial() -> None:
    assert Capacity(present_nodes=(NodeType(cpus=3), NodeType(cpus=3))).count_slots(2, 0) == 2


def test_nodes_that_the_autoscaler_may_add_count_before_they_exist() -> None:
    grown = parse_capacity(
        {
            "max_workers": 5,
            "head_node_type": "head",
            "available_node_types": {
                "head": {"resources": {"CPU": 0}, "max_workers": 0},
                "small": {"resources": {"CPU": 2}},
                "large": {"resources": {"CPU": 8, "GPU": 1}, "max_workers": 3},
            },
        },
        present_nodes=[NodeType(cpus=0)],
    )
    assert grown.count_slots(1, 0) == 3 * 8 + 2 * 2
    assert grown.count_slots(1, 0.25) == 3 * 4
    assert grown.max_gpus == 3


def test_the_cluster_file_of_this_project_holds_a_trial_on_each_gpu_it_may_start() -> None:
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    assert parse_capacity(config, [NodeType(cpus=0)]).count_slots(1, 1) == config["max_workers"]


def test_existing_hosts_count_with_their_own_resources() -> None:
    config = {"available_node_types": {"local.cluster.node": {"resources": {}}}, "max_workers": 2}
    assert parse_capacity(config, [NodeType(cpus=2), NodeType(cpus=2)]).count_slots(1, 0) == 4


def test_the_head_is_one_node_beside_the_workers() -> None:
    types = {"head": {"resources": {"CPU": 4}}, "small": {"resources": {"CPU": 2}}}
    config = {"max_workers": 3, "head_node_type": "head", "available_node_types": types}
    assert parse_capacity(config, []).count_slots(1, 0) == 4 + 3 * 2


def test_without_node_types_the_present_nodes_count() -> None:
    assert parse_capacity({}, [NodeType(cpus=2)]).count_slots(1, 0) == 2
