"""Rules about GPUs: a node type has to declare as many as its machine has.

The autoscaler starts nodes by the declared number alone. With too many, trials wait for a node that can never
hold them; with none, no node starts.
"""

import re
from typing import Any

from memtune.errors import did_you_mean
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding

SINGLE_GPU_SIZES = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
GPUS_BY_INSTANCE_TYPE = {
    **{f"{family}.{size}": 1 for family in ("g4dn", "g5", "g6", "g6e") for size in SINGLE_GPU_SIZES},
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
"""GPUs of AWS' instance types for training. The families listed here are complete."""
L4_GPUS_BY_MACHINE_SIZE = {"24": 2, "48": 4, "96": 8}
"""GPUs of Google's g2-standard-N by N; other sizes have one."""
FAMILIES_WITHOUT_GPUS = ("t3", "t3a", "c5", "c6i", "c7i", "m5", "m6i", "m7i", "r5", "r6i", "r7i")
"""Families of AWS' instance types without GPUs."""


def find_wrong_gpu_counts(cluster: ClusterFile) -> list[Finding]:
    """Node types whose `resources.GPU` is not an integer, or not the number of their machine.

    Integers pass on machines that this module does not know.
    """
    findings = []
    for name, node_type in cluster.node_types.items():
        resources = node_type.get("resources")
        declared = resources.get("GPU", 0) if isinstance(resources, dict) else 0
        node_config = node_type.get("node_config")
        machine = node_config if isinstance(node_config, dict) else {}
        where = f"available_node_types.{name}.resources.GPU"
        problem = _describe_gpu_mismatch(declared, _count_aws_gpus(machine), _count_gcp_gpus(machine))
        if problem:
            findings.append(Finding(rule="gpus", where=where, problem=problem[0], fix=problem[1]))
    return findings


def find_unknown_instance_types(cluster: ClusterFile) -> list[Finding]:
    """Instance types that AWS does not have, in the families that are complete here."""
    families = {known.partition(".")[0] for known in GPUS_BY_INSTANCE_TYPE}
    configs = {name: node_type.get("node_config") for name, node_type in cluster.node_types.items()}
    named = {
        name: str(config.get("InstanceType")) for name, config in configs.items() if isinstance(config, dict)
    }
    return [
        Finding(
            rule="gpus",
            where=f"available_node_types.{name}.node_config.InstanceType",
            problem=f'AWS has no instance type "{instance}"',
            fix=f"name another one of its family; {did_you_mean(instance, GPUS_BY_INSTANCE_TYPE)}",
        )
        for name, instance in named.items()
        if instance.partition(".")[0] in families and instance not in GPUS_BY_INSTANCE_TYPE
    ]


def _describe_gpu_mismatch(
    declared_gpus: object, aws_gpus: int | None, gcp_gpus: int | None
) -> tuple[str, str] | None:
    """The problem and its fix; None when the numbers agree or the machine's is unknown."""
    if not isinstance(declared_gpus, int) or isinstance(declared_gpus, bool):
        fix = "write an integer; for a share of a GPU, set gpus_per_trial under [resources] in the study"
        return f"{declared_gpus!r} is not an integer", fix
    actual = aws_gpus if aws_gpus is not None else gcp_gpus
    if actual is None or declared_gpus == actual:
        return None
    return (
        f"{declared_gpus} declared, the machine has {actual}",
        f"write GPU: {actual}, or name another machine",
    )


def _count_aws_gpus(machine: dict[str, Any]) -> int | None:
    instance = str(machine.get("InstanceType", ""))
    return 0 if instance.partition(".")[0] in FAMILIES_WITHOUT_GPUS else GPUS_BY_INSTANCE_TYPE.get(instance)


def _count_gcp_gpus(machine: dict[str, Any]) -> int | None:
    if "machineType" not in machine:
        return None
    accelerators = machine.get("guestAccelerators") or []
    kind = str(machine["machineType"]).rpartition("/")[2]
    if accelerators or not kind.startswith(("a2-", "a3-", "a4-", "a4x-", "g2-", "g4-")):
        return sum(int(accelerator.get("acceleratorCount", 0)) for accelerator in accelerators)
    if small := re.fullmatch(r"g2-standard-(\d+)", kind):
        return L4_GPUS_BY_MACHINE_SIZE.get(small[1], 1)
    large = re.fullmatch(r"a\d\w*-\w+-(\d+)g(?:-\w+)?", kind)
    return int(large[1]) if large else None
