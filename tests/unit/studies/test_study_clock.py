"""A study's time is the sum over its drivers."""

import time
from collections.abc import Callable
from typing import cast

import pytest

from memtune.objective import Objective
from memtune.search import Proposals
from memtune.studies.budgets import BudgetMonitor
from memtune.studies.definition.study_terms import Budget
from memtune.studies.director import DirectedTrial


@pytest.fixture
def advance_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the clock by a number of seconds."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def advance_clock(seconds: float) -> None:
        now[0] += seconds

    return advance_clock


def start_clock(proposals: Proposals) -> BudgetMonitor:
    return BudgetMonitor(Budget(), None, Objective.PERPLEXITY, proposals)


def test_a_later_driver_continues_from_the_time_of_the_earlier_ones(
    open_proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    first = start_clock(open_proposals())
    advance_clock(25.0)
    first.tick()
    advance_clock(1000.0)
    second = start_clock(open_proposals())
    advance_clock(50.0)
    assert second.spent_seconds == 75.0


def test_a_watcher_stores_the_time_every_five_seconds(
    open_proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    opened, stored = open_proposals(), []
    clock = start_clock(opened)
    trial = cast(DirectedTrial, object())
    for seconds in (4.0, 1.0, 4.0, 1.5):
        advance_clock(seconds)
        clock.tick(trial)
        stored.append(opened.read_seconds_spent())
    assert stored == [0.0, 5.0, 5.0, 10.5]


def test_a_tick_without_a_trial_stores_the_time_at_once(
    open_proposals: Callable[[], Proposals], advance_clock: Callable[[float], None]
) -> None:
    opened = open_proposals()
    clock = start_clock(opened)
    advance_clock(1.0)
    clock.tick()
    assert opened.read_seconds_spent() == 1.0
