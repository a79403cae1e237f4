"""Ray's internals that starting a node and running Tune depend on: why, and what replaces a missing one.

Seen with Ray 2.60.0. `tests/unit/ray_backend/test_node_compatibility.py` fails when one of them changes.

- `_private.node.Node`: ray.init always starts a dashboard, an autoscaler and a log monitor, each of which
  takes a second of a core, and listens on every interface. Fallback: Ray's own node.
- `tune.execution.class_cache` gives workers a runtime environment with variables of the driver, AWS keys
  among them, which Ray's agent logs. For an environment Ray also starts new workers (seconds for each trial)
  instead of the prestarted ones. There is no fallback: without the two names, Tune is not run, because keys
  might reach a log.
- `_raylet.AuthenticationTokenLoader` reads a token once per process; the next instance has another one.
  Fallback: nothing, and a second instance in one process is refused by Ray.
- The command line of the autoscaler's process: Ray has no call for the file it was started with. Fallback:
  the cluster counts as one that does not grow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from memtune.errors import StudyError

__all__ = [
    "forward_no_variables",
    "read_autoscaling_config",
    "reset_token_cache",
    "use_lean_node",
]

LOOPBACK_ADDRESS = "127.0.0.1"
SKIPPED_STARTS = ("start_monitor", "start_log_monitor")


@contextmanager
def use_lean_node() -> Iterator[None]:
    """ray.init in the block starts a node on 127.0.0.1 without dashboard, autoscaler and log monitor."""
    try:
        from ray._private import node
    except ImportError:
        yield
        return
    original = getattr(node, "Node", None)
    if original is None or not all(hasattr(original, name) for name in ("start_api_server", *SKIPPED_STARTS)):
        yield
        return
    node.Node = _make_lean_node(original)  # type: ignore[misc]
    try:
        yield
    finally:
        node.Node = original  # type: ignore[misc]


def _make_lean_node(original: Any) -> Any:
    class LeanNode(original):  # type: ignore[misc]
        def __init__(self, ray_params: Any, **options: Any) -> None:
            ray_params.update(node_ip_address=LOOPBACK_ADDRESS)
            super().__init__(ray_params, **options)

        def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
            # ray.init would wait for the dashboard's address.
            self._webui_url = ""

        def start_monitor(self) -> None:
            """Start no autoscaler."""

        def start_log_monitor(self) -> None:
            """Start nothing that forwards logs."""

    return LeanNode


def forward_no_variables() -> None:
    """Have Tune give workers no variables of the driver.

    Raises StudyError when this version of Ray has no such names.
    """
    # Imported here: Ray's modules load for a second, and only a private instance needs them.
    from ray.tune.execution import class_cache

    for name in ("DEFAULT_ENV_VARS", "ENV_VARS_TO_PROPAGATE"):
        variables = getattr(class_cache, name, None)
        if variables is None:
            raise StudyError(
                f"this version of Ray has no ray.tune.execution.class_cache.{name}, so AWS keys might reach "
                'its logs; install the version that memtune requires: pip install "ray[tune]==2.60.0"'
            )
        variables.clear()


def reset_token_cache() -> None:
    """Have Ray read its token again at the next connection."""
    from ray import _raylet

    loader = getattr(_raylet, "AuthenticationTokenLoader", None)
    if loader is not None:
        loader.instance().reset_cache()


def read_autoscaling_config(gcs_address: str) -> dict[str, Any] | None:
    """On the head: the file given to the autoscaler that runs for this cluster; None where there is none."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        files = [word.partition("=")[2] for word in words if word.startswith("--autoscaling-config=")]
        if files and f"--gcs-address={gcs_address}" in words:
            config = yaml.safe_load(Path(files[0]).expanduser().read_text())
            return config if isinstance(config, dict) else None
    return None
