"""`memtune cluster check`: the faults of a cluster file, found without a cloud or a cluster.

Seen with Ray 2.60, since which `ray start --head` turns token authentication on. Without a token file it
creates a token that only the head has. So a cluster file mounts the client's token on every node, and each
`ray start` has RAY_AUTH_MODE=token. Ray's schema accepts any name under `provider:`, and Ray ignores an
unknown one silently. The autoscaler starts nodes by the declared number of GPUs alone: with too many, trials
wait for a node that can never hold them; with none, no node starts.
"""

import os
import platform
import re
from collections.abc import Iterator
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from memtune.errors import did_you_mean
from memtune.ray_backend import compatibility
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding, Problem
from memtune.settings import LOOPBACK_HOSTS
from memtune.values import Value

TOKEN_PATH_ON_NODES = "~/.ray/auth_token"
SSH_PATH_ON_NODES = "~/.memtune-node/bin/ssh"
"""Where a cluster file mounts the program that verifies host keys."""
HEAD_START_COMMANDS, WORKER_START_COMMANDS = "head_start_ray_commands", "worker_start_ray_commands"
RAY_PATH = re.compile(r"\bPATH=|(^|\s)[~/$]\S*/ray (start|stop)\b")


def find_missing_token(cluster: ClusterFile) -> Iterator[Problem]:
    """A missing file mount of the token, or a `ray start` without RAY_AUTH_MODE=token."""
    if not any(remote.endswith(".ray/auth_token") for remote in cluster.mounts):
        problem = "only the head would have the cluster's token: no worker could join"
        fix = f'add to file_mounts: "{TOKEN_PATH_ON_NODES}": "{TOKEN_PATH_ON_NODES}"'
        yield "file_mounts", problem, fix
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS):
        starts = cluster.ray_start_commands(name)
        if not starts or not all(re.search(r"\bRAY_AUTH_MODE=token\b", command) for command in starts):
            fix = "write it as: RAY_AUTH_MODE=token ray start ..."
            yield name, "`ray start` without RAY_AUTH_MODE=token", fix


def find_exposed_token(cluster: ClusterFile) -> Iterator[Problem]:
    """Commands that contain the token: every user of the host can read them with `ps`."""
    problem = "the token is on a command line, where every user of the host can read it"
    fix = f"remove RAY_AUTH_TOKEN=...; nodes read the token from {TOKEN_PATH_ON_NODES}"
    for name in [name for name in cluster.config if str(name).endswith("_commands")]:
        if any(re.search(r"\bRAY_AUTH_TOKEN=", command) for command in cluster.commands(name)):
            yield name, problem, fix


def find_missing_ssh_user(cluster: ClusterFile) -> Iterator[Problem]:
    """A missing `auth.ssh_user`: Ray ends with a KeyError at its first connection."""
    if not cluster.table("auth").get("ssh_user"):
        yield "auth.ssh_user", "the user of the nodes is missing", "write ssh_user: NAME under auth"


def find_missing_ssh_key(cluster: ClusterFile) -> Iterator[Problem]:
    """An `auth.ssh_private_key` that is no file."""
    key = str(cluster.table("auth").get("ssh_private_key") or "")
    if not key or PLACEHOLDER.search(key):
        return
    if not (path := cluster.folder / os.path.expanduser(key)).is_file():
        fix = "name the private key with which this machine connects to the nodes"
        yield "auth.ssh_private_key", f"{path} is not a file", fix


def find_exposed_dashboard(cluster: ClusterFile) -> Iterator[Problem]:
    """A job server that listens on the network: each request carries the token over plain http."""
    fix = "write --dashboard-host=127.0.0.1, and connect with `memtune cluster dashboard`"
    for command in cluster.ray_start_commands(HEAD_START_COMMANDS):
        host = re.search(r"--dashboard-host[= ](\S+)", command)
        if host and host[1] not in LOOPBACK_HOSTS:
            problem = (
                f"the job server would listen on {host[1]}; its requests carry the token over plain http"
            )
            yield HEAD_START_COMMANDS, problem, fix


def find_shared_session_folder(cluster: ClusterFile) -> Iterator[Problem]:
    """Nodes on which other users could replace the code of jobs: Ray gives its own folders mode 0777.

    Workers use the path of the head. Ray also gives the folder of `--temp-dir` this mode, but not RAY_TMPDIR.
    """
    problem = "other users of the node could write to Ray's folder and replace the code of jobs in it"
    folder = cluster.temporary_folder
    wanted = "/tmp/memtune-$(whoami)" if folder == "/tmp" else folder
    fix = f"add the command: install -d -m 700 {wanted}; write RAY_TMPDIR={wanted} ray start --head ..., and "
    fix += "no --temp-dir"
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS):
        is_made = any(f"install -d -m 700 {wanted}" in command for command in cluster.commands(name))
        is_used = folder == wanted and "--temp-dir" not in " ".join(cluster.ray_start_commands(name))
        if not (is_made and is_used):
            yield name, problem, fix


def find_autoscaler_v2(cluster: ClusterFile) -> Iterator[Problem]:
    """A head that would start version 2 of the autoscaler, which never connects to a worker on premises."""
    starts = cluster.ray_start_commands(HEAD_START_COMMANDS)
    has_v1 = starts and all(re.search(r"\bRAY_enable_autoscaler_v2=0\b", command) for command in starts)
    if cluster.is_on_premises and not has_v1:
        problem = "version 2 of the autoscaler never starts the workers of the provider local"
        yield HEAD_START_COMMANDS, problem, "write it as: RAY_enable_autoscaler_v2=0 ray start --head ..."


def find_unresolved_ray_commands(cluster: ClusterFile) -> Iterator[Problem]:
    """Commands with a `ray` that the shell over ssh may not find."""
    fix = "set PATH in the command, or call ray by its absolute path"
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS) if cluster.is_on_premises else ():
        for command in cluster.commands(name):
            if re.search(r"\bray (start|stop)\b", command) and not RAY_PATH.search(command):
                yield name, f"the shell over ssh may not find ray: {command}", fix


def find_ambiguous_addresses(cluster: ClusterFile) -> Iterator[Problem]:
    """A `ray start` without the node's address, or a head with another address than `provider.head_ip`."""
    if not cluster.is_on_premises or "coordinator_address" in cluster.provider:
        return
    head_ip = cluster.provider.get("head_ip")
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS):
        for command in cluster.ray_start_commands(name):
            option = re.search(r"--node-ip-address[= ](\S+)", command)
            if option is None:
                problem = "the node would pick one of its addresses, which others may not reach"
                yield name, problem, "add --node-ip-address=... to ray start"
            elif name == HEAD_START_COMMANDS and head_ip and option[1] != head_ip:
                problem = f"the address is {option[1]}, but provider.head_ip is {head_ip}"
                yield name, problem, f"write --node-ip-address={head_ip}"


def find_head_among_workers(cluster: ClusterFile) -> Iterator[Problem]:
    """The head's address among the workers': `ray up` ends with an AssertionError."""
    head_ip, workers = cluster.provider.get("head_ip"), cluster.provider.get("worker_ips")
    if cluster.is_on_premises and isinstance(workers, list) and head_ip in workers:
        problem = f"{head_ip} is the head; a host is either the head or a worker"
        yield "provider.worker_ips", problem, "remove it from worker_ips, or name another head_ip"


HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.?")


def find_wrong_workers(cluster: ClusterFile) -> Iterator[Problem]:
    """Workers on premises that are no address or host name, or that the file has twice."""
    workers = cluster.provider.get("worker_ips")
    if not cluster.is_on_premises or not isinstance(workers, list):
        return
    for number, host in enumerate(workers):
        if not _is_host(str(host)):
            fix = "write the worker's address or host name"
            yield f"provider.worker_ips.{number}", f"{host!r} is no address or host name", fix
    for host in sorted({str(host) for host in workers if workers.count(host) > 1}):
        yield "provider.worker_ips", f"{host} is there more than once", "name each worker once"


def _is_host(text: str) -> bool:
    """Whether a text is an address, or the name of a host, whose last part is no number."""
    try:
        ip_address(text)
    except ValueError:
        last = text.rstrip(".").rpartition(".")[2]
        return HOST_NAME.fullmatch(text) is not None and not last.isdecimal()
    return True


def find_unverified_workers(cluster: ClusterFile) -> Iterator[Problem]:
    """A head whose autoscaler would connect to workers without verifying their host keys."""
    starts = cluster.ray_start_commands(HEAD_START_COMMANDS)
    is_verified = all(re.search(r"\bPATH=~/\.memtune-node/bin:", command) for command in starts)
    problem = "the head would send the token and mounted passwords to any host that answers as a worker"
    if cluster.is_on_premises and SSH_PATH_ON_NODES not in cluster.mounts:
        source = "platform/memtune/ray_backend/clusters/bin/ssh"
        yield "file_mounts", problem, f'add: "{SSH_PATH_ON_NODES}": "{source}"'
    elif cluster.is_on_premises and not is_verified:
        fix = "write it as: PATH=~/.memtune-node/bin:... ray start --head ..."
        yield HEAD_START_COMMANDS, problem, fix


COMMON_FIELDS = {
    "type",
    "use_internal_ips",
    "use_external_head_ip",
    "disable_node_updaters",
    "disable_launch_config_check",
    "foreground_node_launch",
    "worker_liveness_check",
}
CLOUD_FIELDS = {"region", "availability_zone", "cache_stopped_nodes"}
FIELDS_BY_PROVIDER = {
    "aws": COMMON_FIELDS | CLOUD_FIELDS | {"key_pair", "security_group", "aws_credentials", "cloudwatch"},
    "gcp": COMMON_FIELDS | CLOUD_FIELDS | {"project_id", "gcp_credentials"},
    "local": COMMON_FIELDS | {"head_ip", "worker_ips", "external_head_ip", "coordinator_address"},
}
PLACEHOLDER = re.compile(r"EDIT-[\w-]+|\b(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}\b")
"""The addresses are those that RFC 5737 reserves for documentation."""


def find_unknown_provider_fields(cluster: ClusterFile) -> Iterator[Problem]:
    """Names under `provider:` that aws, gcp or local does not read; no finding for other providers."""
    kind = cluster.provider.get("type")
    known = FIELDS_BY_PROVIDER.get(str(kind), cluster.provider)
    for name in cluster.provider:
        if name not in known:
            problem = f'the provider "{kind}" does not read "{name}"'
            yield f"provider.{name}", problem, f"remove it or rename it; {did_you_mean(str(name), known)}"


def find_foreign_zones(cluster: ClusterFile) -> Iterator[Problem]:
    """Zones of another region: us-west-2a is of us-west-2 on AWS, us-west1-a of us-west1 on Google Cloud."""
    kind, region = cluster.provider.get("type"), cluster.provider.get("region")
    named = cluster.provider.get("availability_zone")
    if kind not in ("aws", "gcp") or not region or not named:
        return
    zones = [zone.strip() for zone in str(named).split(",")]
    start = f"{region}-" if kind == "gcp" else str(region)
    if foreign := [zone for zone in zones if not zone.startswith(start)]:
        problem = f"{', '.join(foreign)} not in the region {region}"
        yield "provider.availability_zone", problem, f"name zones whose names start with {start}"


def find_incomplete_machines(cluster: ClusterFile) -> Iterator[Problem]:
    """Node types on AWS without a kind of machine or an image, which a launch template may have."""
    node_types = cluster.table("available_node_types") if cluster.provider.get("type") == "aws" else {}
    for name, node_type in node_types.items():
        machine = node_type.get("node_config") if isinstance(node_type, dict) else None
        if not isinstance(machine, dict) or "LaunchTemplate" in machine:
            continue
        for field in ("InstanceType", "ImageId"):
            if not machine.get(field):
                problem = f"the node type has no {field}"
                near = get_close_matches(field, map(str, machine), n=1)
                fix = f'rename "{near[0]}" to {field}' if near else f"write {field} there, as in cluster.yaml"
                yield f"available_node_types.{name}.node_config.{field}", problem, fix


def find_wrong_gpu_counts(cluster: ClusterFile) -> Iterator[Problem]:
    """Node types whose `resources.GPU` is not an integer, or not that of their machine in the file."""
    for name, node_type in cluster.table("available_node_types").items():
        if not isinstance(node_type, dict):
            continue
        resources, machine = node_type.get("resources"), node_type.get("node_config")
        declared = resources.get("GPU", 0) if isinstance(resources, dict) else 0
        actual = _count_gpus(machine) if isinstance(machine, dict) else None
        where = f"available_node_types.{name}.resources.GPU"
        if not isinstance(declared, int) or isinstance(declared, bool):
            fix = "write an integer; for a share of a GPU, set gpus_per_trial under [resources] in the study"
            yield where, f"{declared!r} is not an integer", fix
        elif actual not in (None, declared):
            problem = f"{declared} declared, the machine has {actual}"
            yield where, problem, f"write GPU: {actual}, or name another machine"


def _count_gpus(machine: dict[str, Any]) -> int | None:
    """Google's accelerators, or the number in a name such as a2-highgpu-4g; None without a number."""
    if isinstance(accelerators := machine.get("guestAccelerators"), list) and accelerators:
        found = [each.get("acceleratorCount", 0) for each in accelerators if isinstance(each, dict)]
        counts = [count for count in found if isinstance(count, int)]
        return sum(counts) if len(counts) == len(accelerators) else None
    named = re.search(r"-(\d+)g(?:-\w+)?$", str(machine.get("machineType", "")))
    return int(named[1]) if named else None


def find_placeholders(cluster: ClusterFile) -> Iterator[Problem]:
    """The entries that still hold a placeholder."""
    fix = "replace it with your value; the comment next to it explains which"
    for where, text in _iterate_strings(cluster.config, ""):
        if found := PLACEHOLDER.search(text):
            yield where, f"{found[0]} is a placeholder", fix


def _iterate_strings(node: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every string below a node, with its dotted name."""
    if isinstance(node, str):
        yield where, node
        return
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in entries:
        yield from _iterate_strings(value, f"{where}.{name}" if where else str(name))


def find_schema_violations(cluster: ClusterFile) -> Iterator[Problem]:
    """At most one: Ray stops at the first violation."""
    try:
        compatibility.validate_cluster_config(cluster.config)
    except compatibility.ClusterConfigError as error:
        fix = "write the entry as in cluster.yaml, clusters/gcp.yaml or clusters/onprem.yaml"
        yield error.entry, f"Ray refuses it: {error.problem}", fix


MAX_UPLOAD_BYTES = 100 * 2**20
"""Bytes; the job server refuses a larger package (DASHBOARD_CLIENT_MAX_SIZE in Ray)."""


def find_missing_mounts(cluster: ClusterFile) -> Iterator[Problem]:
    """File mounts whose local side is missing, except the token: `memtune cluster up` creates it."""
    fix = "name a file or folder that exists; relative paths start at the project's folder"
    for remote, local in cluster.mounts.items():
        if not local.exists() and local.name != "auth_token":
            yield f"file_mounts.{remote}", f"{local} does not exist", fix


def find_large_uploads(cluster: ClusterFile) -> Iterator[Problem]:
    """File mounts, or a package of the project, of at least 100 MiB."""
    fix = "mount less, or keep it in shared storage"
    uploads = [
        (f"file_mounts.{name}", _count_tree_bytes(local), fix) for name, local in cluster.mounts.items()
    ]
    if (cluster.folder / "platform" / "memtune").is_dir():
        packed = sum(path.stat().st_size for path in compatibility.iterate_packaged_files(cluster.folder))
        fix = "add what a job does not need to .gitignore or .rayignore; keep corpora in shared storage"
        uploads.append((str(cluster.folder), packed, fix))
    limit = f"an upload is limited to {MAX_UPLOAD_BYTES / 2**20:.0f} MiB"
    for where, size, fix in uploads:
        if size >= MAX_UPLOAD_BYTES:
            yield where, f"{size / 2**20:.0f} MiB; {limit}", fix


def _count_tree_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)


def find_shadowed_standard_library(cluster: ClusterFile) -> Iterator[Problem]:
    """`platform/__init__.py` in the project or in a mounted folder.

    It makes the source root a package that hides the standard library's `platform`: `import torch` fails
    wherever the project is the working folder.
    """
    folders = {cluster.folder, *cluster.mounts.values()}
    problem = "it hides the standard library's `platform`: importing torch or ray fails on every node"
    for root in sorted({folder if folder.name == "platform" else folder / "platform" for folder in folders}):
        if (root / "memtune").is_dir() and (root / "__init__.py").exists():
            yield str(root / "__init__.py"), problem, "delete it; platform/ is a source root, not a package"


RAY_VERSION = re.compile(r"(?<![\w-])ray(?:\[[\w,\-]+\])?==([\w.]+)")
PYTHON_VERSION = re.compile(r"(?:--python[= ]|\bpython=|\bpython)(3\.\d+)")
IMAGE_VERSIONS = re.compile(r"ray(?:-ml)?:([\d.]+)(?:-py(3)(\d+))?")


class Versions(Value):
    """The versions on one machine; Python's is major.minor."""

    ray: str
    python: str

    @classmethod
    def detect(cls) -> "Versions":
        """The versions of this process."""
        # Imported here: importing Ray takes about 1 s, and help does not need it.
        import ray

        return cls(ray=ray.__version__, python=".".join(platform.python_version_tuple()[:2]))


def find_version_mismatches(cluster: ClusterFile, client: Versions) -> Iterator[Problem]:
    """Entries that declare another version than the client's, and versions that no entry declares."""
    declared = [*_find_declared_versions(cluster)]
    for name, own in client.model_dump().items():
        found = [(where, version) for kind, where, version in declared if kind == name]
        if not found:
            problem = f"no entry declares the nodes' version of {name}; this machine has {own}"
            fix = f"declare {own} in an image's tag, a setup command or a mounted requirements.txt"
            yield "setup_commands", problem, fix
        for where, version in found:
            if version != own:
                fix = f"write {own} there, or install {version} here; head, workers and client must agree"
                yield where, f"{name} {version} on the nodes, {own} on this machine", fix


def _find_declared_versions(cluster: ClusterFile) -> Iterator[tuple[str, str, str]]:
    """("ray" or "python", entry of the file, version) of each declaration."""
    for name in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"):
        commands = "\n".join(cluster.commands(name))
        yield from (("ray", name, version) for version in RAY_VERSION.findall(commands))
        yield from (("python", name, version) for version in PYTHON_VERSION.findall(commands))
    for name in ("image", "head_image", "worker_image"):
        if image := IMAGE_VERSIONS.search(str(cluster.table("docker").get(name, ""))):
            yield "ray", f"docker.{name}", image[1]
            if image[2]:
                yield "python", f"docker.{name}", f"{image[2]}.{image[3]}"
    for remote, local in cluster.mounts.items():
        if local.suffix == ".txt" and local.is_file():
            pinned = RAY_VERSION.findall(local.read_text(encoding="utf-8", errors="replace"))
            yield from (("ray", f"file_mounts.{remote}", version) for version in pinned)


CHECKS = (
    ("provider", find_unknown_provider_fields),
    ("provider", find_foreign_zones),
    ("machine", find_incomplete_machines),
    ("gpus", find_wrong_gpu_counts),
    ("token", find_missing_token),
    ("token", find_exposed_token),
    ("ssh", find_missing_ssh_user),
    ("ssh", find_missing_ssh_key),
    ("dashboard", find_exposed_dashboard),
    ("folder", find_shared_session_folder),
    ("autoscaler", find_autoscaler_v2),
    ("path", find_unresolved_ray_commands),
    ("address", find_ambiguous_addresses),
    ("address", find_head_among_workers),
    ("address", find_wrong_workers),
    ("host keys", find_unverified_workers),
    ("upload", find_missing_mounts),
    ("upload", find_large_uploads),
    ("package", find_shadowed_standard_library),
    ("edit", find_placeholders),
)
"""The topic and the function of each rule."""


def check_cluster(cluster: ClusterFile, client: Versions | None = None) -> list[Finding]:
    """The findings of all rules, with `client` for the versions of this machine.

    Ray's schema adds none for an entry that a rule here explains.
    """
    versions = find_version_mismatches(cluster, client or Versions.detect())
    found = [(topic, problem) for topic, rule in CHECKS for problem in rule(cluster)]
    found += [("versions", problem) for problem in versions]
    explained = {where for topic, (where, *_) in found if topic != "edit"}
    refused = [problem for problem in find_schema_violations(cluster) if problem[0] not in explained]
    return [
        Finding(
            rule=topic, where=where, problem=problem, fix=fix, kind="edit" if topic == "edit" else "fault"
        )
        for topic, (where, problem, fix) in [*(("schema", each) for each in refused), *found]
    ]
