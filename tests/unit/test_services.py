"""The services of a cluster: open ports, file modes of passwords, options of MLflow, locked packages."""

import json
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / "clusters" / "services"
UNIT = SERVICES / "memtune-mlflow.service"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SERVICES / "compose.yaml").read_text())["services"]
    return found


@pytest.fixture(scope="module")
def supported() -> dict[str, set[str]]:
    """The options and variables of MLflow's server, read in another process."""
    program = (
        "import json; from mlflow import environment_variables; from mlflow.cli import server\n"
        "options = [option for parameter in server.params for option in parameter.opts]\n"
        "variables = [str(parameter.envvar) for parameter in server.params] + dir(environment_variables)\n"
        "print(json.dumps({'options': options, 'variables': variables}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name: set(names) for name, names in json.loads(done.stdout.splitlines()[-1]).items()}


def make_secrets(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(SERVICES / "make_secrets.sh"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_variables(path: Path) -> dict[str, str]:
    """A file of NAME=VALUE lines."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_only_their_owner_can_read_the_passwords(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert make_secrets(folder).returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_making_passwords_prints_nothing(tmp_path: Path) -> None:
    done = make_secrets(tmp_path / "secrets")
    assert (done.stdout, done.stderr) == ("", "")


def test_servers_and_users_have_the_same_passwords(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    database = (folder / "postgres_password").read_text()
    server = read_variables(folder / "mlflow.env")
    assert server["PGPASSWORD"] == database
    assert (folder / "pgpass").read_text() == f"*:5432:*:memtune:{database}\n"
    assert (
        f"mlflow_tracking_password = {server['MLFLOW_AUTH_ADMIN_PASSWORD']}\n"
        in (folder / "mlflow_credentials").read_text()
    )
    assert len({*server.values()}) == 3
    assert {len(value) for value in server.values()} == {48}


def test_existing_passwords_are_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    before = (folder / "mlflow.env").read_text()
    assert make_secrets(folder).returncode == 1
    assert (folder / "mlflow.env").read_text() == before


def test_git_ignores_the_passwords() -> None:
    assert "clusters/services/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_port_listens_on_loopback_by_default(compose: dict[str, Any]) -> None:
    ports = [port for service in compose.values() for port in service["ports"]]
    assert ports
    assert [port for port in ports if not port.startswith("${MEMTUNE_BIND:-127.0.0.1}:")] == []


def test_the_compose_file_contains_no_password(compose: dict[str, Any]) -> None:
    names = {name for service in compose.values() for name in service["environment"]}
    assert {name for name in names if re.search("PASSWORD|SECRET", name)} == {"POSTGRES_PASSWORD_FILE"}


@pytest.mark.parametrize("place", ["compose", "unit"])
def test_mlflow_requires_authentication(place: str, compose: dict[str, Any]) -> None:
    command = compose["mlflow"]["command"] if place == "compose" else UNIT.read_text()
    assert "mlflow server --app-name basic-auth" in command


@pytest.mark.cluster
@pytest.mark.parametrize("place", ["compose", "unit"])
def test_mlflow_supports_every_option_of_its_command(
    place: str, compose: dict[str, Any], supported: dict[str, set[str]]
) -> None:
    unit = re.findall("ExecStart=(.*)", UNIT.read_text())[0]
    options = set(re.findall(r"--[\w-]+", compose["mlflow"]["command"] if place == "compose" else unit))
    assert options
    assert options <= supported["options"]


@pytest.mark.cluster
def test_mlflow_supports_every_variable_of_its_environment(
    compose: dict[str, Any], supported: dict[str, set[str]], tmp_path: Path
) -> None:
    make_secrets(tmp_path / "secrets")
    variables = {*compose["mlflow"]["environment"], *read_variables(tmp_path / "secrets" / "mlflow.env")}
    variables |= set(re.findall(r"\b(MLFLOW_\w+)=", UNIT.read_text()))
    assert {name for name in variables if name.startswith("MLFLOW")} <= supported["variables"]


LOCKS = {"nodes": ROOT / "clusters" / "requirements.txt", "services": SERVICES / "requirements.txt"}


def read_pins(path: Path) -> dict[str, str]:
    """Version by package, with normalised names."""
    pinned = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.+-]+)", path.read_text(), re.MULTILINE)
    return {normalise_name(name): version for name, version in pinned}


def normalise_name(name: str) -> str:
    """The name of a package as the index compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("place", LOCKS)
def test_every_locked_package_has_digests_and_the_tested_version(place: str) -> None:
    text = LOCKS[place].read_text()
    entries = re.findall(r"^[\w.-]+==.*(?:\n .*)*", text, re.MULTILINE)
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    tested, locked = read_pins(ROOT / "constraints.txt"), read_pins(LOCKS[place])
    assert len(locked) == len(entries) > 90
    assert {name: v for name, v in locked.items() if tested.get(name, v) != v} == {}


def test_nodes_have_every_dependency_of_memtune() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    clouds = [*project["optional-dependencies"]["aws"], *project["optional-dependencies"]["gcp"]]
    required = [*project["dependencies"], *clouds]
    named = {normalise_name(re.split(r"[\[<>=]", entry)[0]) for entry in required}
    assert named - read_pins(LOCKS["nodes"]).keys() == set()


def test_services_have_the_packages_for_passwords_and_buckets() -> None:
    assert {"mlflow", "flask-wtf", "psycopg-binary", "boto3"} <= read_pins(LOCKS["services"]).keys()


@pytest.mark.parametrize("path", ["cluster.yaml", "clusters/gcp.yaml", "clusters/onprem.yaml"])
def test_nodes_install_only_packages_with_digests(path: str) -> None:
    cluster = yaml.safe_load((ROOT / path).read_text())
    commands = [line for name in cluster if name.endswith("setup_commands") for line in cluster[name]]
    installs = [line for line in commands if "pip install" in line]
    assert len(installs) == 1
    assert "--require-hashes -r ~/.memtune-node/requirements.txt" in installs[0]
    assert cluster["file_mounts"]["~/.memtune-node/requirements.txt"] == "clusters/requirements.txt"
