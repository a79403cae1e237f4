"""Small disks that tests can fill; mounting them needs root."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Disk", "MountDisk", "explain_unmountable", "mount_tmpfs"]


@dataclass
class Disk:
    """A disk mounted at a folder."""

    folder: Path

    def fill(self) -> None:
        """Fill the disk: no new file fits, and no file can grow by more than a page."""
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            for block in (2**16, 2**8, 1):
                with suppress(OSError):
                    while True:
                        filler.write(bytes(block))

    def grow(self, kilobytes: int) -> None:
        """Give the disk this size."""
        options = f"remount,size={kilobytes}k"
        subprocess.run(["mount", "-o", options, str(self.folder)], capture_output=True, check=True)

    def release(self) -> None:
        """Undo `fill`."""
        (self.folder / "filler").unlink()


MountDisk = Callable[[Path, int], Disk]
"""The fixture `mount_disk`: creates a folder and mounts a disk of the given size in kB at it."""


def explain_unmountable(folder: Path) -> str:
    """Why this machine cannot mount a disk; "" if it can."""
    if os.geteuid() != 0:
        return "only root can mount a disk"
    try:
        with mount_tmpfs(folder, 64):
            return ""
    except subprocess.CalledProcessError as error:
        return f"cannot mount a disk: {error.stderr.strip()}"


@contextmanager
def mount_tmpfs(folder: Path, kilobytes: int) -> Iterator[Disk]:
    """Mount a disk during the block."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    subprocess.run(["mount", *options], capture_output=True, text=True, check=True)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
