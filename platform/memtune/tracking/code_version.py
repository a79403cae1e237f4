"""The version of the running code: memtune's version, and in a checkout the commit."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def read_code_version() -> str:
    """Such as `0.1.0`, or `0.1.0+48ff14c` in a checkout; it ends in `.changed` for uncommitted changes."""
    try:
        release = version("memtune")
    except PackageNotFoundError:
        release = "unreleased"
    commit = _run_git("rev-parse", "--short", "HEAD")
    if not commit:
        return release
    changed = ".changed" if _run_git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{release}+{commit}{changed}"


def _run_git(*arguments: str) -> str:
    """The output of git in the folder of this package; empty outside a checkout of memtune."""
    folder = Path(__file__).resolve().parent
    command = ["git", "-C", str(folder), *arguments]
    # Its own repository, not the one around a virtual environment.
    if not (folder.parents[2] / ".git").exists() or folder.parents[1].name != "platform":
        return ""
    try:
        return subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
