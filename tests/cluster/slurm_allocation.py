"""An allocation of Slurm on local hosts: `clusters/slurm.sh` and stand-ins for Slurm's programs.

The stand-in for `srun` starts a task on each host over ssh, with the environment of the batch script, and
passes SIGTERM on. The hosts share a home and an environment that imports a copy of this project.
"""

import re
import shlex
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtune.settings import Settings
from tests.cluster.drivers import Driver
from tests.cluster.hosts import PATH, SHARED_MOUNT, Hosts, find_missing_requirements

__all__ = ["SSH", "Allocation", "boot_allocation"]

ROOT = Path(__file__).parents[2]
SCONTROL = """#!/bin/sh
# scontrol show hostnames LIST: the test writes lists without ranges.
test "$1 $2" = "show hostnames" && echo "$3" | tr , '\\n'
"""
SSH = (
    f"ssh -i {SHARED_MOUNT}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
)
"""What connects one host to another; only its options differ from what a user writes."""
SRUN = """#!/bin/bash
# Runs a command on each host of the allocation, with the environment of the batch script.
while [[ $1 == --* ]]; do shift; done
folder=$(mktemp -d "$HOME/step-XXXXXX")
on() { SSH -n "$@"; }
clients=()
for node in ${SLURM_JOB_NODELIST//,/ }; do
  {
    export -p
    echo "export SLURM_NODEID=${#clients[@]}; echo \\$\\$ > $folder/$node.pid"
    printf 'exec '
    printf '%q ' "$@"
  } > "$folder/$node.sh"
  on "$node" bash "$folder/$node.sh" &
  clients+=($!)
done
trap 'for node in ${SLURM_JOB_NODELIST//,/ }; do on "$node" kill -TERM "$(<"$folder/$node.pid")"; done' TERM
for client in "${clients[@]}"; do wait "$client" || wait "$client"; done
"""
PROGRAM = """#!{python}
from {module} import {name}
{name}()
"""


class Allocation:
    """Hosts with a shared home; `run_batch` runs the batch script on the first one.

    The last host is the login node, which is no part of the allocation.
    """

    def __init__(self, hosts: Hosts) -> None:
        (*self.hosts, self.login_node), self.home = hosts.hosts, hosts.shared / "home"
        self._shared = hosts.shared
        self.home.mkdir()
        for name in ("platform", "search_spaces", "clusters"):
            shutil.copytree(
                ROOT / name, self._shared / "clone" / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(hosts.key, self._shared / "key")
        self._make_environment()
        self._make_slurm_programs()

    def _make_environment(self) -> None:
        folder = self._shared / "environment"
        venv.create(folder, symlinks=True)
        libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        own = [f"{SHARED_MOUNT}/clone/platform", *sorted(libraries)]
        # By code, so that the .pth file of an editable memtune in the libraries is not read.
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "libraries.pth").write_text(f"import sys; sys.path.extend({own})\n")
        python = f"{SHARED_MOUNT}/environment/bin/python"
        for program, module in (("ray", "ray.scripts.scripts"), ("memtune", "memtune.cli")):
            self._write_program(
                folder / "bin" / program, PROGRAM.format(python=python, module=module, name="main")
            )

    def _make_slurm_programs(self) -> None:
        folder = self._shared / "slurm"
        folder.mkdir()
        self._write_program(folder / "scontrol", SCONTROL)
        self._write_program(folder / "srun", SRUN.replace("SSH", SSH))

    @staticmethod
    def _write_program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def build_environment(self, nodes: int) -> dict[str, str]:
        """The variables that Slurm and the user's shell give to a batch script on this number of nodes."""
        return {
            "HOME": f"{SHARED_MOUNT}/home",
            "PATH": f"{SHARED_MOUNT}/slurm:{PATH}",
            "VIRTUAL_ENV": f"{SHARED_MOUNT}/environment",
            "PYTHONUNBUFFERED": "1",
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_NODELIST": ",".join(host.name for host in self.hosts[:nodes]),
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_CPUS_PER_TASK": "1",
        }

    @property
    def settings(self) -> Settings:
        """The locations of the studies, as this machine sees them."""
        home = self.home / ".memtune"
        return Settings(
            home=home,
            corpus_store=str(home / "corpora"),
            studies_folder=str(home / "studies"),
            study_database=f"journal:///{home / 'proposals.log'}",
            tracking_uri=f"sqlite:///{home / 'mlflow.db'}",
        )

    @contextmanager
    def run_batch(self, *arguments: str, nodes: int = 2) -> Iterator[Driver]:
        """Run the batch script on the first of some hosts during the block, in the home folder."""
        variables = [f"{name}={value}" for name, value in self.build_environment(nodes).items()]
        batch_script = shlex.join([f"{SHARED_MOUNT}/clone/clusters/slurm.sh", *arguments])
        script = f"cd && echo $$ > batch.pid && exec {batch_script}"
        batch = Driver([*self.hosts[0].enter_command, "env", "-i", *variables, "bash", "-c", script])
        try:
            yield batch
        finally:
            batch.kill_session()

    def run_on_login_node(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line of the user on the login node, in the home folder and its environment."""
        variables = [
            f"HOME={SHARED_MOUNT}/home",
            f"PATH={SHARED_MOUNT}/environment/bin:{PATH}",
            "COLUMNS=200",
        ]
        words = [*self.login_node.enter_command, "env", "-i", *variables, "bash", "-c", f"cd && {command}"]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def join_without_token(self) -> str:
        """What `ray start` prints on the second host of the running cluster, without the token."""
        (raylet,) = self.hosts[1].find_processes("raylet/raylet")
        address = re.search(rb"--gcs-address=([\d.:]+)", Path(f"/proc/{raylet}/cmdline").read_bytes())
        assert address is not None
        environment = self.build_environment(2) | {"HOME": "/nonexistent"}
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = [f"{SHARED_MOUNT}/environment/bin/ray", "start", f"--address={address[1].decode()}"]
        done = subprocess.run(
            [*self.hosts[1].enter_command, "env", "-i", *variables, *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def terminate(self) -> None:
        """Send the batch script SIGTERM, as Slurm does before the time is up; only the script receives it."""
        self.hosts[0].run(f"kill -TERM {(self.home / 'batch.pid').read_text()}")


@contextmanager
def boot_allocation(folder: Path) -> Iterator[Allocation]:
    """Boot two nodes and a login node, disks in `folder`; skips the test where this machine cannot."""
    if missing := find_missing_requirements():
        pytest.skip(f"hosts on this machine need {', '.join(missing)}")
    with Hosts(folder, 3) as hosts:
        yield Allocation(hosts)
