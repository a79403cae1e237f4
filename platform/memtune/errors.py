"""All exceptions that memtune raises on purpose.

Each message names the problem, its place and the fix. The command line prints only the message and exits with
status 1. Any other exception is a bug in memtune and keeps its traceback.
"""

import errno
import os
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from types import FrameType

from typing_extensions import override

FIX_BY_ERRNO = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "mount its file system for writing",
    errno.EACCES: "give this user the permission",
    errno.EPERM: "give this user the permission",
    errno.EIO: "check its disk, or the server behind it",
    errno.ESTALE: "mount its file system again",
    errno.ETIMEDOUT: "check the network and the server behind it",
    errno.EHOSTUNREACH: "check the network and the server behind it",
    errno.ENETUNREACH: "check the network and the server behind it",
    errno.ECONNREFUSED: "start the server behind it",
    errno.ENOMEM: "end other processes, which hold the memory of this machine",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
}
"""What a user does about an error of the operating system that no configuration causes."""


class MemtuneError(Exception):
    """A user's mistake or a fault outside memtune; the message alone explains it."""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython prints: the calls of the user, without those of memtune, and the message."""
        calls = traceback.walk_tb(self.__traceback__)
        own = [call for call in calls if _find_package(call[0]) not in ("memtune", "IPython")]
        lines = "".join(traceback.StackSummary.extract(own).format()).splitlines()
        return [*lines, f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())]


def _find_package(frame: FrameType) -> str:
    """The package whose code a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class ArgumentError(MemtuneError, TypeError):
    """An argument of a function is of a wrong type."""


class ConfigurationError(MemtuneError):
    """A configuration has an unknown name or an invalid value."""


class SpaceError(ConfigurationError):
    """A search space cannot be read or samples invalid configurations."""


class StudyError(MemtuneError):
    """A study cannot be found, started or continued."""


class ExecutorLostError(StudyError):
    """What runs the trials of a study has died; they stay open, each at its last checkpoint."""

    def __init__(self, message: str, *, can_restart: bool) -> None:
        """`can_restart` says whether this driver may start what has died again."""
        super().__init__(message)
        self.can_restart = can_restart

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), can_restart=self.can_restart), self.args


class ClusterError(MemtuneError):
    """A cluster cannot be launched, reached or terminated."""


class CorpusError(MemtuneError):
    """A text or a corpus is missing, malformed, altered or of another version."""


class MissingCorpusError(CorpusError):
    """A store has no corpus of the name."""


class StorageError(MemtuneError):
    """A folder or an object store cannot be read or written."""


class CheckpointError(MemtuneError):
    """A checkpoint is missing, truncated, altered or of another configuration."""


class TrackingError(MemtuneError):
    """The tracking server or its registry cannot be reached or lacks the requested entry."""


class PluginError(MemtuneError):
    """A plug-in cannot be read, loaded or trusted."""


class MissingSourceError(PluginError):
    """Stored data need the source of a plug-in that is not loaded."""

    def __init__(self, noun: str, name: str, digest: str) -> None:
        """`noun` and `name` are the plug-in's kind and name, `digest` the SHA-256 of its source."""
        super().__init__(
            f'the {noun} "{name}" of the source with sha256 {digest[:12]} is not loaded; name its file '
            "in the list `models` of the study or trial, install the package that has it, or give "
            "--trust-code to a command that opens the model"
        )
        self.noun, self.name, self.digest = noun, name, digest


class TrialError(MemtuneError):
    """A trial cannot continue; the message is recorded as the reason."""


class WorkerError(MemtuneError):
    """A worker cannot run a trial for a reason outside the trial."""


def is_environment_fault(error: BaseException) -> bool:
    """Whether an error says what a machine or a storage cannot do now, whatever was asked of it.

    A permission counts only as a StorageError: the code of a plug-in may ask for a file that nobody gives it.
    """
    is_system_error = isinstance(error, OSError) and error.errno in FIX_BY_ERRNO
    return isinstance(error, StorageError | WorkerError | MemoryError) or (
        is_system_error and not isinstance(error, PermissionError)
    )


def explain_system_error(error: BaseException) -> str:
    """The text of an error; for one of the operating system with a known fix, its file and the fix too."""
    fix = FIX_BY_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None
    if not isinstance(error, OSError) or fix is None:
        return str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
    filename = error.filename2 or error.filename  # a copy names both
    place = f"{os.fsdecode(filename)}: " if isinstance(filename, str | bytes) else ""
    return f"{place}{os.strerror(error.errno or 0)}; {fix}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known name, or all known names.

    >>> did_you_mean("memory_sise", ["memory_size", "layers"])
    'did you mean "memory_size"?'
    """
    names = sorted(set(known))
    if near := suggest_nearest(name, names):
        return near
    return f"known: {', '.join(names)}" if names else "there are none"


def refuse_shared_name(study: str, ids: Iterable[str]) -> str:
    """The error about a name that several studies have.

    >>> refuse_shared_name("layers", ["layers-1", "layers-2"])
    'several studies are called "layers": give the id of one, layers-1, layers-2'
    """
    return f'several studies are called "{study}": give the id of one, {", ".join(ids)}'


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name where the known ones are too many: the nearest, or "".

    >>> suggest_nearest("PTBS", ["ptbs", "wikitext"])
    'did you mean "ptbs"?'
    """
    name_by_key = {each.casefold(): each for each in sorted(set(known))}
    near = get_close_matches(name.casefold(), name_by_key, n=1)
    return f'did you mean "{name_by_key[near[0]]}"?' if near else ""
