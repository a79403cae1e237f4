"""Connections to a server that accepts them and sends nothing."""

import socket
import time
from collections.abc import Generator, Iterator

import psycopg
import pytest
from psycopg.pq import PGconn
from psycopg.waiting import Ready, Wait

from memtune.search.database import study_database
from memtune.search.database.study_database import TimeoutConnection


@pytest.fixture
def connection() -> Iterator[TimeoutConnection]:
    """A connection to a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield TimeoutConnection(PGconn.connect_start(f"host=127.0.0.1 port={port}".encode()))


def answer_after(seconds: float) -> Generator[Wait, Ready | int, str]:
    """The steps of an exchange in which the connection becomes ready again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield Wait.RW  # which a connection always is ready for
        time.sleep(0.01)
    return "answer"


def never_answer() -> Generator[Wait, Ready | int, None]:
    while True:
        yield Wait.R


def test_a_connection_without_data_is_closed_after_the_timeout(
    connection: TimeoutConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_database, "ANSWER_TIMEOUT_SECONDS", 0.3)
    with pytest.raises(psycopg.OperationalError, match="the server sent nothing for 0 s"):
        connection.wait(never_answer())
    assert connection.closed


def test_a_long_answer_is_received_while_data_arrive(
    connection: TimeoutConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_database, "ANSWER_TIMEOUT_SECONDS", 0.3)
    assert connection.wait(answer_after(0.6)) == "answer"
    connection.close()
