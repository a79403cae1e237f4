"""Transient errors are retried with growing pauses until a deadline; other errors are raised at once."""

import pytest

from memtune.retry import Backoff, retry


class Attempts:
    """An action that fails a number of times, on a clock that only pauses advance."""

    def __init__(self, failures: int) -> None:
        self.failures, self.count, self.seconds = failures, 0, 0.0

    def act(self) -> str:
        self.count += 1
        if self.count <= self.failures:
            raise ConnectionError(f"attempt {self.count}")
        return "result"

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def retry(self, timeout_seconds: float) -> str:
        return retry(
            self.act,
            is_transient=lambda error: isinstance(error, ConnectionError),
            next_pause=Backoff(1.0, 4.0).next_pause,
            timeout_seconds=timeout_seconds,
            clock=lambda: self.seconds,
            sleep=self.sleep,
        )


def test_an_action_is_retried_until_it_succeeds() -> None:
    attempts = Attempts(failures=4)
    assert attempts.retry(timeout_seconds=100) == "result"
    assert attempts.seconds == 1 + 2 + 4 + 4


def test_the_last_error_is_raised_when_the_next_attempt_would_be_late() -> None:
    attempts = Attempts(failures=9)
    with pytest.raises(ConnectionError, match="attempt 3"):
        attempts.retry(timeout_seconds=6.9)


def test_other_errors_are_raised_at_once() -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise KeyError("absent")

    with pytest.raises(KeyError):
        retry(fail, is_transient=lambda error: isinstance(error, OSError), next_pause=lambda: 0.0)
    assert len(calls) == 1


def test_pauses_start_again_after_a_reset() -> None:
    backoff = Backoff(1.0, 4.0)
    pauses = [backoff.next_pause() for _ in range(4)]
    backoff.reset()
    assert [*pauses, backoff.next_pause()] == [1.0, 2.0, 4.0, 4.0, 1.0]
