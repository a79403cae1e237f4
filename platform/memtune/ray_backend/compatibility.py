"""Ray's internals that memtune depends on, and why. Seen with Ray 2.60.0.

Every version that pyproject.toml allows has them: `tests/unit/ray_backend/test_compatibility.py` fails when
one of them changes. Where a session's safety depends on a name, a version of Ray without it is refused.
"""

import copy
import io
import logging
import os
import re
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import yaml

from memtune.errors import MemtuneError, StudyError
from memtune.stop_signals import keep_handlers

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

KEY_NAMESPACE = "memtune"
KUBERAY_VARIABLE = "RAY_USAGE_STATS_KUBERAY_IN_USE"
"""KubeRay sets it in every container with Ray, with RAY_CLUSTER_NAME and RAY_CLUSTER_NAMESPACE."""
NODE_TYPE_VARIABLE = "RAY_NODE_TYPE_NAME"
"""Set by Ray's cluster launcher: the name under `available_node_types` of the cluster file."""
START_SETTINGS = {
    # By default the node looks for its object store once a second; the store starts within milliseconds.
    "raylet_client_connect_timeout_milliseconds": 20,
    "raylet_client_num_connect_attempts": 1000,
    # A worker per core imports what a trial needs while the driver still connects and imports. They are
    # started once, and none is ended as idle before its first trial: another would import it all again.
    "preload_python_modules": ["memtune.ray_backend.trial_actor"],
    "enable_worker_prestart": True,
    "prestart_worker_first_driver": False,
    "idle_worker_killing_time_threshold_ms": 3_600_000,
}
LOW_MEMORY_PATTERN = re.compile(
    r"killed due to the node running low on memory\. Memory on the node .*? was (.*)"
)
"""How an error file says that Ray ended a worker whose node ran low on memory; Tune has no call for it."""
WORKER_DIED_TEXT = "worker process has died"
"""How an error file says that a worker's process ended by itself or was killed."""
LOOPBACK_ADDRESS = "127.0.0.1"
RAY_LOG_PREFIX = re.compile(r"[\d-]+ [\d:,]+\s+(?:PANIC|ERR|WARN|INFO) \S+\.py:\d+ -- ")
"""The time and place with which a line of Ray's log begins."""
UPLOAD_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray that log each step of an upload."""
TRIAL_SETS = ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache")
"""What of Tune's controller holds trials, besides `_trials` and `_trial_to_actor`."""


def call_key_store(action: Literal["put", "exists", "del"], *key_and_value: str | bytes) -> Any:
    """Put a key into Ray's head, where every worker finds it, ask whether it is there, or remove it."""
    # Imported here, as below: Ray loads for seconds, and other commands need none of it.
    from ray.experimental import internal_kv

    return getattr(internal_kv, f"_internal_kv_{action}")(*key_and_value, namespace=KEY_NAMESPACE)


@contextmanager
def set_environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set or, where the value is None, unset variables of the environment during the block."""
    before = {name: os.environ.get(name) for name in values}
    _update_environment(values)
    try:
        yield
    finally:
        _update_environment(before)


def _update_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def start_instance(folder: Path, cores: int, **options: Any) -> None:
    """Start Ray on this machine with its session in `folder`, and connect to it; `options` go to ray.init.

    A session has to be in a private folder; a start without START_SETTINGS takes seconds longer.
    """
    import ray

    settings = dict(START_SETTINGS)  # Ray adds the session's folders
    ray.init("local", num_cpus=cores, _temp_dir=str(folder), _system_config=settings, **options)


def make_job_config() -> Any:
    """For ray.init: workers import nothing from the driver's working folder and from that of its script.

    They import memtune from their own environment, or from the package of a job. Ray has no option for it:
    without these names workers might run modules that others left there, so StudyError is raised.
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
    """Import now what ray.init would import while other threads import the same modules, where it exists."""
    with suppress(ImportError):
        import_module("ray.dashboard.optional_deps")


@contextmanager
def leave_stop_signals() -> Iterator[None]:
    """ray.init in the block sets no handler of SIGTERM, and its library's one is replaced at once.

    They would end the driver at once, with code 15 or a native stack.
    """
    utils: Any = import_module("ray._private.utils")
    raylet: Any = import_module("ray._raylet")
    set_handler, make_worker = utils.set_sigterm_handler, raylet.CoreWorker

    def make_worker_and_keep_handlers(*arguments: Any) -> Any:
        with keep_handlers():
            return make_worker(*arguments)

    utils.set_sigterm_handler = lambda handler: None
    raylet.CoreWorker = make_worker_and_keep_handlers
    try:
        yield
    finally:
        utils.set_sigterm_handler, raylet.CoreWorker = set_handler, make_worker


@contextmanager
def use_lean_node() -> Iterator[None]:
    """ray.init in the block starts a node on 127.0.0.1 without dashboard, autoscaler and log monitor.

    It has no option for it. By default each of the three takes a second of a core, and the node listens on
    every interface.
    """
    node: Any = import_module("ray._private.node")
    original: Any = node.Node

    class LeanNode(original):  # type: ignore[misc]
        def __init__(self, ray_params: Any, **options: Any) -> None:
            # By default each node waits seconds for one port of the machine, which another node may have.
            ray_params.update(node_ip_address=LOOPBACK_ADDRESS, dashboard_agent_listen_port=0)
            super().__init__(ray_params, **options)

        def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
            # ray.init would wait for the dashboard's address.
            self._webui_url = ""

        def start_monitor(self) -> None:
            """Start no autoscaler."""

        def start_log_monitor(self) -> None:
            """Start nothing that forwards logs."""

    node.Node = LeanNode
    try:
        yield
    finally:
        node.Node = original


class NodeProcesses:
    """The processes of Ray on which the connected driver depends, and the folder of their logs.

    Ray does not tell a driver that its raylet or GCS has died. Where the names are missing, the driver waits,
    as Ray does.
    """

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

    Tune passes them, AWS keys among them, as a runtime environment, which Ray's agent logs and for which Ray
    starts new workers (seconds for each trial) instead of the prestarted ones. Raises StudyError when this
    version of Ray has no such names, because keys might reach a log.
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
    """Raise a MemtuneError of a Tune callback within the block as itself, not as its text in a TuneError."""
    from ray.tune import TuneError

    try:
        yield
    except TuneError as error:
        if isinstance(error.__context__, MemtuneError):
            raise error.__context__ from None
        raise


def forget_ended_trials(controller: Any) -> None:
    """Remove the trials that have ended, and hold no worker, from what Tune keeps of all trials.

    Tune reads all in every step: the driver of a long study would grow and slow down.
    """
    inner = controller._tune_controller
    ended = {trial for trial in inner._trials if trial.is_finished() and trial not in inner._trial_to_actor}
    for name in TRIAL_SETS:
        getattr(inner, name).difference_update(ended)
    if ended:
        inner._trials[:] = [trial for trial in inner._trials if trial not in ended]


def reset_token_cache() -> None:
    """Have Ray read its token again at the next connection: it reads one per process."""
    raylet: Any = import_module("ray._raylet")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def make_job_client(address: str, headers: dict[str, str], answer_seconds: float) -> "JobSubmissionClient":
    """Ray's client of a job server, which waits `answer_seconds` for an answer to a question.

    Ray's own waits without end, has no option for it, and logs each step of an upload.
    """
    from ray.job_submission import JobSubmissionClient

    for name in UPLOAD_LOGGERS:  # after the import, which sets their levels
        logging.getLogger(name).setLevel(logging.WARNING)

    class Client(JobSubmissionClient):
        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            limit: dict[str, Any] = {"timeout": answer_seconds} if method == "GET" else {}
            return super()._do_request(method, endpoint, **limit, **options)

    return Client(address, headers=headers)


@contextmanager
def use_token_mode() -> Iterator[None]:
    """Connections in the block send the token: for an address, Ray does so only where RAY_AUTH_MODE is token.

    Ray reads the variable when it is imported.
    """
    raylet: Any = import_module("ray._raylet")
    try:
        with set_environment({"RAY_AUTH_MODE": "token"}):
            raylet.Config.initialize("")
            reset_token_cache()
            yield
    finally:
        raylet.Config.initialize("")


def read_autoscaling_config(gcs_address: str) -> dict[str, Any] | None:
    """On the head: the autoscaling file of this cluster's autoscaler; None when none is running.

    Ray has no call for it; the autoscaler has the file on its command line.
    """
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

    The autoscaler runs in a container of its own, so the head does not see its process. None for
    a cluster without an autoscaler, whose head may not read its RayCluster.
    """
    if KUBERAY_VARIABLE not in environment:
        return None
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler._private.kuberay.node_provider import KubernetesHttpApiClient

    client = KubernetesHttpApiClient(environment["RAY_CLUSTER_NAMESPACE"])
    try:
        cluster = client.get(f"rayclusters/{environment['RAY_CLUSTER_NAME']}")
    except OSError:  # which the errors of requests are
        return None
    if not cluster["spec"].get("enableInTreeAutoscaling"):
        return None
    return dict(_derive_autoscaling_config_from_ray_cr(cluster))


class ClusterConfigError(Exception):
    """Ray refuses the configuration of a cluster."""

    def __init__(self, entry: str, problem: str) -> None:
        """`entry` is the dotted name of the refused entry, or "the file"."""
        super().__init__(problem)
        self.entry, self.problem = entry, problem


def complete_cluster_config(config: dict[str, Any]) -> dict[str, Any]:
    """A cluster's configuration with the defaults that `ray up` fills in. Raises ClusterConfigError.

    A file without these defaults cannot be validated.
    """
    from ray.autoscaler._private.util import prepare_config

    # Ray prints the reason of a refusal and raises an exception without it.
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return dict(prepare_config(copy.deepcopy(config)))
    except click.ClickException as error:
        # Without colours, line breaks and log prefixes.
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).split())
        reason = RAY_LOG_PREFIX.sub("", text) or error.message
        raise ClusterConfigError("the file", reason) from error
    except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError) as error:
        # prepare_config reads entries before any validation.
        raise ClusterConfigError("the file", f"{type(error).__name__}: {error}") from error


def validate_cluster_config(config: dict[str, Any]) -> None:
    """Validate a configuration as `ray up` does, but before it launches. Raises ClusterConfigError."""
    import jsonschema  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import validate_config

    completed = complete_cluster_config(config)
    try:
        validate_config(completed)
    except jsonschema.ValidationError as error:
        entry = ".".join(str(part) for part in error.absolute_path) or "the file"
        raise ClusterConfigError(entry, error.message) from error
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ClusterConfigError("the file", str(error)) from error


def iterate_packaged_files(folder: Path) -> Iterator[Path]:
    """The files that Ray packs when a job's working folder is `folder`: those that no ignore file names.

    The size of a job's package is limited, and Ray decides which files it leaves out.
    """
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import _get_excludes, get_excludes_from_ignore_files

    quiet = logging.getLogger(__name__)

    def iterate_folder(path: Path, excludes_above: list[Callable[[Path], bool]]) -> Iterator[Path]:
        own = get_excludes_from_ignore_files(path, include_gitignore=True, logger=quiet)
        excludes = excludes_above + own
        for entry in path.iterdir():
            if any(is_excluded(entry) for is_excluded in excludes):
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from iterate_folder(entry, excludes)
            elif entry.is_file():
                yield entry

    yield from iterate_folder(folder, [_get_excludes(folder, get_runtime_env_default_excludes())])
