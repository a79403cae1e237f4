"""Hosts on one machine: each is a network, PID, mount and host-name namespace with an ssh server.

A bridge connects them and this machine. Each host has its own home and `/tmp`. It sees the other files of
this machine, except the source root of this project, so that the code on a host was delivered to it.
`/mnt/memtune` is shared storage. Killing the first process of a host's PID namespace stops the host.
"""

import json
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from importlib.metadata import distribution
from pathlib import Path
from typing import Self
from urllib.parse import urlparse

__all__ = ["SHARED_MOUNT", "Host", "Hosts", "find_missing_requirements"]

SHARED_MOUNT = "/mnt/memtune"
"""The mount point of the shared storage on every host."""
PACKAGES_BY_PROGRAM = {
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = Path(pwd.getpwuid(os.geteuid()).pw_dir)
START_TIMEOUT_SECONDS = 60
SSHD_CONFIG = """HostKey /run/sshd/host_key
AuthorizedKeysFile /run/sshd/key.pub
PasswordAuthentication no
PidFile none
UseDNS no
MaxStartups 100
"""


def find_missing_requirements() -> list[str]:
    """What this machine lacks to run hosts; empty when it lacks nothing."""
    missing = [] if os.geteuid() == 0 else ["the rights of root"]
    absent = (
        package for name, package in PACKAGES_BY_PROGRAM.items() if shutil.which(name, path=PATH) is None
    )
    missing += sorted({f"Debian's package {package}" for package in absent})
    return missing or _find_missing_rights()


def _find_missing_rights() -> list[str]:
    """What the kernel or this container does not permit."""
    probed = ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth"]
    done = subprocess.run(probed, capture_output=True, text=True, check=False)
    if not done.returncode:
        return []
    return [f"the right to make namespaces and virtual cables ({done.stderr.strip()})"]


class Host:
    """One host. It can be started, disconnected, killed and started again; its files remain."""

    def __init__(self, name: str, address: str, bridge: str, folder: Path, shared: Path) -> None:
        """`folder` is the host's disk; `shared` is the shared storage."""
        self.name, self.address = name, address
        self.home, self.tmp = folder / "home", folder / "tmp"
        for path in (self.home, self.tmp):
            path.mkdir(parents=True)
        self.tmp.chmod(0o1777)
        self._bridge, self._folder, self._shared = bridge, folder, shared
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Connect the host to the bridge, boot it and wait for its ssh server."""
        assert self._process is None, f"{self.name} is up"
        _run_ip("netns", "add", self.name)
        _run_ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run_ip("link", "set", self.name, "master", self._bridge, "up")
        _run_ip("-n", self.name, "link", "set", "lo", "up")
        _run_ip("-n", self.name, "link", "set", "eth0", "up")
        _run_ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        alone = ["unshare", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name, *alone]
        with (self._folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                [*command, "sh", "-euc", self._build_boot_script()],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": PATH},
                start_new_session=True,
            )
        self._wait_for_ssh()

    def disconnect(self) -> None:
        """Disconnect the host from the network; its processes continue."""
        _run_ip("link", "set", self.name, "down")

    def reconnect(self) -> None:
        """Connect the host to the network again."""
        _run_ip("link", "set", self.name, "up")

    def kill(self) -> None:
        """Kill every process of the host and remove it from the network, as a power failure does."""
        if self._process is None:
            return
        self.disconnect()
        with suppress(ProcessLookupError):
            os.kill(self._get_init_pid(), signal.SIGKILL)
        with self._process:
            self._process = None
        _run_ip("netns", "del", self.name)
        if Path("/sys/class/net", self.name).exists():
            # The kernel may have deleted the link already, with the namespace of its other end.
            with suppress(RuntimeError):
                _run_ip("link", "del", self.name)

    def run(self, command: str) -> str:
        """The output of a shell command in the host's namespaces. Raises CalledProcessError."""
        variables = ["env", "-i", f"HOME={HOME}", f"PATH={PATH}"]
        wrapped = [*self.enter_command, *variables, "sh", "-c", command]
        return subprocess.run(wrapped, capture_output=True, text=True, check=True).stdout

    @property
    def enter_command(self) -> list[str]:
        """What runs the words that follow it in the host's namespaces."""
        return ["nsenter", "--target", str(self._get_init_pid()), "--all"]

    def replace_host_key(self) -> None:
        """Give the host another host key, from its next start on, as another machine at its address has."""
        for name in ("host_key", "host_key.pub"):
            (self._folder / name).unlink()
        _make_key(self._folder / "host_key")

    def read_console(self) -> str:
        """The log of the host's ssh server since its first start."""
        return (self._folder / "console.log").read_text()

    def find_processes(self, text: str) -> list[int]:
        """The PIDs, in this machine's namespace, of the host's processes with `text` in the command line."""
        inside = Path(f"/proc/{self._get_init_pid()}/ns/pid").readlink()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if text in command and (folder / "ns/pid").readlink() == inside:
                    found.append(int(folder.name))
        return found

    def _get_init_pid(self) -> int:
        """The PID of the host's first process, in this machine's PID namespace."""
        assert self._process is not None, f"{self.name} is down"
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if not children:
            raise ProcessLookupError(f"{self.name} has ended: {self.read_console()}")
        return int(children[0])

    def _build_boot_script(self) -> str:
        """The shell commands that boot the host and become its ssh server."""
        files = shlex.join(str(self._folder / name) for name in ("host_key", "sshd_config"))
        binds = [*_plan_private_binds(HOME, self.home), *_plan_private_binds(Path("/tmp"), self.tmp)]
        steps = [
            f"hostname {self.name}",
            "mount -t tmpfs -o mode=755 run /run",
            "mkdir /run/sshd",
            f"cp -p {files} {shlex.quote(str(self._folder.parent / 'key.pub'))} /run/sshd/",
            "mount -t tmpfs mnt /mnt",
            f"mkdir {SHARED_MOUNT}",
            _build_bind_command(self._folder.parent / "hosts", Path("/etc/hosts")),
            _build_bind_command(self._shared, Path(SHARED_MOUNT)),
            *(_build_bind_command(source, target) for source, target in binds),
            *(f"if [ -d {path} ]; then mount -t tmpfs hidden {path}; fi" for path in _list_source_roots()),
            "exec /usr/sbin/sshd -D -e -f /run/sshd/sshd_config",
        ]
        return "\n".join(steps)

    def _wait_for_ssh(self) -> None:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            with suppress(OSError), socket.create_connection((self.address, 22), timeout=1) as connection:
                if connection.recv(4) == b"SSH-":
                    return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the ssh server of {self.name} does not answer: {self.read_console()}")
            time.sleep(0.05)


class Hosts:
    """Hosts on one bridge, and the ssh key to log in to them; a context manager that removes both."""

    def __init__(self, folder: Path, count: int) -> None:
        """`folder` contains the disks of all hosts."""
        self.key, self.shared = folder / "key", folder / "shared"
        self._bridge, self._folder, self._count = f"mt{random.getrandbits(24):06x}", folder, count
        self._cleanup = ExitStack()
        self.hosts: list[Host] = []
        self.address = ""
        """The address at which the hosts reach this machine."""

    def __enter__(self) -> Self:
        """Create the bridge and boot every host."""
        try:
            self._build()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _build(self) -> None:
        self.shared.mkdir()
        _make_key(self.key)
        network = _find_free_network()
        self.address = f"{network}.1"
        _run_ip("link", "add", self._bridge, "type", "bridge")
        self._cleanup.callback(_run_ip, "link", "del", self._bridge)
        _run_ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
        _run_ip("link", "set", self._bridge, "up")
        for number in range(self._count):
            name, folder = f"{self._bridge}h{number}", self._folder / f"host{number}"
            self.hosts.append(Host(name, f"{network}.{10 + number}", self._bridge, folder, self.shared))
            _make_key(folder / "host_key")
            (folder / "sshd_config").write_text(SSHD_CONFIG)
        names = [f"{host.address} {host.name}\n" for host in self.hosts]
        (self._folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *names]))
        for host in self.hosts:
            self._cleanup.callback(host.kill)
            host.start()


def _find_free_network() -> str:
    """The first three bytes of a private network to which this machine has no route."""
    routes = json.loads(_run_ip("-j", "route", "show", "table", "all"))
    taken = {str(route.get("dst", "")).rpartition(".")[0] for route in routes}
    free = [network for number in range(1, 255) if (network := f"10.77.{number}") not in taken]
    return random.choice(free)


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _plan_private_binds(mount_point: Path, host_folder: Path) -> list[tuple[Path, Path]]:
    """The bind mounts that put a host's folder at `mount_point` and keep Python below it."""
    needed = {Path(sys.prefix), Path(sys.base_prefix)}
    kept = [
        (path, host_folder / path.relative_to(mount_point))
        for path in sorted(needed)
        if path.is_relative_to(mount_point)
    ]
    return [*kept, (host_folder, mount_point)]


def _list_source_roots() -> list[str]:
    """The source roots from which this project could be imported without delivery."""
    url = json.loads(distribution("memtune").read_text("direct_url.json") or "{}").get("url", "")
    return [shlex.quote(str(Path(urlparse(url).path) / "platform"))]


def _build_bind_command(source: Path, target: Path) -> str:
    quoted_source, quoted_target = shlex.quote(str(source)), shlex.quote(str(target))
    create = f"mkdir -p {quoted_target} && " if source.is_dir() else ""
    return f"{create}mount --rbind {quoted_source} {quoted_target}"


def _run_ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {shlex.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
