"""A server that accepts a connection and says nothing more."""

import socket
import time
from collections.abc import Generator, Iterator

import psycopg
import pytest
from psycopg.pq import PGconn
from psycopg.waiting import Ready, Wait

from memtune.search import postgresql_connection
from memtune.search.postgresql_connection import TimeoutConnection


@pytest.fixture
def silent() -> Iterator[TimeoutConnection]:
    """A connection to a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield TimeoutConnection(PGconn.connect_start(f"host=127.0.0.1 port={port}".encode()))


def answered_after(seconds: float) -> Generator[Wait, Ready | int, str]:
    """The steps of a dialogue in which something comes from time to time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield Wait.RW  # which a connection always is ready for
        time.sleep(0.01)
    return "answer"


def unanswered() -> Generator[Wait, Ready | int, None]:
    while True:
        yield Wait.R


def test_a_connection_on_which_nothing_comes_is_closed_after_a_while(
    silent: TimeoutConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_connection, "ANSWER_TIMEOUT_SECONDS", 0.3)
    with pytest.raises(psycopg.OperationalError, match="the server sent nothing for 0 s"):
        silent.wait(unanswered())
    assert silent.closed


def test_an_answer_may_take_long_while_something_comes(
    silent: TimeoutConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_connection, "ANSWER_TIMEOUT_SECONDS", 0.3)
    assert silent.wait(answered_after(0.6)) == "answer"
    silent.close()
