"""Internals of Ray that memtune relies on; a failure means that a new version of Ray changed them."""

import importlib
import inspect
import logging
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import _raylet
from ray._common.usage import usage_constants
from ray._private import node, services, worker
from ray._private import utils as ray_utils
from ray._private.parameter import RayParams
from ray.autoscaler._private import commands, util
from ray.autoscaler._private.command_runner import SSHCommandRunner
from ray.autoscaler._private.kuberay import autoscaling_config, node_provider
from ray.experimental import internal_kv
from ray.tune import TuneError
from ray.tune.execution import class_cache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.utils.callback import _create_default_callbacks

from memtune.errors import StudyError
from memtune.ray_backend.compatibility import (
    KUBERAY_VARIABLE,
    LOW_MEMORY_PATTERN,
    NODE_TYPE_VARIABLE,
    START_SETTINGS,
    TRIAL_SETS,
    UPLOAD_LOGGERS,
    WORKER_DIED_TEXT,
    ClusterConfigError,
    NodeProcesses,
    complete_cluster_config,
    forget_ended_trials,
    forward_no_variables,
    import_dashboard_modules,
    iterate_packaged_files,
    leave_stop_signals,
    make_job_config,
    raise_callback_errors,
    reset_token_cache,
    use_lean_node,
    use_token_mode,
    validate_cluster_config,
)
from memtune.ray_backend.trial_actor import TrialActor
from memtune.ray_backend.tune_adapters import SilentProgress

LOCAL_CONFIG: dict[str, Any] = {
    "cluster_name": "small",
    "provider": {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]},
    "auth": {"ssh_user": "me"},
}


class FakeProcesses:
    """Records the commands that Ray would run."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def check_call(self, command: list[str], *_: object, **__: object) -> int:
        self.commands.append(command)
        return 0

    check_output = check_call


class FakeProvider:
    def internal_ip(self, _: str) -> str:
        return "10.0.0.1"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> FakeProcesses:
    """The processes of an SSHCommandRunner that ran a command and copied a file."""
    monkeypatch.setattr(SSHCommandRunner, "_ensure_ssh_control_path", lambda self: None, raising=False)
    found = FakeProcesses()
    runner = SSHCommandRunner("", "0", FakeProvider(), {"ssh_user": "me"}, "small", found, True)
    runner.run("uptime", with_output=True)
    runner.run_rsync_up("token", "~/token")
    return found


def test_this_is_the_version_whose_internals_were_read() -> None:
    assert ray.__version__.startswith("2.60."), (
        "read ray_backend.compatibility against this version, then change this"
    )


def test_ray_starts_ssh_by_name(processes: FakeProcesses) -> None:
    command, copy = processes.commands
    assert command[0] == "ssh"
    assert copy[copy.index("--rsh") + 1].split()[0] == "ssh"


def test_ray_alone_accepts_any_host_key(processes: FakeProcesses) -> None:
    """Once this fails, the ssh program of memtune.ray_backend.clusters may no longer be necessary."""
    assert all("StrictHostKeyChecking=no" in " ".join(command) for command in processes.commands)


def test_ray_fills_in_the_node_type_of_existing_hosts() -> None:
    assert list(inspect.signature(util.prepare_config).parameters) == ["config"]
    (node_type,) = complete_cluster_config(LOCAL_CONFIG)["available_node_types"].values()
    assert node_type["min_workers"] == 2


def test_ray_names_the_entry_that_it_refuses() -> None:
    with pytest.raises(ClusterConfigError) as refused:
        validate_cluster_config(LOCAL_CONFIG | {"idle_timeout_minutes": "ten"})
    assert refused.value.entry == "idle_timeout_minutes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a source file, an ignored file and git's own folder."""
    (tmp_path / ".git").mkdir()
    for name in ("source.py", "notes.bin", ".git/pack"):
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.bin\n")
    return tmp_path


def list_packaged(folder: Path) -> set[str]:
    return {os.path.relpath(path, folder) for path in iterate_packaged_files(folder)}


def test_ray_leaves_out_what_ignore_files_name(folder: Path) -> None:
    assert list_packaged(folder) == {"source.py", ".gitignore"}


def test_rays_node_has_the_methods_that_the_lean_node_replaces() -> None:
    assert [*inspect.signature(node.Node.start_api_server).parameters] == [
        "self",
        "include_dashboard",
        "raise_on_failure",
    ]
    assert [*inspect.signature(node.Node.start_monitor).parameters] == ["self"]
    assert [*inspect.signature(node.Node.start_log_monitor).parameters] == ["self"]
    assert [*inspect.signature(node.Node.__init__).parameters][1] == "ray_params"


def test_ray_starts_the_node_by_the_name_that_is_replaced() -> None:
    original = node.Node
    assert "ray._private.node.Node(" in inspect.getsource(worker.init)
    settings = inspect.signature(RayParams.__init__).parameters
    assert {"node_ip_address", "dashboard_agent_listen_port"} <= settings.keys()
    with use_lean_node():
        assert node.Node is not original
        assert issubclass(node.Node, original)
    assert node.Node is original


def test_workers_get_no_folder_of_the_driver_on_their_path() -> None:
    config = make_job_config()
    assert "job_config._py_driver_sys_path.extend(" in inspect.getsource(worker.connect)
    config._py_driver_sys_path.append("/shared")
    assert b"/shared" not in config._serialize()


def test_tune_gives_a_worker_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's agent would log them, and Ray would start a new worker, which takes seconds."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "canary")
    forward_no_variables()
    actor: Any = class_cache._ActorClassCache().get(TrialActor)
    assert not actor._default_options["runtime_env"]


def test_a_version_of_tune_that_forwards_variables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(class_cache, "ENV_VARS_TO_PROPAGATE")
    with pytest.raises(StudyError, match="ENV_VARS_TO_PROPAGATE"):
        forward_no_variables()


def test_tune_replaces_an_error_of_a_callback_while_handling_it() -> None:
    """So the error is the `__context__` of the TuneError."""
    source = inspect.getsource(TuneController._schedule_trial_task)
    assert re.search(r"except Exception as e:[^#]*\n +raise TuneError\(traceback.format_exc\(\)\)\n", source)


def raise_as_tune(error: Exception) -> None:
    """Raise the TuneError that Tune makes of an error in a callback."""
    try:
        raise error
    except Exception:
        raise TuneError("Traceback ...")  # noqa: B904 - Tune names no cause


def test_an_error_for_users_in_a_callback_of_tune_is_raised_as_itself() -> None:
    error = StudyError("the journal was deleted")
    with pytest.raises(StudyError) as raised, raise_callback_errors():
        raise_as_tune(error)
    assert raised.value is error


def test_a_bug_in_a_callback_of_tune_keeps_its_traceback() -> None:
    with pytest.raises(TuneError, match="Traceback"), raise_callback_errors():
        raise_as_tune(ZeroDivisionError())


def test_ray_logs_the_steps_of_an_upload_under_these_names() -> None:
    for name in UPLOAD_LOGGERS:
        module = importlib.import_module(name)
        found = [value for value in vars(module).values() if isinstance(value, logging.Logger)]
        assert [logger.name for logger in found] == [name]


def test_ray_words_the_failure_of_a_worker_like_this() -> None:
    programs = [Path(_raylet.__file__), *(Path(ray.__file__).parent / "core" / "src" / "ray").rglob("raylet")]
    texts = b"".join(path.read_bytes() for path in programs if path.is_file())
    assert WORKER_DIED_TEXT.encode() in texts
    assert LOW_MEMORY_PATTERN.pattern.partition(r"\.")[0].encode() in texts
    assert b"Memory on the node" in texts


def test_rays_start_takes_a_folder_and_settings_of_these_names() -> None:
    """Ray's node is a program that holds the names of its settings."""
    assert all(f'"{name}"' in inspect.getsource(worker.init) for name in ("_temp_dir", "_system_config"))
    program = (Path(ray.__file__).parent / "core" / "src" / "ray" / "raylet" / "raylet").read_bytes()
    assert [name for name in START_SETTINGS if name.encode() not in program] == []


def test_rays_node_has_its_processes_its_socket_and_its_logs() -> None:
    source = inspect.getsource(node.Node)
    names = ("self.all_processes", "def raylet_socket_name", "def gcs_address", "def get_logs_dir_path")
    assert [name for name in names if name not in source] == []
    assert "--raylet_socket_name=" in inspect.getsource(services.start_raylet)
    assert hasattr(worker, "_global_node")


def test_without_rays_node_no_death_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(worker, "_global_node")
    processes = NodeProcesses()
    assert (processes.find_dead(), processes.is_private) == (None, False)


def test_the_store_of_rays_head_takes_keys_in_a_namespace() -> None:
    for name in ("_internal_kv_put", "_internal_kv_exists", "_internal_kv_del"):
        assert "namespace" in inspect.signature(getattr(internal_kv, name)).parameters


def test_rays_autoscaler_has_its_file_and_its_cluster_on_its_command_line() -> None:
    source = inspect.getsource(services.start_monitor)
    assert "--gcs-address=" in source
    assert "--autoscaling-config=" in source


def test_kuberay_has_these_names() -> None:
    assert usage_constants.KUBERAY_ENV == KUBERAY_VARIABLE
    assert callable(node_provider.KubernetesHttpApiClient.get)
    assert callable(autoscaling_config._derive_autoscaling_config_from_ray_cr)


def test_rays_launcher_names_the_type_of_a_node() -> None:
    assert NODE_TYPE_VARIABLE in inspect.getsource(commands)


def test_the_modules_of_rays_dashboard_are_imported() -> None:
    import_dashboard_modules()
    assert "ray.dashboard.optional_deps" in sys.modules


def test_the_token_cache_can_be_reset() -> None:
    raylet: Any = _raylet
    assert callable(raylet.AuthenticationTokenLoader.instance().reset_cache)
    reset_token_cache()


def test_a_process_that_has_imported_ray_sends_tokens_in_the_block_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raylet: Any = _raylet
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    before = raylet.get_authentication_mode()
    with use_token_mode():
        assert raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
    assert raylet.get_authentication_mode() == before


def test_tune_keeps_its_trials_in_known_collections() -> None:
    made = inspect.getsource(TuneController.__init__)
    assert all(
        re.search(rf"self\.{name}: \w+\[", made) for name in ("_trials", "_trial_to_actor", *TRIAL_SETS)
    )


def test_ended_trials_are_forgotten_unless_a_worker_ends_them() -> None:
    running, ended, ending = (Trial("TrialActor", stub=True, trial_id=name) for name in "abc")
    for trial in (ended, ending):
        trial.set_status(Trial.TERMINATED)
    controller = SimpleNamespace(
        _trials=[running, ended, ending],
        _trial_to_actor={ending: None},
        _live_trials={running},
        _stopped_trials={ended, ending},
        _failed_trials=set(),
        _trials_to_cache={running, ended},
    )
    forget_ended_trials(SimpleNamespace(_tune_controller=controller))
    assert controller._trials == [running, ending]
    assert controller._stopped_trials == {ending}
    assert controller._trials_to_cache == {running}


def test_tune_adds_no_callback_that_keeps_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune's own callback for progress keeps every trial, with what the trial holds of Ray."""
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    (own,) = _create_default_callbacks([])
    (silent,) = _create_default_callbacks([SilentProgress()])
    trial = Trial("TrialActor", stub=True)
    kept = [trial in vars(own)["_last_print"], trial in vars(silent)["_last_print"]]
    for callback in (own, silent):
        callback.on_trial_result(0, [trial], trial, {"done": True})
        callback.on_trial_complete(0, [trial], trial)
    kept += [trial in vars(own)["_last_print"], trial in vars(silent)["_last_print"]]
    assert kept == [False, False, True, False]


def test_ray_replaces_no_handler_of_sigterm_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the one of Python that ray.init sets, nor the one that its library sets with the worker."""

    def make_worker() -> str:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return "worker"

    raylet: Any = _raylet
    monkeypatch.setattr(raylet, "CoreWorker", make_worker)
    own = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        chosen = signal.getsignal(signal.SIGTERM)
        with leave_stop_signals():
            ray_utils.set_sigterm_handler(signal.SIG_IGN)
            assert raylet.CoreWorker() == "worker"
            assert signal.getsignal(signal.SIGTERM) is chosen
        assert raylet.CoreWorker is make_worker
    finally:
        signal.signal(signal.SIGTERM, own)
    started = inspect.getsource(worker.init) + inspect.getsource(worker.connect)
    assert "ray._private.utils.set_sigterm_handler(" in inspect.getsource(worker)
    assert "ray._raylet.CoreWorker(" in started
