"""DeliveryQueue: commands delivered in order by a thread that retries."""

import logging
import re
import sqlite3
import threading
import time

import pytest
from mlflow.exceptions import MlflowException

from memtune.tracking.runs import recorder as recorder_module
from memtune.tracking.runs.recorder import DeliveryQueue
from tests.cluster.poll import poll_until


class Receiver:
    """Collects what arrives; raises the errors in `failures` first."""

    def __init__(self):
        self.arrived = []
        self.failures = []
        self.open = threading.Event()
        self.open.set()

    def deliver(self, key, commands):
        assert self.open.wait(10)
        while commands:
            if self.failures:
                raise self.failures.pop()
            self.arrived.append((key, commands[0]))
            commands.popleft()


@pytest.fixture
def receiver():
    return Receiver()


@pytest.fixture
def queue(receiver):
    running = DeliveryQueue(receiver.deliver, lambda error: isinstance(error, ValueError))
    yield running
    running.close(10)


def test_commands_of_a_key_arrive_in_order(queue, receiver):
    for number in range(100):
        queue.put("a", number)
    assert queue.flush(10)
    assert receiver.arrived == [("a", number) for number in range(100)]


def test_a_failed_delivery_is_repeated_from_the_failed_command(queue, receiver):
    receiver.failures = [OSError("unavailable"), OSError("unavailable")]
    queue.put("a", 1, 2)
    assert queue.flush(10)
    assert receiver.arrived == [("a", 1), ("a", 2)]


def test_an_outage_is_logged_once(queue, receiver, caplog):
    receiver.failures = [OSError("unavailable")] * 4
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "memtune.tracking"):
        queue.put("a", 1)
        assert queue.flush(10)
    first, last = caplog.messages
    assert first == "tracking is unavailable, entries are kept and retried: unavailable"
    seconds = re.fullmatch(r"tracking is available again after (\d+) s", last)
    assert seconds
    assert int(seconds[1]) <= round(time.monotonic() - started)


def test_the_reason_of_an_outage_has_no_statement_of_the_database(queue, receiver, caplog):
    error = MlflowException(
        "(sqlite3.OperationalError) database or disk is full\n[SQL: INSERT INTO runs ...]"
    )
    error.__cause__ = sqlite3.OperationalError("database or disk is full")
    receiver.failures = [error]
    with caplog.at_level(logging.WARNING, "memtune.tracking"):
        queue.put("a", 1)
        assert queue.flush(10)
    assert caplog.messages[0].endswith("entries are kept and retried: database or disk is full")


def test_a_permanently_refused_command_is_dropped_and_the_next_is_delivered(queue, receiver, caplog):
    receiver.failures = [ValueError("never")]
    queue.put("a", 1, 2)
    assert queue.flush(10)
    assert receiver.arrived == [("a", 2)]
    assert caplog.messages == ["an entry of a was not recorded: never"]


def test_put_does_not_wait_for_the_delivery(queue, receiver):
    receiver.open.clear()
    queue.put("a", 1)
    for number in range(1000):
        queue.put("b", number)
    assert receiver.arrived == []
    assert not queue.flush(0.01)
    receiver.open.set()
    assert queue.flush(10)


def test_closing_ends_the_thread_if_nothing_can_be_delivered(receiver):
    queue = DeliveryQueue(receiver.deliver, lambda error: False)
    receiver.failures = [OSError("unavailable")] * 1000
    queue.put("a", 1)
    assert not queue.close(0.2)
    queue._thread.join(10)
    assert not queue._thread.is_alive()


def test_the_progress_of_a_flush_names_the_reason_of_an_outage(receiver, monkeypatch, caplog):
    monkeypatch.setattr(recorder_module, "PROGRESS_SECONDS", 0)
    queue = DeliveryQueue(receiver.deliver, lambda error: False)
    receiver.failures = [OSError("no route to host")] * 1000
    queue.put("a", 1)
    poll_until(lambda: "tracking is unavailable" in caplog.text, "the first attempt")
    assert not queue.close(0.2)
    assert "recording: 1 entries left: no route to host" in caplog.text


def test_a_refusal_by_the_database_is_repeated_and_then_dropped(receiver, monkeypatch, caplog):
    monkeypatch.setattr(recorder_module, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recorder_module, "MAX_PAUSE_SECONDS", 0.001)
    queue = DeliveryQueue(receiver.deliver, lambda error: False, lambda error: isinstance(error, KeyError))
    receiver.failures = [KeyError("refused")] * (recorder_module.MAX_DOUBTFUL_ATTEMPTS + 1)
    queue.put("a", 1, 2)
    assert queue.flush(10)
    assert receiver.arrived == [("a", 2)]
    assert caplog.text.count("was not recorded") == 1
    assert queue.close(10)


def test_a_full_queue_makes_the_caller_wait_until_half_of_it_is_delivered(receiver):
    receiver.open.clear()
    queue = DeliveryQueue(receiver.deliver, lambda error: False, capacity=10)
    queue.put("a", *range(10))
    waiting = threading.Thread(target=queue.put, args=("a", 10))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    receiver.open.set()
    waiting.join(10)
    assert queue.flush(10)
    assert receiver.arrived == [("a", number) for number in range(11)]
    assert queue.close(10)


def test_an_abandoned_queue_releases_a_caller_that_waits(receiver):
    receiver.open.clear()
    queue = DeliveryQueue(receiver.deliver, lambda error: False, capacity=1)
    queue.put("a", 1)
    waiting = threading.Thread(target=queue.put, args=("b", 2))
    waiting.start()
    queue.abandon()
    waiting.join(10)
    assert not waiting.is_alive()
    receiver.open.set()


def test_a_flush_lasts_as_long_as_something_is_delivered(receiver):
    """Each of five deliveries takes longer than a third of the time allowed without progress."""
    allowed_seconds, steps = 1.5, []

    def deliver(key, commands):
        threading.Event().wait(allowed_seconds / 3)
        steps.append(commands.popleft())

    queue = DeliveryQueue(deliver, lambda error: False)
    queue.put("a", *range(5))
    assert queue.flush(allowed_seconds)
    assert steps == [*range(5)]
    assert queue.close(10)
