"""A study's time is the sum over its drivers."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from memtune.search import Proposals
from memtune.settings import Settings
from memtune.studies.budgets.study_clock import StudyClock
from memtune.studies.director import Trial
from memtune.studies.study import load_study, resolve_study


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
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def advance_clock(seconds: float) -> None:
        now[0] += seconds

    return advance_clock


def test_a_later_driver_continues_from_the_time_of_the_earlier_ones(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    first = StudyClock(proposals())
    advance_clock(25.0)
    first.tick()
    advance_clock(1000.0)
    second = StudyClock(proposals())
    advance_clock(50.0)
    assert second.spent_seconds == 75.0


def test_a_watcher_stores_the_time_every_five_seconds(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    opened, stored = proposals(), []
    clock = StudyClock(opened)
    trial = cast(Trial, object())
    for seconds in (4.0, 1.0, 4.0, 1.5):
        advance_clock(seconds)
        clock.tick(trial)
        stored.append(opened.read_seconds_spent())
    assert stored == [0.0, 5.0, 5.0, 10.5]


def test_a_tick_without_a_trial_stores_the_time_at_once(
    proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    opened = proposals()
    clock = StudyClock(opened)
    advance_clock(1.0)
    clock.tick()
    assert opened.read_seconds_spent() == 1.0
