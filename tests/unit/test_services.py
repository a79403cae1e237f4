"""The services beside a cluster: what is open, who reads the passwords, what MLflow is told."""

import json
import re
import stat
import subprocess
import sys
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
def known() -> dict[str, set[str]]:
    """The options and the variables of MLflow's server, read in a process of their own."""
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


def settings(path: Path) -> dict[str, str]:
    """A file of NAME=VALUE lines."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_only_their_owner_reads_the_passwords(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    assert make_secrets(folder).returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_passwords_are_made_without_a_word(tmp_path: Path) -> None:
    done = make_secrets(tmp_path / "secrets")
    assert (done.stdout, done.stderr) == ("", "")


def test_servers_and_users_get_the_same_passwords(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    database = (folder / "postgres_password").read_text()
    server = settings(folder / "mlflow.env")
    assert server["PGPASSWORD"] == database
    assert (folder / "pgpass").read_text() == f"*:5432:*:memtune:{database}\n"
    assert (
        f"mlflow_tracking_password = {server['MLFLOW_AUTH_ADMIN_PASSWORD']}\n"
        in (folder / "mlflow_credentials").read_text()
    )
    assert len({*server.values()}) == 3
    assert {len(value) for value in server.values()} == {48}


def test_passwords_that_are_there_stay(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    make_secrets(folder)
    before = (folder / "mlflow.env").read_text()
    assert make_secrets(folder).returncode == 1
    assert (folder / "mlflow.env").read_text() == before


def test_git_ignores_the_passwords() -> None:
    assert "clusters/services/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_port_is_this_machines_own_unless_told_otherwise(compose: dict[str, Any]) -> None:
    ports = [port for service in compose.values() for port in service["ports"]]
    assert ports
    assert [port for port in ports if not port.startswith("${MEMTUNE_BIND:-127.0.0.1}:")] == []


def test_no_password_stands_in_the_compose_file(compose: dict[str, Any]) -> None:
    names = {name for service in compose.values() for name in service["environment"]}
    assert {name for name in names if re.search("PASSWORD|SECRET", name)} == {"POSTGRES_PASSWORD_FILE"}


@pytest.mark.parametrize("place", ["compose", "unit"])
def test_mlflow_asks_who_is_there(place: str, compose: dict[str, Any]) -> None:
    command = compose["mlflow"]["command"] if place == "compose" else UNIT.read_text()
    assert "mlflow server --app-name basic-auth" in command


@pytest.mark.parametrize("place", ["compose", "unit"])
def test_mlflow_has_every_option_it_is_given(
    place: str, compose: dict[str, Any], known: dict[str, set[str]]
) -> None:
    unit = re.findall("ExecStart=(.*)", UNIT.read_text())[0]
    given = set(re.findall(r"--[\w-]+", compose["mlflow"]["command"] if place == "compose" else unit))
    assert given
    assert given <= known["options"]


def test_mlflow_reads_every_variable_it_is_given(
    compose: dict[str, Any], known: dict[str, set[str]], tmp_path: Path
) -> None:
    make_secrets(tmp_path / "secrets")
    given = {*compose["mlflow"]["environment"], *settings(tmp_path / "secrets" / "mlflow.env")}
    given |= set(re.findall(r"\b(MLFLOW_\w+)=", UNIT.read_text()))
    assert {name for name in given if name.startswith("MLFLOW")} <= known["variables"]


def test_one_version_of_the_database_driver_is_installed_everywhere() -> None:
    files = [ROOT / "cluster.yaml", *(ROOT / "clusters").glob("*.yaml"), SERVICES / "Dockerfile"]
    found = {re.findall(r"psycopg\[binary\]==([\d.]+)", path.read_text())[0] for path in files}
    assert len(found) == 1
