"""Ray's internals that memtune depends on: why, and what replaces one that a version of Ray no longer has.

Seen with Ray 2.60.0. `tests/unit/ray_backend/test_compatibility.py` fails when one of them changes.

Cluster files and job packages:

- `autoscaler._private.util.prepare_config` fills in Ray's defaults; a file without them cannot be validated.
  Fallback: the file as written.
- `autoscaler._private.util.validate_config`: `ray up` validates too, but only after it has begun to launch.
  Fallback: no validation before `ray up`.
- `_private.runtime_env.packaging._get_excludes` and `get_excludes_from_ignore_files`: the size of a job's
  package is limited, and Ray decides which files it leaves out. Fallback: all files except `.git`.
- The names of the loggers that log each step of an upload. Fallback: the steps are printed.
- `autoscaler._private.command_runner` starts `ssh` by name and has no setting for host keys, on which
  `clusters.ray_commands` relies. There is no fallback: the guard test fails.

Private instances and Tune:

- `_temp_dir` and `_system_config` of ray.init, and the settings named in START_SETTINGS and
  PRESTART_SETTINGS: the session must be in a private folder, and a start without the settings takes seconds
  longer. There is no fallback: Ray refuses a name that it does not know, and the guard test fails.
- `job_config.JobConfig`, its `_serialize` and `_py_driver_sys_path`: ray.init puts the working folder and the
  folder of the driver's script first on the path of every worker, and has no option against it. There is no
  fallback: without these names no worker is started, because it might run modules that others left there.
- The text of the bare Exception for a node whose processes took too long to start, which is tried again.
  Fallback: the first such error ends the search, with its reason.
- `dashboard.optional_deps`: ray.init imports it while other threads import what it needs too. Fallback:
  ray.init imports it.
- `widgets.util.in_notebook`: elsewhere than in a notebook, Tune warns of a reporter that it ignores.
  Fallback: no reporter, and Tune prints its own table in a notebook. `memtune/__init__.py` sets the
  level of the same module's logger; fallback: the log of missing widgets is printed.
- RAY_NODE_TYPE_NAME, with which the cluster launcher tells a worker the type of its node. Fallback: usage
  has no type of node.
- `_private.utils.set_sigterm_handler` and `_raylet.CoreWorker`: while Ray starts, its handlers of SIGTERM end
  the driver at once, with code 15 or a native stack. Fallback: they do, until Ray has started.
- `_private.node.Node`: ray.init always starts a dashboard, an autoscaler and a log monitor, each of which
  takes a second of a core, and listens on every interface. Fallback: Ray's own node.
- `_private.worker._global_node` has the processes of a private instance, the socket of this node's raylet
  (which is in the raylet's command line) and the folder of the logs: Ray does not tell a driver that its
  raylet or GCS has died. Fallback: the driver waits, as Ray does.
- `tune.execution.class_cache` gives workers a runtime environment with variables of the driver, AWS keys
  among them, which Ray's agent logs. For an environment Ray also starts new workers (seconds for each trial)
  instead of the prestarted ones. There is no fallback: without the two names, Tune is not run, because keys
  might reach a log.
- The texts of an error file: Tune writes a worker's failure there and has no call for its cause. Fallback:
  the last line of the file is the reason.
- `tune.TuneError` replaces an error of a callback and has its traceback as text; the error itself is its
  `__context__`. Fallback: the TuneError as it is.
- The collections of trials of Tune's controller (TRIAL_COLLECTIONS) keep every trial, and it reads them in
  every step: the driver of a long study grows and slows down. Fallback: it keeps them.
- `tune.progress_reporter.TrialProgressCallback`, which Tune adds to a run that passes none, keeps every trial
  too, 25 kB each. There is no fallback: without the name, Tune's adapters cannot be imported.
- `_raylet.AuthenticationTokenLoader` reads a token once per process; the next instance has another one.
  Fallback: nothing, and a second instance in one process is refused by Ray.
- The command line of the autoscaler's process: Ray has no call for the file it was started with. Fallback:
  the cluster counts as one that does not grow.
- `autoscaler._private.kuberay`: on Kubernetes the autoscaler runs in a container of its own, so that the head
  does not see its process. Its modules derive the autoscaling file from the RayCluster. Fallback: the cluster
  counts as one that does not grow.
- `experimental.internal_kv`: the store of Ray's head, in which the driver leaves a notice for workers in the
  middle of a step. Fallback: no notice, and the workers are killed after `STOP_SECONDS`.
"""

import copy
import io
import logging
import os
import re
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import yaml

from memtune.errors import MemtuneError, StudyError
from memtune.stop_signals import keep_handlers

KEY_NAMESPACE = "memtune"
PathPredicate = Callable[[Path], bool]
RAY_LOG_PREFIX = re.compile(r"[\d-]+ [\d:,]+\s+(?:PANIC|ERR|WARN|INFO) \S+\.py:\d+ -- ")
"""The time and place with which a line of Ray's log begins."""
KUBERAY_VARIABLE = "RAY_USAGE_STATS_KUBERAY_IN_USE"
"""KubeRay sets it in every container with Ray, with RAY_CLUSTER_NAME and RAY_CLUSTER_NAMESPACE."""
NODE_TYPE_VARIABLE = "RAY_NODE_TYPE_NAME"
"""Set by Ray's cluster launcher: the name under `available_node_types` of the cluster file."""
START_SETTINGS = {
    # By default the node looks for its object store once a second; the store starts within milliseconds.
    "raylet_client_connect_timeout_milliseconds": 20,
    "raylet_client_num_connect_attempts": 1000,
}
PRESTART_SETTINGS = {
    # A worker per core imports what a trial needs while the driver still connects and imports. They are
    # started once, and none is ended as idle before its first trial: another would import it all again.
    "preload_python_modules": ["memtune.ray_backend.trial_actor"],
    "enable_worker_prestart": True,
    "prestart_worker_first_driver": False,
    "idle_worker_killing_time_threshold_ms": 3_600_000,
}
UPLOAD_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray that log each step of an upload."""
LOW_MEMORY_PATTERN = re.compile(
    r"killed due to the node running low on memory\. Memory on the node .*? was (.*)"
)
"""How an error file says that Ray ended a worker whose node ran low on memory."""
WORKER_DIED_TEXT = "worker process has died"
"""How an error file says that a worker's process ended by itself or was killed."""
LOOPBACK_ADDRESS = "127.0.0.1"
TRIAL_COLLECTIONS = (
    "_trials",
    "_trial_to_actor",
    "_live_trials",
    "_stopped_trials",
    "_failed_trials",
    "_trials_to_cache",
)
"""What of Tune's controller holds trials."""
SKIPPED_STARTS = ("start_monitor", "start_log_monitor")


class ClusterConfigError(Exception):
    """Ray refuses the configuration of a cluster."""

    def __init__(self, entry: str, problem: str) -> None:
        """`entry` is the dotted name of the refused entry, or "the file"."""
        super().__init__(problem)
        self.entry, self.problem = entry, problem


def complete_cluster_config(config: dict[str, Any]) -> dict[str, Any]:
    """A cluster's configuration with the defaults that `ray up` fills in. Raises ClusterConfigError."""
    try:
        # Imported here, as below: Ray's modules load for up to two seconds, and other commands need none.
        from ray.autoscaler._private.util import prepare_config
    except ImportError:
        return copy.deepcopy(config)
    # Ray prints the reason of a refusal and raises an exception without it.
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return dict(prepare_config(copy.deepcopy(config)))
    except click.ClickException as error:
        reason = _strip_log_formatting(printed.getvalue()) or error.message
        raise ClusterConfigError("the file", reason) from error
    except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError) as error:
        # prepare_config reads entries before any validation.
        raise ClusterConfigError("the file", f"{type(error).__name__}: {error}") from error


def validate_cluster_config(config: dict[str, Any]) -> None:
    """Validate a cluster's configuration as `ray up` does. Raises ClusterConfigError."""
    import jsonschema  # type: ignore[import-untyped]

    completed = complete_cluster_config(config)
    try:
        from ray.autoscaler._private.util import validate_config
    except ImportError:
        return
    try:
        validate_config(completed)
    except jsonschema.ValidationError as error:
        entry = ".".join(str(part) for part in error.absolute_path) or "the file"
        raise ClusterConfigError(entry, error.message) from error
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ClusterConfigError("the file", str(error)) from error


def iterate_packaged_files(folder: Path) -> Iterator[Path]:
    """The files that Ray packs when a job's working folder is `folder`: those that no ignore file names."""
    excludes_by_default, find_excludes = _load_packaging_rules()

    def iterate_folder(path: Path, excludes_above: list[PathPredicate]) -> Iterator[Path]:
        excludes = excludes_above + find_excludes(path)
        for entry in path.iterdir():
            if any(is_excluded(entry) for is_excluded in excludes):
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from iterate_folder(entry, excludes)
            elif entry.is_file():
                yield entry

    yield from iterate_folder(folder, [excludes_by_default(folder)])


def put_shared_key(key: str) -> None:
    """Store a key in Ray's head, where every worker finds it."""
    _call_key_store("_internal_kv_put", key, b"1")


def has_shared_key(key: str) -> bool:
    """Whether Ray's head holds a key."""
    return bool(_call_key_store("_internal_kv_exists", key))


def delete_shared_key(key: str) -> None:
    """Remove a key from Ray's head."""
    _call_key_store("_internal_kv_del", key)


def _call_key_store(name: str, *arguments: object) -> Any:
    try:
        from ray.experimental import internal_kv
    except ImportError:
        return None
    call = getattr(internal_kv, name, None)
    return call(*arguments, namespace=KEY_NAMESPACE) if call else None


def _load_packaging_rules() -> tuple[Callable[[Path], PathPredicate], Callable[[Path], list[PathPredicate]]]:
    """What a working folder excludes by default, and what the ignore files of one folder exclude."""
    try:
        from ray._private.ray_constants import get_runtime_env_default_excludes
        from ray._private.runtime_env.packaging import _get_excludes, get_excludes_from_ignore_files
    except ImportError:
        return (lambda folder: lambda path: path.name == ".git"), (lambda folder: [])
    quiet = logging.getLogger(__name__)
    return (
        lambda folder: _get_excludes(folder, get_runtime_env_default_excludes()),
        lambda folder: get_excludes_from_ignore_files(folder, include_gitignore=True, logger=quiet),
    )


def _strip_log_formatting(text: str) -> str:
    """What Ray printed, without colours, line breaks and log prefixes."""
    return RAY_LOG_PREFIX.sub("", " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split()))


def start_instance(folder: Path, *, has_prestarted_workers: bool, **options: Any) -> None:
    """Start Ray on this machine with its session in `folder`, and connect to it; `options` go to ray.init."""
    import ray

    settings = START_SETTINGS | (PRESTART_SETTINGS if has_prestarted_workers else {})
    ray.init("local", _temp_dir=str(folder), _system_config=settings, **options)


def make_job_config() -> Any:
    """For ray.init: workers import nothing from the driver's working folder and from that of its script.

    They import memtune from their own environment, or from the package of a job. Raises StudyError when this
    version of Ray has no such names.
    """
    from ray.job_config import JobConfig

    class SafePathConfig(JobConfig):
        def _serialize(self) -> str:
            self._py_driver_sys_path.clear()
            return super()._serialize()

    config = SafePathConfig()
    if not (hasattr(JobConfig, "_serialize") and hasattr(config, "_py_driver_sys_path")):
        raise StudyError(
            "this version of Ray has no JobConfig._py_driver_sys_path, so workers might run modules of the "
            'working folder; install the version that memtune requires: pip install "ray[tune]==2.60.0"'
        )
    return config


def is_start_timeout(error: Exception) -> bool:
    """Whether a process of a starting node took too long.

    Ray 2.60 raises a bare Exception then, which only its text identifies; another text is not tried again.
    """
    return "timed out during startup" in str(error)


def import_dashboard_modules() -> None:
    """Import now what ray.init would import while other threads import the same modules."""
    with suppress(ImportError):
        import_module("ray.dashboard.optional_deps")


def is_in_notebook() -> bool:
    """Whether Tune takes this process for a notebook."""
    try:
        from ray.widgets.util import in_notebook
    except ImportError:
        return False
    return bool(in_notebook())


@contextmanager
def leave_stop_signals() -> Iterator[None]:
    """ray.init in the block sets no handler of SIGTERM, and its library's one is replaced at once."""
    utils: Any = import_module("ray._private.utils")
    raylet: Any = import_module("ray._raylet")
    set_handler = getattr(utils, "set_sigterm_handler", None)
    make_worker = getattr(raylet, "CoreWorker", None)

    def make_worker_and_keep_handlers(*arguments: Any) -> Any:
        with keep_handlers():
            return make_worker(*arguments)  # type: ignore[misc]

    with ExitStack() as restored:
        if set_handler is not None:
            restored.callback(setattr, utils, "set_sigterm_handler", set_handler)
            utils.set_sigterm_handler = lambda handler: None
        if make_worker is not None:
            restored.callback(setattr, raylet, "CoreWorker", make_worker)
            raylet.CoreWorker = make_worker_and_keep_handlers
        yield


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


class NodeProcesses:
    """The processes of Ray on which the connected driver depends."""

    def __init__(self) -> None:
        from ray._private import worker

        node: Any = getattr(worker, "_global_node", None)
        infos = getattr(node, "all_processes", {})
        self._started = {name: info.process for name, found in infos.items() for info in found}
        self.gcs_address = str(getattr(node, "gcs_address", ""))
        self.logs = Path(node.get_logs_dir_path() if hasattr(node, "get_logs_dir_path") else "")
        name = getattr(node, "raylet_socket_name", None)
        self._raylet = None if self.is_private or not name else _open_process(f"--raylet_socket_name={name}")

    @property
    def is_private(self) -> bool:
        """Whether this process has started them."""
        return bool(self._started)

    def find_dead(self) -> str | None:
        """The name of one that has ended, such as "raylet"; None while all run."""
        for name, process in self._started.items():
            if process.poll() is not None:
                return str(name)
        has_ended = self._raylet is not None and select.select([self._raylet], [], [], 0)[0]
        return "raylet" if has_ended else None

    def close(self) -> None:
        """Close the handle of another user's process."""
        if self._raylet is not None:
            os.close(self._raylet)


def _open_process(word: str) -> int | None:
    """A handle of the process with this word in its command line; None where the system has no handles."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError, AttributeError):
            if word.encode() in entry.read_bytes().split(b"\0"):
                return os.pidfd_open(int(entry.parent.name))
    return None


def forward_no_variables() -> None:
    """Have Tune give workers no variables of the driver.

    Raises StudyError when this version of Ray has no such names.
    """
    from ray.tune.execution import class_cache

    for name in ("DEFAULT_ENV_VARS", "ENV_VARS_TO_PROPAGATE"):
        variables = getattr(class_cache, name, None)
        if variables is None:
            raise StudyError(
                f"this version of Ray has no ray.tune.execution.class_cache.{name}, so AWS keys might reach "
                'its logs; install the version that memtune requires: pip install "ray[tune]==2.60.0"'
            )
        variables.clear()


@contextmanager
def raise_callback_errors() -> Iterator[None]:
    """Raise the MemtuneError of a Tune callback within the block as itself."""
    from ray.tune import TuneError

    try:
        yield
    except TuneError as error:
        if isinstance(error.__context__, MemtuneError):
            raise error.__context__ from None
        raise


def forget_ended_trials(controller: Any) -> None:
    """Remove the trials that have ended, and hold no worker, from what Tune keeps of all trials."""
    inner = getattr(controller, "_tune_controller", None)
    if inner is None or any(not hasattr(inner, name) for name in TRIAL_COLLECTIONS):
        return
    ended = {trial for trial in inner._trials if trial.is_finished() and trial not in inner._trial_to_actor}
    for name in ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache"):
        getattr(inner, name).difference_update(ended)
    if ended:
        inner._trials[:] = [trial for trial in inner._trials if trial not in ended]


def reset_token_cache() -> None:
    """Have Ray read its token again at the next connection."""
    from ray import _raylet

    loader = getattr(_raylet, "AuthenticationTokenLoader", None)
    if loader is not None:
        loader.instance().reset_cache()


def read_autoscaling_config(gcs_address: str) -> dict[str, Any] | None:
    """On the head: the autoscaling file of this cluster's autoscaler; None when none is running."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        files = [word.partition("=")[2] for word in words if word.startswith("--autoscaling-config=")]
        if files and f"--gcs-address={gcs_address}" in words:
            config = yaml.safe_load(Path(files[0]).expanduser().read_text(encoding="utf-8"))
            return config if isinstance(config, dict) else None
    return _derive_kuberay_config(os.environ)


def _derive_kuberay_config(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """On a head that KubeRay has started: the autoscaling file of its RayCluster.

    None for a cluster without an autoscaler, whose head may not read its RayCluster.
    """
    if KUBERAY_VARIABLE not in environment:
        return None
    try:
        from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
        from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient
    except ImportError:
        return None
    client = KubernetesHttpApiClient(environment["RAY_CLUSTER_NAMESPACE"])
    try:
        cluster = client.get(f"rayclusters/{environment['RAY_CLUSTER_NAME']}")
    except OSError:  # which the errors of requests are
        return None
    if not cluster["spec"].get("enableInTreeAutoscaling"):
        return None
    return dict(_derive_autoscaling_config_from_ray_cr(cluster))
