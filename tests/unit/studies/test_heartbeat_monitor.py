"""A trial expires by the time between checks; time without checks does not count."""

import pytest

from memtune.ray_backend.tune_adapters import MAX_STEP_SECONDS, HeartbeatMonitor


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def monitor(clock: Clock) -> HeartbeatMonitor:
    return HeartbeatMonitor(60.0, clock)


def check_for(monitor: HeartbeatMonitor, clock: Clock, seconds: float) -> list[int]:
    """Check ten times a second for a number of seconds."""
    for _ in range(round(10 * seconds)):
        clock.now += 0.1
        monitor.find_expired_trials()
    return monitor.find_expired_trials()


def test_a_trial_without_a_heartbeat_expires_after_the_timeout(
    monitor: HeartbeatMonitor, clock: Clock
) -> None:
    monitor.start(1)
    assert check_for(monitor, clock, 59) == []
    assert check_for(monitor, clock, 2) == [1]


def test_a_heartbeat_restarts_the_timeout(monitor: HeartbeatMonitor, clock: Clock) -> None:
    monitor.start(1)
    check_for(monitor, clock, 50)
    monitor.record_heartbeat(1, 300)
    assert check_for(monitor, clock, 50) == []


def test_no_trial_expires_because_the_driver_was_stopped_for_an_hour(
    monitor: HeartbeatMonitor, clock: Clock
) -> None:
    monitor.start(1)
    check_for(monitor, clock, 10)
    clock.now += 3600
    assert monitor.find_expired_trials() == []
    assert check_for(monitor, clock, 60 - 10 - MAX_STEP_SECONDS - 1) == []
    assert check_for(monitor, clock, 2) == [1]


def test_a_removed_trial_does_not_expire(monitor: HeartbeatMonitor, clock: Clock) -> None:
    monitor.start(1)
    monitor.remove(1)
    assert check_for(monitor, clock, 100) == []


def test_progress_is_more_tokens_than_ever_before(monitor: HeartbeatMonitor) -> None:
    monitor.start(1)
    assert monitor.record_heartbeat(1, 600)
    monitor.remove(1)
    monitor.start(1)
    assert not monitor.record_heartbeat(1, 300)
    assert not monitor.record_heartbeat(1, 600)
    assert monitor.record_heartbeat(1, 601)


def test_a_trial_expires_exactly_at_the_timeout(clock: Clock) -> None:
    monitor = HeartbeatMonitor(1.0, clock)
    monitor.start(1)
    clock.now += 1.0
    assert monitor.find_expired_trials() == [1]


def test_the_first_token_is_progress(monitor: HeartbeatMonitor) -> None:
    monitor.start(1)
    assert monitor.record_heartbeat(1, 1)


def test_a_trial_that_never_started_can_be_removed(monitor: HeartbeatMonitor) -> None:
    monitor.remove(7)
    assert monitor.find_expired_trials() == []


def test_the_first_token_is_progress_after_a_heartbeat_without_tokens(monitor: HeartbeatMonitor) -> None:
    monitor.start(1)
    assert not monitor.record_heartbeat(1, 0)
    assert monitor.record_heartbeat(1, 1)
