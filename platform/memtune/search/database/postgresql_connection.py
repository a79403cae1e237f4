"""Connections to PostgreSQL with a timeout: a server that hangs is unavailable.

The network shows that a machine is down. It does not show that a server is stopped or that its disk hangs,
because the operating system still acknowledges packets. So the client also measures how long no data arrives.
"""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy.engine import URL

__all__ = ["ANSWER_TIMEOUT_SECONDS", "make_connector"]

ANSWER_TIMEOUT_SECONDS = 10.0
"""Seconds without data in the middle of an answer, after which the connection is closed."""
CONNECTION_OPTIONS = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10}
"""How soon libpq detects that a machine is down (seconds, milliseconds, seconds); the driver is blocked
meanwhile. Without `tcp_user_timeout` an open connection hangs for a quarter of an hour."""
POLL_SECONDS = 0.1
"""Seconds between two reads of the clock while no data arrives."""


class TimeoutConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server sends no data in the middle of an answer."""

    def wait(self, gen: PQGen[RV], interval: float = POLL_SECONDS, timeout: float | None = None) -> RV:
        """The result of a query's steps. Raises psycopg.OperationalError after the timeout."""
        return super().wait(self._close_on_timeout(gen), interval, timeout)

    def _close_on_timeout(self, steps: PQGen[RV]) -> PQGen[RV]:
        """The steps unchanged; psycopg resumes them every `interval` seconds while no data arrives."""
        last = time.monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    last = now
                elif now - last >= ANSWER_TIMEOUT_SECONDS:
                    self.close()
                    raise psycopg.OperationalError(f"the server sent nothing for {now - last:.0f} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found


def make_connector(url: URL) -> Callable[[], TimeoutConnection]:
    """A function that connects to the database of a URL of the dialect "postgresql+psycopg"."""
    dialect = url.get_dialect()(dbapi=psycopg)  # type: ignore[call-arg]
    arguments, options = dialect.create_connect_args(url)
    limited: dict[str, Any] = {**options, **CONNECTION_OPTIONS}
    return lambda: TimeoutConnection.connect(*arguments, **limited)
