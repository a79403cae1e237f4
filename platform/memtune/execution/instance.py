"""A Ray of our own on one machine: of all that runs on the head of a cluster, what trials need."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray._private import node
from ray._private.parameter import RayParams

__all__ = ["on_this_machine", "settings_here"]

HERE = "127.0.0.1"
LONG_MILLISECONDS = 3_600_000


class LeanNode(node.Node):
    """A head that only this machine reaches, without three processes that take a second of a core each.

    Nobody looks at its dashboard (which ray.init would wait for), there are no nodes to add to it, and the
    logs of its workers are not printed.
    """

    def __init__(self, ray_params: RayParams, **how: Any) -> None:
        """Start it, as Ray starts a node."""
        ray_params.update(node_ip_address=HERE)  # type: ignore[no-untyped-call]
        super().__init__(ray_params, **how)

    def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        """No dashboard, and an empty address of it."""
        self._webui_url = ""

    def start_monitor(self) -> None:
        """No autoscaler."""

    def start_log_monitor(self) -> None:
        """Nothing that follows logs."""


@contextmanager
def on_this_machine() -> Iterator[None]:
    """What ray.init starts in the block is such a head; Ray has no option for it."""
    whole = node.Node
    node.Node = LeanNode  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        node.Node = whole  # type: ignore[misc]


def settings_here(cores: int) -> dict[str, Any]:
    """Ray's settings for such a head, of which trials will use so many cores."""
    # The node looks for its store, which is there after milliseconds, only once a second otherwise.
    quick = {"raylet_client_connect_timeout_milliseconds": 20, "raylet_client_num_connect_attempts": 1000}
    # A worker for each core imports what a trial needs while the driver still connects and imports. They are
    # started once, and none is ended as idle before its first trial, for another would import it all again.
    ready = {
        "preload_python_modules": ["memtune.execution.trial"],
        "enable_worker_prestart": True,
        "prestart_worker_first_driver": False,
        "idle_worker_killing_time_threshold_ms": LONG_MILLISECONDS,
    }
    return {**quick, **ready} if 2 * cores >= (os.cpu_count() or 1) else quick
