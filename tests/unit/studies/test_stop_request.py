"""A signal asks a run to end; a second one ends it at once."""

import signal
import threading
from collections.abc import Iterator

import pytest

from memtune.studies.executor import STOPPING_MESSAGE, StopRequest


@pytest.fixture(autouse=True)
def hangups_as_before() -> Iterator[None]:
    """A run ignores SIGHUP once a terminal has closed; processes of later tests inherit that."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_request_and_the_second_raises(number: signal.Signals) -> None:
    request, messages = StopRequest(), list[str]()
    before = signal.getsignal(number)
    with request.catch_signals(messages.append):
        assert not request.is_set
        signal.raise_signal(number)
        assert request.is_set
        assert request.is_signalled
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_closing_terminal_sends_several_hangups_and_the_run_ends_once() -> None:
    request = StopRequest()
    with request.catch_signals(lambda message: None):
        signal.raise_signal(signal.SIGINT)
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert request.is_signalled
    # What follows the trials, such as sending records, is not broken off either.
    signal.raise_signal(signal.SIGHUP)


def test_the_user_is_told_how_to_end_at_once() -> None:
    request, messages = StopRequest(), list[str]()
    with request.catch_signals(messages.append):
        signal.raise_signal(signal.SIGTERM)
    for thread in threading.enumerate():
        if thread.name == "memtune-stopping":
            thread.join()
    assert messages == [STOPPING_MESSAGE]


def test_an_ignored_hangup_stays_ignored() -> None:
    """A study under nohup outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        request = StopRequest()
        with request.catch_signals(lambda message: None):
            signal.raise_signal(signal.SIGHUP)
        assert not request.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_spent_budget_sets_the_request_without_a_signal() -> None:
    request = StopRequest(lambda: True)
    assert request.is_set
    assert not request.is_signalled
