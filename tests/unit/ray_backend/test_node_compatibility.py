"""Guards on Ray's internals: each fails when a version of Ray changes what `node_compatibility` relies on."""

import inspect
from typing import Any

import pytest
import ray
from ray import _raylet
from ray._private import node, worker
from ray.tune.execution import class_cache

from memtune.errors import StudyError
from memtune.ray_backend.node_compatibility import forward_no_variables, reset_token_cache, use_lean_node
from memtune.ray_backend.trial_actor import TrialActor


def test_this_is_the_version_whose_internals_were_read() -> None:
    assert ray.__version__.startswith("2.60."), (
        "read node_compatibility against this version, then change this"
    )


def test_a_node_starts_what_a_lean_one_leaves_out_by_these_methods() -> None:
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
    with use_lean_node():
        assert node.Node is not original
        assert issubclass(node.Node, original)
    assert node.Node is original


def test_a_node_without_those_methods_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherNode: ...

    monkeypatch.setattr(node, "Node", OtherNode)
    with use_lean_node():
        assert node.Node is OtherNode


def test_tune_gives_a_worker_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's agent would log them, and Ray would start a new worker, which takes seconds."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "canary")
    forward_no_variables()
    actor: Any = class_cache._ActorClassCache().get(TrialActor)  # type: ignore[no-untyped-call]
    assert not actor._default_options["runtime_env"]


def test_a_tune_that_cannot_be_kept_from_forwarding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(class_cache, "ENV_VARS_TO_PROPAGATE")
    with pytest.raises(StudyError, match="ENV_VARS_TO_PROPAGATE"):
        forward_no_variables()


def test_the_token_cache_can_be_reset() -> None:
    assert callable(_raylet.AuthenticationTokenLoader.instance().reset_cache)
    reset_token_cache()
