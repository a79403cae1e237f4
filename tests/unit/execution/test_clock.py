"""A study's time is the sum over its drivers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.execution import clock
from memtune.execution.clock import Clock
from memtune.execution.settings import Settings
from memtune.execution.study import load_study, prepare
from memtune.search import Proposals


@pytest.fixture
def proposals(study_file: Path, settings: Settings) -> Callable[[], Proposals]:
    """Opens the study's proposals, as each new driver does."""
    ready = prepare(study_file, load_study(study_file), settings)
    return lambda: Proposals(
        settings.proposals, ready.id, ready.space, ready.study.sampler, ready.identify, ready.refuse
    )


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass."""
    now = [100.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])

    def passed(seconds: float) -> None:
        now[0] += seconds

    return passed


def test_a_later_driver_has_what_the_earlier_ones_left(
    proposals: Callable[[], Proposals], passed: Callable[[float], None]
) -> None:
    first = Clock(proposals(), budget=60.0)
    passed(25.0)
    first.tick()
    passed(1000.0)
    second = Clock(proposals(), budget=60.0)
    assert second.left == 35.0
    passed(50.0)
    assert second.left == 0.0


def test_a_larger_budget_gives_a_spent_study_more_time(
    proposals: Callable[[], Proposals], passed: Callable[[float], None]
) -> None:
    first = Clock(proposals(), budget=60.0)
    passed(70.0)
    first.tick()
    assert Clock(proposals(), budget=60.0).left == 0.0
    assert Clock(proposals(), budget=100.0).left == 30.0


def test_without_a_budget_there_is_no_end(proposals: Callable[[], Proposals]) -> None:
    assert Clock(proposals(), budget=None).left is None
