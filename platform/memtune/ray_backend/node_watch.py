"""Notices when a process of Ray dies without which no trial continues: this node's raylet, or the head's GCS.

Ray does not tell its driver. Without a raylet, Tune waits for ever. Without a GCS, Ray's calls wait, and end
the driver's process after 60 s with a line of Ray's log. A raylet ends when one of its agents dies.
"""

import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray

from memtune.errors import ExecutorLostError
from memtune.ray_backend.compatibility import NodeProcesses

POLL_SECONDS = 1.0
MAX_REFUSALS = 10
"""Polls in a row at which a cluster's GCS may refuse a connection: a head with a database restarts it.

Not a time, which a stopped driver would measure too.
"""
EXIT_SECONDS = 15.0
"""Seconds that the driver has to end its run; a call that waits for a dead GCS cannot be interrupted."""


class _NodeLost(BaseException):
    """Not an Exception, after which Tune cleans up: its calls would wait for the dead process."""


class NodeWatch:
    """Looks at the processes of one connection to Ray, in a thread and whenever `check` is called."""

    def __init__(self) -> None:
        self._node = NodeProcesses()
        self._is_closed = threading.Event()
        self._refusals = 0
        self.loss: ExecutorLostError | None = None
        """Why the block of `watch_node` has ended, where a process has died."""
        self._thread = threading.Thread(target=self._watch, name="memtune-node-watch", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """End the block of `watch_node` if a process has died."""
        if self._find_dead():
            raise _NodeLost

    def make_error(self) -> ExecutorLostError:
        """The error that names the dead process and the folder of its logs."""
        name = self._find_dead()
        also = " or one of its agents" if name == "raylet" else ""
        return ExecutorLostError(
            f"Ray's process {name}{also} has died; its logs are in {self._keep_logs()}",
            can_restart=self._node.is_private,
        )

    def close(self) -> None:
        """End the thread."""
        self._is_closed.set()
        self._thread.join()
        self._node.close()

    def _keep_logs(self) -> Path:
        """Copy the logs of a private instance, whose folder is removed with it; return where they are."""
        kept = self._node.logs
        if self._node.is_private:
            with suppress(OSError):  # a full disk
                # Ray gives its folders mode 0777, hence the folder around them.
                kept = Path(tempfile.mkdtemp(prefix="memtune-ray-")) / "logs"
                shutil.copytree(self._node.logs, kept, ignore_dangling_symlinks=True)
        return kept

    def _find_dead(self) -> str | None:
        return self._node.find_dead() or ("gcs_server" if self._refusals >= MAX_REFUSALS else None)

    def _watch(self) -> None:
        while not self._is_closed.wait(POLL_SECONDS):
            self._refusals = self._refusals + 1 if self._refuses_connections() else 0
            if self._find_dead() and not self._is_closed.wait(EXIT_SECONDS):
                fix = "run the same command with --resume to continue the study"
                print(f"error: {self.make_error()}; {fix}", file=sys.stderr, flush=True)
                os._exit(1)

    def _refuses_connections(self) -> bool:
        """Whether a cluster's GCS has ended; a network that does not answer is left to Ray's own retries."""
        if self._node.is_private:
            return False
        host, _, port = self._node.gcs_address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), POLL_SECONDS).close()
        except (OSError, ValueError) as error:
            return isinstance(error, ConnectionRefusedError)
        return False


@contextmanager
def watch_node() -> Iterator[NodeWatch]:
    """Watch the connected node during the block; raise its `loss` after it.

    When a process has died, the block ends and the connection is closed: further calls to Ray would wait.
    """
    watch = NodeWatch()
    try:
        yield watch
    except _NodeLost:
        watch.loss = watch.make_error()
        ray.shutdown()
    finally:
        watch.close()
