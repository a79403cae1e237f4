"""A storage that is away for a while: what is written waits, what is asked is refused, nothing is doubled."""

import logging

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import IntegrityError, OperationalError

from memtune.search.patience import Patience, StorageAwayError

AWAY = OperationalError("SELECT 1", {}, Exception("connection refused"))


class Storage:
    """Answers while it is up, else raises what a database driver would."""

    def __init__(self):
        self.up = True
        self.written = []

    def write(self, value):
        def write(again):
            self.check()
            self.written.append((value, again))

        return write

    def check(self):
        if not self.up:
            raise AWAY
        return "answer"


@pytest.fixture
def database():
    return Storage()


@pytest.fixture
def clock():
    """A clock that stands still until it is set: `clock[0] = seconds`."""
    return [0.0]


@pytest.fixture
def patience(clock):
    return Patience("postgresql://host/optuna", limit=60, clock=lambda: clock[0])


def test_writes_wait_in_order_until_the_storage_is_back(database, patience, clock):
    database.up = False
    for value in "abc":
        patience.write(database.write(value))
    database.up, clock[0] = True, 1.0
    patience.write(database.write("d"))
    assert database.written == [("a", True), ("b", False), ("c", False), ("d", False)]


def test_a_storage_that_is_away_is_left_alone_between_attempts(database, patience, clock):
    database.up = False
    patience.write(database.write("a"))
    database.up = True
    patience.write(database.write("b"))
    assert database.written == []
    clock[0] = 0.6
    patience.write(database.write("c"))
    assert [value for value, _ in database.written] == ["a", "b", "c"]


def test_pauses_grow_up_to_a_bound(database, patience, clock):
    database.up = False
    pauses = []
    for _ in range(9):
        with pytest.raises(StorageAwayError):
            patience.ask(database.check)
        pauses.append(patience._next - clock[0])
        clock[0] = patience._next
    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15, 15]


def test_a_question_is_answered_only_when_nothing_waits(database, patience, clock):
    database.up = False
    patience.write(database.write("a"))
    clock[0] = 1.0
    with pytest.raises(StorageAwayError):
        patience.ask(lambda: "answer from elsewhere")
    database.up, clock[0] = True, 10.0
    assert patience.ask(database.check) == "answer"
    assert database.written == [("a", True)]


def test_after_the_limit_the_storage_is_away_for_good(database, patience, clock):
    database.up = False
    with pytest.raises(StorageAwayError) as early:
        patience.ask(database.check)
    clock[0] = 61.0
    with pytest.raises(
        StorageAwayError, match=r"has not answered for 61 s: connection refused.*--resume"
    ) as late:
        patience.ask(database.check)
    assert (early.value.for_good, late.value.for_good) == (False, True)


def test_who_insists_asks_once_more_when_the_limit_is_over(database, patience, clock):
    database.up = False
    with pytest.raises(StorageAwayError):
        patience.ask(database.check)
    clock[0] = 61.0
    with pytest.raises(StorageAwayError):
        patience.ask(database.check)
    database.up = True
    assert patience.insist(database.check) == "answer"


def test_an_outage_is_told_once_and_so_is_its_end(database, patience, clock, caplog):
    database.up = False
    for clock[0] in (0.0, 1.0, 5.0):
        patience.write(database.write("a"))
    database.up, clock[0] = True, 30.0
    patience.write(database.write("b"))
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 2
    assert "postgresql://host/optuna is away; training goes on" in told[0]
    assert told[1] == "the study's storage is back after 30 s"


def test_what_the_storage_refuses_is_raised_and_not_tried_again(database, patience):
    def refused(again):
        raise IntegrityError("INSERT", {}, Exception("duplicate key"))

    with pytest.raises(IntegrityError):
        patience.write(refused)
    patience.write(database.write("a"))
    assert database.written == [("a", False)]


def test_a_proposal_whose_storing_was_never_confirmed_is_handed_out_all_the_same(open_study, monkeypatch):
    """The storage has it, but the answer to its last write is lost."""
    store, lost = optuna.Trial.set_user_attr, []

    def lose_the_answer(trial, key, value):
        store(trial, key, value)
        if key == "identity" and not lost:
            lost.append(trial.number)
            raise StorageInternalError("the answer was lost")

    monkeypatch.setattr(optuna.Trial, "set_user_attr", lose_the_answer)
    monkeypatch.setattr("memtune.search.patience.FIRST_PAUSE", 0.0)
    proposals = open_study()
    with pytest.raises(StorageAwayError):
        proposals.ask()
    assert [proposals.ask().number, proposals.ask().number] == [0, 1]
