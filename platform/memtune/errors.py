"""Every exception memtune raises on purpose.

Each message says what is wrong, where, and a way out. The command line prints the message alone and exits
with 1; anything that is not a MemtuneError is a bug in memtune and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "CheckpointError",
    "ClusterError",
    "ConfigurationError",
    "CorpusError",
    "MemtuneError",
    "SpaceError",
    "StorageError",
    "StudyError",
    "TrackingError",
    "TrialError",
    "WorkerError",
    "did_you_mean",
]


class MemtuneError(Exception):
    """A user's mistake, or a fault outside of memtune, told in one message."""


class ConfigurationError(MemtuneError):
    """A configuration names something unknown or holds a value that makes no sense."""


class SpaceError(ConfigurationError):
    """A search space cannot be read or would sample configurations that are refused."""


class StudyError(MemtuneError):
    """A study cannot start, go on or be found."""


class ClusterError(MemtuneError):
    """A cluster cannot be launched, reached or ended."""


class CorpusError(MemtuneError):
    """A text or a corpus is missing, malformed, altered or of another version."""


class StorageError(MemtuneError):
    """A folder or an object store cannot be read or written."""


class CheckpointError(MemtuneError):
    """A checkpoint is missing, truncated, altered or of another configuration."""


class TrackingError(MemtuneError):
    """The tracking server or its registry cannot be reached or does not hold what was asked for."""


class TrialError(MemtuneError):
    """A trial cannot go on; the message is the reason recorded with it."""


class WorkerError(MemtuneError):
    """A worker cannot take up a trial, and the trial is not to blame."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The suggestion that ends an error about an unknown name, or the known names when none is near.

    >>> did_you_mean("memory_sise", ["memory_size", "layers"])
    'did you mean "memory_size"?'
    """
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"known: {', '.join(names)}" if names else "there are none"
