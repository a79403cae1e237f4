"""Each rule of `memtune cluster check` finds exactly the fault that a test adds to a valid file."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.errors import ConfigurationError
from memtune.ray_backend.clusters import Finding, Versions, check_cluster, load_cluster

ROOT = Path(__file__).parents[4]
SHIPPED = ["cluster.yaml", "clusters/gcp.yaml", "clusters/onprem.yaml"]
CLIENT = Versions(ray="2.60.0", python="3.11")
HEAD, WORKER = "head_start_ray_commands", "worker_start_ray_commands"

AddFault = Callable[[dict[str, Any]], object]
Write = Callable[[str, AddFault], Path]


def find_faults(path: Path, client: Versions = CLIENT) -> list[Finding]:
    return [finding for finding in check_cluster(load_cluster(path), client) if finding.kind == "fault"]


def replace(commands: str, pattern: str, by: str) -> AddFault:
    """Replace the matches of a pattern in a list of commands; the pattern must match."""

    def add_fault(config: dict[str, Any]) -> None:
        before = config[commands]
        config[commands] = [re.sub(pattern, by, command) for command in before]
        assert config[commands] != before

    return add_fault


def put(*path: str, value: object) -> AddFault:
    """Set one entry of the file."""

    def add_fault(config: dict[str, Any]) -> None:
        node = config
        for name in path[:-1]:
            node = node[name]
        node[path[-1]] = value

    return add_fault


FAULTS: dict[str, tuple[str, AddFault, str, str]] = {
    "an unknown entry": ("aws", put("max_worker", value=3), "schema", "the file"),
    "a head that is not a node type": ("gcp", put("head_node_type", value="haed"), "schema", "the file"),
    "an unknown provider": ("aws", put("provider", "type", value="awss"), "schema", "the file"),
    "node types on premises": (
        "onprem",
        put("available_node_types", value={"big": {"resources": {}, "node_config": {}}}),
        "schema",
        "the file",
    ),
    "no workers on premises": ("onprem", lambda c: c["provider"].pop("worker_ips"), "schema", "the file"),
    "a misspelt provider field": (
        "aws",
        put("provider", "availability_zones", value="us-west-2a"),
        "provider",
        "provider.availability_zones",
    ),
    "a field of another provider": (
        "onprem",
        put("provider", "region", value="here"),
        "provider",
        "provider.region",
    ),
    "half a GPU": (
        "aws",
        put("available_node_types", "gpu_spot", "resources", "GPU", value=0.5),
        "gpus",
        "available_node_types.gpu_spot.resources.GPU",
    ),
    "fewer GPUs than accelerators": (
        "gcp",
        put(
            "available_node_types",
            "gpu_on_demand",
            "node_config",
            "guestAccelerators",
            value=[{"acceleratorType": "nvidia-l4", "acceleratorCount": 2}],
        ),
        "gpus",
        "available_node_types.gpu_on_demand.resources.GPU",
    ),
    "no token on the nodes": (
        "aws",
        lambda c: c["file_mounts"].pop("~/.ray/auth_token"),
        "token",
        "file_mounts",
    ),
    "a head without the token's mode": ("gcp", replace(HEAD, "RAY_AUTH_MODE=token ", ""), "token", HEAD),
    "workers without the token's mode": (
        "onprem",
        replace(WORKER, "RAY_AUTH_MODE=token", ""),
        "token",
        WORKER,
    ),
    "a head's folder that others may enter": ("aws", replace(HEAD, "-m 700", "-m 755"), "folder", HEAD),
    "a worker without a private folder": (
        "onprem",
        replace(WORKER, "install .*", "true"),
        "folder",
        WORKER,
    ),
    "a folder that Ray opens to all users": (
        "gcp",
        replace(HEAD, "ray start", "ray start --temp-dir=/tmp/memtune-$(whoami)"),
        "folder",
        HEAD,
    ),
    "a token on a command line": (
        "aws",
        replace(HEAD, "RAY_AUTH_MODE=token", "RAY_AUTH_MODE=token RAY_AUTH_TOKEN=abc"),
        "token",
        HEAD,
    ),
    "autoscaler v2 on premises": (
        "onprem",
        replace(HEAD, "RAY_enable_autoscaler_v2=0", ""),
        "autoscaler",
        HEAD,
    ),
    "no ssh that verifies host keys": (
        "onprem",
        lambda c: c["file_mounts"].pop("~/.memtune-node/bin/ssh"),
        "host keys",
        "file_mounts",
    ),
    "a head that finds the system's ssh first": (
        "onprem",
        replace(HEAD, r"PATH=~/\.memtune-node/bin:", "PATH="),
        "host keys",
        HEAD,
    ),
    "a ray that ssh does not find": (
        "onprem",
        replace(WORKER, r"PATH=\S+ ray stop", "ray stop"),
        "path",
        WORKER,
    ),
    "a worker without an address": (
        "onprem",
        replace(WORKER, r"--node-ip-address=.*", ""),
        "address",
        WORKER,
    ),
    "a head at another address": ("onprem", replace(HEAD, r"10\.0\.0\.10", "10.0.0.99"), "address", HEAD),
    "no ssh user": ("onprem", lambda c: c["auth"].pop("ssh_user"), "ssh", "auth.ssh_user"),
    "a head among the workers": (
        "onprem",
        lambda c: c["provider"]["worker_ips"].append(c["provider"]["head_ip"]),
        "address",
        "provider.worker_ips",
    ),
    "a worker that is no host": (
        "onprem",
        put("provider", "worker_ips", value=["10.0.0.300", "worker-1.lab", "10.0.0.12", "fe80::1"]),
        "address",
        "provider.worker_ips.0",
    ),
    "a worker with a space": (
        "onprem",
        put("provider", "worker_ips", value=["worker-1", "worker 2"]),
        "address",
        "provider.worker_ips.1",
    ),
    "a worker twice": (
        "onprem",
        put("provider", "worker_ips", value=["10.0.0.11", "10.0.0.12", "10.0.0.11"]),
        "address",
        "provider.worker_ips",
    ),
    "no key": ("onprem", put("auth", "ssh_private_key", value="no-key"), "ssh", "auth.ssh_private_key"),
    "a zone of another region": (
        "aws",
        put("provider", "availability_zone", value="us-west-2a, eu-west-1a"),
        "provider",
        "provider.availability_zone",
    ),
    "a zone of a region with a longer name": (
        "gcp",
        put("provider", "availability_zone", value="us-west10-a"),
        "provider",
        "provider.availability_zone",
    ),
    "a misspelt kind of machine": (
        "aws",
        put("available_node_types", "head", "node_config", value={"InstanceTyp": "g5", "ImageId": "a"}),
        "machine",
        "available_node_types.head.node_config.InstanceType",
    ),
    "a machine without an image": (
        "aws",
        put("available_node_types", "head", "node_config", value={"InstanceType": "m6i.xlarge"}),
        "machine",
        "available_node_types.head.node_config.ImageId",
    ),
    "one address instead of a list": (
        "onprem",
        put("provider", "worker_ips", value="192.0.2.11"),
        "schema",
        "provider.worker_ips",
    ),
    "no address of the head": ("onprem", lambda c: c["provider"].pop("head_ip"), "schema", "the file"),
    "a job server open to the network": (
        "aws",
        replace(HEAD, "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0"),
        "dashboard",
        HEAD,
    ),
    "a mount of a missing folder": (
        "aws",
        put("file_mounts", "~/data", value="no/such/folder"),
        "upload",
        "file_mounts.~/data",
    ),
    "another Ray in a setup command": (
        "gcp",
        put("worker_setup_commands", value=["pip install 'ray[default]==2.59.1'"]),
        "versions",
        "worker_setup_commands",
    ),
    "another Python": ("onprem", replace("setup_commands", "3.11", "3.12"), "versions", "setup_commands"),
    "another Ray in the workers' image": (
        "aws",
        put(
            "docker",
            value={
                "container_name": "memtune",
                "head_image": "rayproject/ray:2.60.0-py311",
                "worker_image": "rayproject/ray:2.58.0-py311-gpu",
            },
        ),
        "versions",
        "docker.worker_image",
    ),
    "no version of Ray": (
        "aws",
        lambda c: c["file_mounts"].pop("~/.memtune-node/requirements.txt"),
        "versions",
        "setup_commands",
    ),
}


@pytest.mark.parametrize("file", SHIPPED)
def test_a_shipped_file_has_no_fault(file: str) -> None:
    assert find_faults(ROOT / file) == []


@pytest.mark.parametrize("file", SHIPPED)
def test_a_shell_can_read_every_command_of_a_shipped_file(file: str) -> None:
    cluster = load_cluster(ROOT / file)
    commands = [
        line for name in cluster.config if name.endswith("_commands") for line in cluster.commands(name)
    ]
    assert len(commands) >= 8
    for command in commands:
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_a_worker_on_premises_finds_its_address_towards_the_head() -> None:
    start = load_cluster(ROOT / "clusters/onprem.yaml").ray_start_commands(WORKER)[0]
    found = re.search(r"--node-ip-address=\$\((.*)\); \}", start)
    assert found
    if shutil.which("ip") is None:
        pytest.skip("no ip command on this machine")
    environment = {**os.environ, "RAY_HEAD_IP": "127.0.0.1"}
    done = subprocess.run(
        ["bash", "-c", found[1]], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "127.0.0.1\n"


@pytest.mark.parametrize("kind", ["aws", "gcp", "onprem"])
def test_a_shipped_file_with_filled_placeholders_has_no_findings(kind: str, write: Write) -> None:
    assert check_cluster(load_cluster(write(kind, lambda config: None)), CLIENT) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_is_one_finding(fault: str, write: Write) -> None:
    kind, add_fault, rule, where = FAULTS[fault]
    found = find_faults(write(kind, add_fault))
    assert [(finding.rule, finding.where) for finding in found] == [(rule, where)]


@pytest.mark.parametrize(
    ("machine", "gpus"),
    [
        ("a2-ultragpu-1g", 1),
        ("a2-highgpu-4g", 4),
        ("zones/z/machineTypes/a3-highgpu-8g", 8),
    ],
)
def test_the_number_of_gpus_of_a_google_machine_is_checked(machine: str, gpus: int, write: Write) -> None:
    def set_gpus(config: dict[str, Any], declared: int) -> None:
        config["available_node_types"]["gpu_spot"]["node_config"]["machineType"] = machine
        config["available_node_types"]["gpu_spot"]["resources"]["GPU"] = declared

    assert find_faults(write("gcp", lambda config: set_gpus(config, gpus))) == []
    (finding,) = find_faults(write("gcp", lambda config: set_gpus(config, gpus + 1)))
    assert f"the machine has {gpus}" in finding.problem


@pytest.mark.parametrize(
    "entries",
    [
        {"file_mounts": {1: 2}},
        {"file_mounts": {"~/a": "~no_such_user/a"}},
        {"file_mounts": {"~/a.txt": "latin.txt"}},
        {"auth": {"ssh_user": "me", "ssh_private_key": "~no_such_user/key"}},
        {"available_node_types": {"a": {"node_config": {"guestAccelerators": 4}}}},
        {"available_node_types": {"a": {"node_config": {"guestAccelerators": [4]}}}},
        {
            "available_node_types": {
                "a": {"node_config": {"guestAccelerators": [{"acceleratorCount": "two"}]}}
            }
        },
    ],
    ids=str,
)
def test_an_entry_of_an_unexpected_kind_has_findings_and_no_traceback(
    entries: dict[str, Any], write: Write, project: Path
) -> None:
    (project / "latin.txt").write_bytes(b"ray==2.60.0  # \xe9\n")
    find_faults(write("gcp", lambda config: config.update(entries)))


def test_a_message_of_ray_is_shown_without_the_prefix_of_its_log(write: Write) -> None:
    (finding,) = find_faults(write("onprem", lambda config: config["provider"].pop("head_ip")))
    assert finding.problem.startswith("Ray refuses it: Please supply a `head_ip`")


def test_a_mount_of_100_mebibytes_is_too_large(write: Write, project: Path) -> None:
    large = project / "corpora"
    large.mkdir()
    with (large / "shard").open("wb") as shard:
        shard.truncate(100 * 2**20)
    (project / ".gitignore").write_text("corpora/\n")
    found = find_faults(write("aws", put("file_mounts", "~/corpora", value="corpora")))
    assert [(finding.rule, finding.where) for finding in found] == [("upload", "file_mounts.~/corpora")]


def test_a_package_of_100_mebibytes_is_too_large_unless_git_ignores_it(write: Write, project: Path) -> None:
    with (project / "notes.bin").open("wb") as notes:
        notes.truncate(100 * 2**20)
    path = write("aws", lambda config: None)
    assert [(finding.rule, finding.where) for finding in find_faults(path)] == [("upload", str(project))]
    (project / ".gitignore").write_text("*.bin\n")
    assert find_faults(path) == []


def test_the_git_folder_is_not_part_of_the_package(write: Write, project: Path) -> None:
    (project / ".git").mkdir()
    with (project / ".git" / "pack").open("wb") as pack:
        pack.truncate(200 * 2**20)
    assert find_faults(write("aws", lambda config: None)) == []


def test_an_init_file_in_the_source_root_is_a_fault(write: Write, project: Path) -> None:
    (project / "platform" / "__init__.py").touch()
    found = find_faults(write("gcp", lambda config: None))
    assert [(finding.rule, finding.where) for finding in found] == [
        ("package", str(project / "platform" / "__init__.py"))
    ]


@pytest.mark.parametrize(("ray", "python"), [("2.59.0", "3.11"), ("2.60.0", "3.12")])
def test_another_version_on_the_client_is_a_fault(ray: str, python: str, write: Write) -> None:
    found = find_faults(write("onprem", lambda config: None), Versions(ray=ray, python=python))
    assert [finding.rule for finding in found] == ["versions"]


def test_the_fix_of_a_misspelt_field_names_the_nearest_field(write: Write) -> None:
    [finding] = find_faults(write("aws", put("provider", "cache_stoped_nodes", value=True)))
    assert 'did you mean "cache_stopped_nodes"?' in finding.fix


def test_the_fix_of_a_misspelt_kind_of_machine_names_it(write: Write) -> None:
    machine = {"InstanceTyp": "m6i.xlarge", "ImageId": "ami-1"}
    [finding] = find_faults(write("aws", put("available_node_types", "head", "node_config", value=machine)))
    assert finding.fix == 'rename "InstanceTyp" to InstanceType'


def test_a_launch_template_names_the_machine_and_its_image(write: Write) -> None:
    machine = {"LaunchTemplate": {"LaunchTemplateName": "head"}}
    assert not find_faults(write("aws", put("available_node_types", "head", "node_config", value=machine)))


@pytest.mark.parametrize("name", ["raycluster", "rayjob"])
def test_a_manifest_of_kubernetes_is_no_cluster_file(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"manifest of Kubernetes, .* docs/cluster/kubernetes\.md"):
        load_cluster(ROOT / f"clusters/kubernetes/{name}.yaml")


def test_every_placeholder_of_a_shipped_file_is_found() -> None:
    found = check_cluster(load_cluster(ROOT / "clusters/onprem.yaml"), CLIENT)
    assert [finding.where for finding in found if finding.kind == "edit"] == [
        "provider.head_ip",
        "provider.worker_ips.0",
        "provider.worker_ips.1",
        "auth.ssh_user",
        "auth.ssh_private_key",
        "head_start_ray_commands.2",
    ]


@pytest.mark.parametrize("text", ["- a\n- list\n", "a: [1\n", "a: 2026-13-01\n"])
def test_a_file_that_is_not_a_table_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"bad\.yaml"):
        load_cluster(tmp_path / "bad.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"program is not a text file.*name a cluster file"):
        load_cluster(tmp_path / "program")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml: No such file"):
        load_cluster(tmp_path / "none.yaml")


def test_the_command_ends_with_1_and_prints_the_fix_of_a_fault(write: Write) -> None:
    path = write("onprem", replace(HEAD, "RAY_enable_autoscaler_v2=0", ""))
    done = CliRunner().invoke(cli.app, ["cluster", "check", str(path)])
    assert done.exit_code == 1
    assert "fix: write it as: RAY_enable_autoscaler_v2=0 ray start --head" in done.output


def test_the_command_prints_findings_as_json(write: Write) -> None:
    path = write("aws", put("provider", "regio", value="x"))
    done = CliRunner().invoke(cli.app, ["cluster", "check", str(path), "--json"])
    assert done.exit_code == 1
    assert [finding["where"] for finding in json.loads(done.stdout)] == ["provider.regio"]
