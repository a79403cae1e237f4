"""Post: outboxes emptied in order by a thread that tries again."""

import logging
import threading
import time

import pytest

from memtune.tracking.post import Post


class Receiver:
    """Collects what arrives; raises as often as it is told to."""

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
def post(receiver):
    running = Post(receiver.deliver, lambda error: isinstance(error, ValueError))
    yield running
    running.close(10)


def test_commands_of_a_key_arrive_in_order(post, receiver):
    for number in range(100):
        post.put("a", number)
    assert post.flush(10)
    assert receiver.arrived == [("a", number) for number in range(100)]


def test_a_failed_delivery_is_repeated_from_where_it_stopped(post, receiver):
    receiver.failures = [OSError("away"), OSError("away")]
    post.put("a", 1, 2)
    assert post.flush(10)
    assert receiver.arrived == [("a", 1), ("a", 2)]


def test_an_outage_is_told_once(post, receiver, caplog):
    receiver.failures = [OSError("away")] * 4
    with caplog.at_level(logging.WARNING, "memtune.tracking"):
        post.put("a", 1)
        assert post.flush(10)
    assert [record.message.startswith("tracking is away") for record in caplog.records] == [True, False]


def test_a_hopeless_command_is_dropped_and_the_next_goes_on(post, receiver):
    receiver.failures = [ValueError("never")]
    post.put("a", 1, 2)
    assert post.flush(10)
    assert receiver.arrived == [("a", 2)]
    assert len(post.problems) == 1


def test_putting_does_not_wait_for_the_delivery(post, receiver):
    receiver.open.clear()
    post.put("a", 1)
    started = time.perf_counter()
    for number in range(1000):
        post.put("b", number)
    assert time.perf_counter() - started < 1
    assert not post.flush(0.01)
    receiver.open.set()
    assert post.flush(10)


def test_closing_ends_the_thread_though_nothing_can_be_delivered(receiver):
    post = Post(receiver.deliver, lambda error: False)
    receiver.failures = [OSError("away")] * 1000
    post.put("a", 1)
    assert not post.close(0.2)
    post._thread.join(10)
    assert not post._thread.is_alive()
