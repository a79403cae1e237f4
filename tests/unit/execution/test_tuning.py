"""What trials ask Ray for."""

import pytest
from ray.tune.execution import class_cache

from memtune.execution.trial import TrialActor
from memtune.execution.tuning import requested  # noqa: F401  its import is what is tested


def test_a_trial_wants_no_environment_of_its_own_so_that_a_worker_in_store_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray starts a new worker, which takes seconds, for an environment that none in store has."""
    for name in class_cache.ENV_VARS_TO_PROPAGATE:
        monkeypatch.delenv(name, raising=False)
    actor = class_cache._ActorClassCache().get(TrialActor)
    assert not actor._default_options["runtime_env"]
