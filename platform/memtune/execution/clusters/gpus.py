"""GPUs that a node type promises against those its machine has.

The autoscaler starts nodes for a GPU demand by the promise alone: one that is too high leaves trials waiting
on a node that can never hold them, one that is missing starts no node at all.
"""

import re
from typing import Any

from memtune.errors import did_you_mean
from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["unknown_machines", "wrong_gpu_counts"]

ONE = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
INSTANCES = {
    **{f"{family}.{size}": 1 for family in ("g4dn", "g5", "g6", "g6e") for size in ONE},
    **{f"{family}.12xlarge": 4 for family in ("g4dn", "g5", "g6", "g6e")},
    **{f"{family}.24xlarge": 4 for family in ("g5", "g6", "g6e")},
    **{f"{family}.48xlarge": 8 for family in ("g5", "g6", "g6e")},
    "g4dn.metal": 8,
    "p3.2xlarge": 1,
    "p3.8xlarge": 4,
    "p3.16xlarge": 8,
    "p3dn.24xlarge": 8,
    "p4d.24xlarge": 8,
    "p4de.24xlarge": 8,
    "p5.4xlarge": 1,
    "p5.48xlarge": 8,
    "p5e.48xlarge": 8,
    "p5en.48xlarge": 8,
}
"""GPUs of AWS' instance types that models are trained on; of these families there are no others."""
L4 = {"24": 2, "48": 4, "96": 8}
"""GPUs of Google's g2-standard-N by N; the others have one."""
WITHOUT = ("t3", "t3a", "c5", "c6i", "c7i", "m5", "m6i", "m7i", "r5", "r6i", "r7i")
"""Families of AWS' instance types that have none."""


def wrong_gpu_counts(cluster: ClusterFile) -> list[Finding]:
    """Node types whose resource GPU is no whole number or not what their machine has.

    Whole numbers pass on machines that are not known here.
    """
    findings = []
    for name, node_type in cluster.node_types.items():
        resources = node_type.get("resources")
        promised = resources.get("GPU", 0) if isinstance(resources, dict) else 0
        node_config = node_type.get("node_config")
        machine = node_config if isinstance(node_config, dict) else {}
        where = f"available_node_types.{name}.resources.GPU"
        problem = _problem(promised, _aws(machine), _gcp(machine))
        if problem:
            findings.append(Finding(rule="gpus", where=where, problem=problem[0], fix=problem[1]))
    return findings


def unknown_machines(cluster: ClusterFile) -> list[Finding]:
    """Machines that AWS does not have, in families of which every one with GPUs is known here."""
    families = {known.partition(".")[0] for known in INSTANCES}
    configs = {name: node_type.get("node_config") for name, node_type in cluster.node_types.items()}
    named = {
        name: str(config.get("InstanceType")) for name, config in configs.items() if isinstance(config, dict)
    }
    return [
        Finding(
            rule="gpus",
            where=f"available_node_types.{name}.node_config.InstanceType",
            problem=f'AWS has no machine "{instance}"',
            fix=f"take one of its family; {did_you_mean(instance, INSTANCES)}",
        )
        for name, instance in named.items()
        if instance.partition(".")[0] in families and instance not in INSTANCES
    ]


def _problem(promised: object, on_aws: int | None, on_gcp: int | None) -> tuple[str, str] | None:
    """What is wrong and its fix."""
    if not isinstance(promised, int) or isinstance(promised, bool):
        fix = "write a whole number; a share of a GPU is asked for by the study: [resources] gpus_per_trial"
        return f"{promised!r} is no whole number of GPUs", fix
    there = on_aws if on_aws is not None else on_gcp
    if there is None or promised == there:
        return None
    return f"{promised} promised, the machine has {there}", f"write GPU: {there}, or take another machine"


def _aws(machine: dict[str, Any]) -> int | None:
    instance = str(machine.get("InstanceType", ""))
    return 0 if instance.partition(".")[0] in WITHOUT else INSTANCES.get(instance)


def _gcp(machine: dict[str, Any]) -> int | None:
    if "machineType" not in machine:
        return None
    accelerators = machine.get("guestAccelerators") or []
    kind = str(machine["machineType"]).rpartition("/")[2]
    if accelerators or not kind.startswith(("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")):
        return sum(int(accelerator.get("acceleratorCount", 0)) for accelerator in accelerators)
    if small := re.fullmatch(r"g2-standard-(\d+)", kind):
        return L4.get(small[1], 1)
    large = re.fullmatch(r"a\d\w*-\w+-(\d+)g(?:-\w+)?", kind)
    return int(large[1]) if large else None
