"""A study's time is the sum over its drivers."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from memtune.search import Proposals
from memtune.settings import Settings
from memtune.studies import time_budget
from memtune.studies.director import Trial
from memtune.studies.study import load_study, resolve_study
from memtune.studies.time_budget import TimeBudget


@pytest.fixture
def proposals(study_file: Path, settings: Settings) -> Callable[[], Proposals]:
    """Opens the study's proposals, as each new driver does."""
    resolved = resolve_study(study_file, load_study(study_file), settings)
    return lambda: Proposals(
        settings.study_database,
        resolved.id,
        resolved.space,
        resolved.study.sampler,
        resolved.identify,
        resolved.get_refusal_reason,
    )


@pytest.fixture
def advance_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the clock by a number of seconds."""
    now = [100.0]
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: now[0])

    def advance_clock(seconds: float) -> None:
        now[0] += seconds

    return advance_clock


def test_a_later_driver_has_the_remaining_time(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    first = TimeBudget(proposals(), budget_seconds=60.0)
    advance_clock(25.0)
    first.tick()
    advance_clock(1000.0)
    second = TimeBudget(proposals(), budget_seconds=60.0)
    assert second.remaining_seconds == 35.0
    advance_clock(50.0)
    assert second.remaining_seconds == 0.0


def test_a_larger_budget_adds_to_the_remaining_time(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    first = TimeBudget(proposals(), budget_seconds=60.0)
    advance_clock(70.0)
    first.tick()
    assert TimeBudget(proposals(), budget_seconds=60.0).remaining_seconds == 0.0
    assert TimeBudget(proposals(), budget_seconds=100.0).remaining_seconds == 30.0


def test_without_a_budget_the_time_is_unlimited(proposals: Callable[[], Proposals]) -> None:
    assert TimeBudget(proposals(), budget_seconds=None).remaining_seconds is None


def test_a_watcher_stores_the_time_every_five_seconds(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    opened, stored = proposals(), []
    budget = TimeBudget(opened, budget_seconds=None)
    trial = cast(Trial, object())
    for seconds in (4.0, 1.0, 4.0, 1.5):
        advance_clock(seconds)
        budget.tick(trial)
        stored.append(opened.read_seconds_spent())
    assert stored == [0.0, 5.0, 5.0, 10.5]


def test_a_tick_without_a_trial_stores_the_time_at_once(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    opened = proposals()
    budget = TimeBudget(opened, budget_seconds=None)
    advance_clock(1.0)
    budget.tick()
    assert opened.read_seconds_spent() == 1.0
