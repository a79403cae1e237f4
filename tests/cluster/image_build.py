"""The steps of a Dockerfile without Docker: each command runs as it is written, on folders of a test.

The folders are mounted over /etc, /home, /mnt, /opt and /tmp for one command at a time. This machine's Python
and libraries take the place of the base image. The step that downloads packages checks its list only.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["ImageBuild", "find_missing_rights"]

FOLDERS = ("etc", "home", "mnt", "opt", "tmp")
PROGRAMS = "/opt/environment/bin"
PIP = f"""#!/bin/sh
# The packages of the list are here already; the list must have a digest for each of them.
case "$*" in *--require-hashes*)
  exec {PROGRAMS}/python -c 'import re, sys
entries = re.findall(r"^[^\\s#].*(?:\\n .*)*", open(sys.argv[-1]).read(), re.MULTILINE)
assert entries and all("==" in entry and "--hash=sha256:" in entry for entry in entries)' "$@"
esac
exec {PROGRAMS}/python -m pip --disable-pip-version-check "$@"
"""


def find_missing_rights() -> str:
    """Why this machine cannot mount folders over its own for one command; empty if it can."""
    if os.geteuid() != 0:
        return "the rights of root"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


class ImageBuild:
    """Runs a Dockerfile with the files of a context, and then commands in what it made."""

    def __init__(self, root: Path, context: Path) -> None:
        """`root` becomes the folder of the image's files; it has to be empty."""
        self._root, self._context = root, context
        self._user, self._folder, self._variables = 0, "/", {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        self.command: list[str] = []
        """What a container of the image runs."""
        for name in FOLDERS:
            (root / name).mkdir(mode=0o755)
        (root / "tmp").chmod(0o1777)
        self._make_base_image()

    def _make_base_image(self) -> None:
        etc, opt = self._root / "etc", self._root / "opt"
        subprocess.run(["cp", "-a", "/etc/.", str(etc)], check=True)
        for name in ("passwd", "shadow", "group", "gshadow"):
            lines = (etc / name).read_text().splitlines(keepends=True)
            (etc / name).write_text("".join(lines[:1]))
        programs = opt / "environment" / "bin"
        programs.mkdir(parents=True)
        for name in ("python_home", "libraries"):
            (opt / name).mkdir()
        version = f"python{sysconfig.get_python_version()}"
        (programs / "python").symlink_to(f"/opt/python_home/bin/{version}")
        (opt / "environment" / "pyvenv.cfg").write_text("home = /opt/python_home/bin\n")
        site = opt / "environment" / "lib" / version / "site-packages"
        site.mkdir(parents=True)
        (site / "libraries.pth").write_text("import sys; sys.path.append('/opt/libraries')\n")
        (programs / "pip").write_text(PIP)
        (programs / "pip").chmod(0o755)

    def run_dockerfile(self, path: Path) -> None:
        """Run every instruction. AssertionError for one that fails or is not known here."""
        text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
        ignored = Path(f"{path}.dockerignore").read_text().split("\n")
        for line in filter(None, map(str.strip, text.splitlines())):
            name, rest = line.split(maxsplit=1)
            if name == "COPY":
                source, target = rest.split()
                self._copy(source, target, [each[1:] for each in ignored if each.startswith("!")])
            elif name == "RUN":
                self.run(rest)
            elif name == "USER":
                self._user = int(rest)
            elif name == "WORKDIR":
                self._folder = rest
            elif name == "ENV":
                self._variables |= dict(word.split("=", 1) for word in shlex.split(rest))
            elif name == "CMD":
                self.command = json.loads(rest)
            else:
                assert name == "FROM", line

    def _copy(self, source: str, target: str, allowed: list[str]) -> None:
        files = sorted(self._context.glob(source))
        assert files, f"no {source} in the context"
        for file in files:
            name = file.relative_to(self._context).as_posix()
            assert any(fnmatch(name, pattern) for pattern in allowed), f"{name} is not sent to the builder"
            place = self._root / target.lstrip("/")
            shutil.copy(file, place / file.name if target.endswith("/") else place)

    def run(self, command: str) -> str:
        """The output of a shell command in the image; AssertionError when it fails."""
        binds = [(self._root / name, f"/{name}") for name in FOLDERS]
        libraries = [(sys.base_prefix, "python_home"), (sysconfig.get_path("purelib"), "libraries")]
        binds = [*((Path(source), f"{self._root}/opt/{name}") for source, name in libraries), *binds]
        mounts = [
            f"mount --rbind {shlex.quote(str(source))} {shlex.quote(target)}" for source, target in binds
        ]
        user = f"setpriv --reuid {self._user} --regid {self._user} --clear-groups" if self._user else ""
        home = "HOME=/home/memtune" if self._user else "HOME=/root"
        variables = shlex.join([home, *(f"{name}={value}" for name, value in self._variables.items())])
        inside = f"cd {self._folder}; {command}"
        script = "; ".join([*mounts, f"exec env -i {variables} {user} sh -euc {shlex.quote(inside)}"])
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-euc", script], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout
