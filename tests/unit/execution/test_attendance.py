"""Silence is counted while somebody listens."""

import pytest

from memtune.execution.attendance import LONGEST_STEP, Attendance


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attendance(clock: Clock) -> Attendance:
    return Attendance(60.0, clock)


def listen(attendance: Attendance, clock: Clock, seconds: float) -> list[int]:
    """Look ten times a second for so long."""
    for _ in range(round(10 * seconds)):
        clock.now += 0.1
        attendance.silent()
    return attendance.silent()


def test_a_worker_that_says_nothing_for_the_limit_is_silent(attendance: Attendance, clock: Clock) -> None:
    attendance.began(1)
    assert listen(attendance, clock, 59) == []
    assert listen(attendance, clock, 2) == [1]


def test_a_word_begins_the_silence_anew(attendance: Attendance, clock: Clock) -> None:
    attendance.began(1)
    listen(attendance, clock, 50)
    attendance.heard(1, 300)
    assert listen(attendance, clock, 50) == []


def test_nobody_is_silent_because_the_driver_was_stopped_for_an_hour(
    attendance: Attendance, clock: Clock
) -> None:
    attendance.began(1)
    listen(attendance, clock, 10)
    clock.now += 3600
    assert attendance.silent() == []
    assert listen(attendance, clock, 60 - 10 - LONGEST_STEP - 1) == []
    assert listen(attendance, clock, 2) == [1]


def test_who_left_is_not_missed(attendance: Attendance, clock: Clock) -> None:
    attendance.began(1)
    attendance.left(1)
    assert listen(attendance, clock, 100) == []


def test_only_what_was_never_reached_before_is_further(attendance: Attendance) -> None:
    attendance.began(1)
    assert attendance.heard(1, 600)
    attendance.left(1)
    attendance.began(1)
    assert not attendance.heard(1, 300)
    assert not attendance.heard(1, 600)
    assert attendance.heard(1, 601)
