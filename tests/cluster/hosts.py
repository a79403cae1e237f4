"""Hosts on one machine: each a network, PID, mount and host-name namespace with an ssh server of its own.

A bridge joins them and this machine, as a switch would. A host has a home and a `/tmp` of its own and sees
the rest of this machine's files, except the source root of this project: what runs there was delivered.
`/mnt/memtune` is the storage that all hosts share. Killing the first process of its PID namespace ends
everything on a host, and nothing else.
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

__all__ = ["SHARED", "Host", "Hosts", "missing"]

SHARED = "/mnt/memtune"
"""Where every host sees the storage they share."""
PROGRAMS = {
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = Path(pwd.getpwuid(os.geteuid()).pw_dir)
PATIENCE = 60
SSHD = """HostKey /run/sshd/host_key
AuthorizedKeysFile /run/sshd/key.pub
PasswordAuthentication no
PidFile none
UseDNS no
MaxStartups 100
"""


def missing() -> list[str]:
    """What this machine lacks to have hosts on it; empty when nothing."""
    lacking = [] if os.geteuid() == 0 else ["the rights of root"]
    absent = (package for name, package in PROGRAMS.items() if shutil.which(name, path=PATH) is None)
    lacking += sorted({f"Debian's package {package}" for package in absent})
    return lacking or _forbidden()


def _forbidden() -> list[str]:
    """What the kernel, or the container this runs in, does not allow."""
    tried = ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "type", "veth"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    if not done.returncode:
        return []
    return [f"the right to make namespaces and virtual cables ({done.stderr.strip()})"]


class Host:
    """One host: started, cut off, killed and started again; its files stay."""

    def __init__(self, name: str, address: str, bridge: str, folder: Path, shared: Path) -> None:
        """`folder` keeps what is on the host's own disk; `shared` is seen by all."""
        self.name, self.address = name, address
        self.home, self.tmp = folder / "home", folder / "tmp"
        for path in (self.home, self.tmp):
            path.mkdir(parents=True)
        self.tmp.chmod(0o1777)
        self._bridge, self._folder, self._shared = bridge, folder, shared
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Plug the host in, boot it and wait for its ssh server."""
        assert self._process is None, f"{self.name} is up"
        _ip("netns", "add", self.name)
        _ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", self.name, "master", self._bridge, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "link", "set", "eth0", "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        alone = ["unshare", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.name, *alone]
        with (self._folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                [*command, "sh", "-euc", self._boot()],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": PATH},
                start_new_session=True,
            )
        self._wait()

    def cut_off(self) -> None:
        """Pull the cable: everything on the host runs on, unheard."""
        _ip("link", "set", self.name, "down")

    def reconnect(self) -> None:
        """Plug the cable in again."""
        _ip("link", "set", self.name, "up")

    def kill(self) -> None:
        """Take the power away: no process says goodbye, and the host is gone from the network."""
        if self._process is None:
            return
        self.cut_off()
        with suppress(ProcessLookupError):
            os.kill(self._first(), signal.SIGKILL)
        with self._process:
            self._process = None
        _ip("netns", "del", self.name)
        if Path("/sys/class/net", self.name).exists():
            # The kernel may have taken it already, with the namespace of its other end.
            with suppress(RuntimeError):
                _ip("link", "del", self.name)

    def run(self, command: str) -> str:
        """What a shell command on the host prints, run in its namespaces. Raises CalledProcessError."""
        into = ["nsenter", "--target", str(self._first()), "--all", "env", "-i"]
        variables = [f"HOME={HOME}", f"PATH={PATH}", "sh", "-c", command]
        done = subprocess.run([*into, *variables], capture_output=True, text=True, check=True)
        return done.stdout

    def processes(self, words: str) -> list[int]:
        """The ids, in this machine's own PID namespace, of the host's processes with these words."""
        inside = Path(f"/proc/{self._first()}/ns/pid").readlink()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                said = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words in said and (folder / "ns/pid").readlink() == inside:
                    found.append(int(folder.name))
        return found

    def _first(self) -> int:
        """The first process of the host, seen from outside."""
        assert self._process is not None, f"{self.name} is down"
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if not children:
            raise ProcessLookupError(f"{self.name} has ended: {self._console()}")
        return int(children[0])

    def _boot(self) -> str:
        """The shell commands that end as the host's ssh server."""
        files = shlex.join(str(self._folder / name) for name in ("host_key", "sshd_config"))
        binds = [*_private(HOME, self.home), *_private(Path("/tmp"), self.tmp)]
        steps = [
            f"hostname {self.name}",
            "mount -t tmpfs -o mode=755 run /run",
            "mkdir /run/sshd",
            f"cp -p {files} {shlex.quote(str(self._folder.parent / 'key.pub'))} /run/sshd/",
            "mount -t tmpfs mnt /mnt",
            f"mkdir {SHARED}",
            _bind(self._folder.parent / "hosts", Path("/etc/hosts")),
            _bind(self._shared, Path(SHARED)),
            *(_bind(source, target) for source, target in binds),
            *(f"if [ -d {path} ]; then mount -t tmpfs hidden {path}; fi" for path in _source_roots()),
            "exec /usr/sbin/sshd -D -e -f /run/sshd/sshd_config",
        ]
        return "\n".join(steps)

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), socket.create_connection((self.address, 22), timeout=1) as connection:
                if connection.recv(4) == b"SSH-":
                    return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the ssh server of {self.name} does not answer: {self._console()}")
            time.sleep(0.05)

    def _console(self) -> str:
        return (self._folder / "console.log").read_text()


class Hosts:
    """Hosts on one bridge, and the key that opens them; a context manager that removes all of it."""

    def __init__(self, folder: Path, count: int) -> None:
        """Everything that the hosts keep lies in `folder`."""
        self.key, self.shared = folder / "key", folder / "shared"
        self._tag, self._folder, self._count = f"mt{random.getrandbits(24):06x}", folder, count
        self._undo = ExitStack()
        self.hosts: list[Host] = []
        self.address = ""
        """By which the hosts reach this machine."""

    def __enter__(self) -> Self:
        """Lay the cables and boot every host."""
        try:
            self._build()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _build(self) -> None:
        self.shared.mkdir()
        _make_key(self.key)
        network = _free_network()
        self.address = f"{network}.1"
        _ip("link", "add", self._tag, "type", "bridge")
        self._undo.callback(_ip, "link", "del", self._tag)
        _ip("addr", "add", f"{self.address}/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        for number in range(self._count):
            name, folder = f"{self._tag}h{number}", self._folder / f"host{number}"
            self.hosts.append(Host(name, f"{network}.{10 + number}", self._tag, folder, self.shared))
            _make_key(folder / "host_key")
            (folder / "sshd_config").write_text(SSHD)
        names = [f"{host.address} {host.name}\n" for host in self.hosts]
        (self._folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *names]))
        for host in self.hosts:
            self._undo.callback(host.kill)
            host.start()


def _free_network() -> str:
    """The first three numbers of a private network that this machine has no route to."""
    routes = json.loads(_ip("-j", "route", "show", "table", "all"))
    taken = {str(route.get("dst", "")).rpartition(".")[0] for route in routes}
    free = [network for number in range(1, 255) if (network := f"10.77.{number}") not in taken]
    return random.choice(free)


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _private(seen: Path, own: Path) -> list[tuple[Path, Path]]:
    """What to bind so that `seen` is a host's own folder, and Python is still found below it."""
    needed = {Path(sys.prefix), Path(sys.base_prefix)}
    kept = [(path, own / path.relative_to(seen)) for path in sorted(needed) if path.is_relative_to(seen)]
    return [*kept, (own, seen)]


def _source_roots() -> list[str]:
    """Where this project could be imported from without being delivered."""
    url = json.loads(distribution("memtune").read_text("direct_url.json") or "{}").get("url", "")
    return [shlex.quote(str(Path(urlparse(url).path) / "platform"))]


def _bind(source: Path, target: Path) -> str:
    there, seen = shlex.quote(str(source)), shlex.quote(str(target))
    made = f"mkdir -p {seen} && " if source.is_dir() else ""
    return f"{made}mount --rbind {there} {seen}"


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {shlex.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
