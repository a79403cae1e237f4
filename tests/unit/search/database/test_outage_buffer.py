"""An unavailable storage: writes wait, reads are refused, and nothing is written twice."""

import logging

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import IntegrityError, OperationalError

from memtune.search.database.outage_buffer import OutageBuffer, StorageUnavailableError

UNAVAILABLE = OperationalError("SELECT 1", {}, Exception("connection refused"))


class Storage:
    """Answers while it is available, else raises the error of a database driver."""

    def __init__(self):
        self.up = True
        self.written = []

    def write(self, value):
        def write():
            self.check()
            self.written.append(value)

        return write

    def check(self):
        if not self.up:
            raise UNAVAILABLE
        return "answer"


@pytest.fixture
def database():
    return Storage()


@pytest.fixture
def clock():
    """A clock that a test sets: `clock[0] = seconds`."""
    return [0.0]


@pytest.fixture
def buffer(clock, monkeypatch):
    monkeypatch.setattr("memtune.search.database.outage_buffer.OUTAGE_LIMIT_SECONDS", 60.0)
    return OutageBuffer("postgresql://host/optuna", clock=lambda: clock[0])


def test_writes_wait_in_order_until_the_storage_is_available(database, buffer, clock):
    database.up = False
    for value in "abc":
        buffer.write(database.write(value))
    database.up, clock[0] = True, 1.0
    buffer.write(database.write("d"))
    assert database.written == ["a", "b", "c", "d"]


def test_no_attempt_is_made_before_the_pause_is_over(database, buffer, clock):
    database.up = False
    buffer.write(database.write("a"))
    database.up = True
    buffer.write(database.write("b"))
    assert database.written == []
    clock[0] = 0.6
    buffer.write(database.write("c"))
    assert database.written == ["a", "b", "c"]


def test_pauses_grow_up_to_a_bound(database, buffer, clock):
    database.up = False
    pauses = []
    for _ in range(9):
        with pytest.raises(StorageUnavailableError):
            buffer.try_once(database.check)
        pauses.append(buffer._next_attempt - clock[0])
        clock[0] = buffer._next_attempt
    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15, 15]


def test_a_read_is_refused_while_writes_wait(database, buffer, clock):
    database.up = False
    buffer.write(database.write("a"))
    clock[0] = 1.0
    with pytest.raises(StorageUnavailableError):
        buffer.try_once(lambda: "answer from elsewhere")
    database.up, clock[0] = True, 10.0
    assert buffer.try_once(database.check) == "answer"
    assert database.written == ["a"]


def test_an_outage_over_the_limit_is_permanent(database, buffer, clock):
    database.up = False
    with pytest.raises(StorageUnavailableError) as early:
        buffer.try_once(database.check)
    clock[0] = 61.0
    with pytest.raises(
        StorageUnavailableError, match=r"has not answered for 61 s: connection refused.*--resume"
    ) as late:
        buffer.try_once(database.check)
    assert (early.value.permanent, late.value.permanent) == (False, True)


@pytest.mark.parametrize(("seconds", "is_permanent"), [(59.9, False), (60.0, True)])
def test_an_outage_is_permanent_from_the_limit_on(database, buffer, clock, seconds, is_permanent):
    database.up = False
    with pytest.raises(StorageUnavailableError):
        buffer.try_once(database.check)
    clock[0] = seconds
    with pytest.raises(StorageUnavailableError) as raised:
        buffer.try_once(database.check)
    assert raised.value.permanent is is_permanent


def test_a_retried_read_makes_one_attempt_after_the_limit(database, buffer, clock):
    database.up = False
    with pytest.raises(StorageUnavailableError):
        buffer.try_once(database.check)
    clock[0] = 61.0
    with pytest.raises(StorageUnavailableError):
        buffer.try_once(database.check)
    database.up = True
    assert buffer.retry_until(database.check) == "answer"


def test_an_outage_and_its_end_are_logged_once(database, buffer, clock, caplog):
    database.up = False
    for clock[0] in (0.0, 1.0, 5.0):
        buffer.write(database.write("a"))
    database.up, clock[0] = True, 30.0
    buffer.write(database.write("b"))
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(messages) == 2
    assert "postgresql://host/optuna is unavailable; training continues" in messages[0]
    assert messages[1] == "the study database is available again after 30 s"


def test_a_refused_write_is_raised_and_not_retried(database, buffer):
    def refused():
        raise IntegrityError("INSERT", {}, Exception("duplicate key"))

    with pytest.raises(IntegrityError):
        buffer.write(refused)
    buffer.write(database.write("a"))
    assert database.written == ["a"]


def test_a_stored_proposal_is_returned_although_the_answer_was_lost(open_study, monkeypatch):
    """The storage has it, but the answer to its last write is lost."""
    store = optuna.Trial.set_user_attr
    lost: list[int] = []

    def lose_the_answer(trial, key, value):
        store(trial, key, value)
        if key == "identity" and not lost:
            lost.append(trial.number)
            raise StorageInternalError("the answer was lost")

    monkeypatch.setattr(optuna.Trial, "set_user_attr", lose_the_answer)
    monkeypatch.setattr("memtune.search.database.outage_buffer.FIRST_RETRY_PAUSE_SECONDS", 0.0)
    proposals = open_study()
    with pytest.raises(StorageUnavailableError):
        proposals.ask()
    assert [proposals.ask().number, proposals.ask().number] == [0, 1]
