"""Small disks that tests can fill, where root runs them."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Disk", "MountDisk", "explain_unmountable", "mount_tmpfs"]


@dataclass
class Disk:
    """A disk of its own, mounted at a folder."""

    folder: Path

    def fill(self) -> None:
        """Leave no space that a new file could take, nor one that grows by more than a page."""
        with (self.folder / "filling").open("ab", buffering=0) as filling:
            for block in (2**16, 2**8, 1):
                with suppress(OSError):
                    while True:
                        filling.write(bytes(block))

    def release(self) -> None:
        """Undo `fill`."""
        (self.folder / "filling").unlink()


MountDisk = Callable[[Path, int], Disk]
"""The fixture `mounted`: mounts a disk of so many kB at a folder, which is made."""


def explain_unmountable(folder: Path) -> str:
    """Why no disk can be mounted here; "" where one can."""
    if os.geteuid() != 0:
        return "only root mounts a disk that can be filled"
    try:
        with mount_tmpfs(folder, 64):
            return ""
    except subprocess.CalledProcessError as error:
        return f"no disk to fill here: {error.stderr.strip()}"


@contextmanager
def mount_tmpfs(folder: Path, kilobytes: int) -> Iterator[Disk]:
    """A disk for the time of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    subprocess.run(["mount", *options], capture_output=True, text=True, check=True)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
