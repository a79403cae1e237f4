"""Connections to PostgreSQL that do not wait for ever: a server that hangs is one that is away.

A machine that is gone is seen by its silence on the network. A server that was stopped, or whose disk hangs,
is not: the system under it goes on acknowledging what it is sent. So whoever asks counts, too, for how long
nothing has come.
"""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from sqlalchemy.engine import URL

__all__ = ["ANSWER_SECONDS", "connecting"]

ANSWER_SECONDS = 10.0
"""Seconds in which a server sends nothing of an answer, after which its connection is given up."""
CONNECTION = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10}
"""How soon PostgreSQL's library sees that a machine is gone (seconds, milliseconds, seconds): the driver does
nothing else meanwhile. Without the second, a connection that was open hangs for a quarter of an hour."""
LOOK = 0.1
"""Seconds between two looks at the clock while nothing comes."""


class Connection(psycopg.Connection[Any]):
    """One that is closed when the server falls silent in the middle of an answer."""

    def wait(self, gen: PQGen[RV], interval: float = LOOK, timeout: float | None = None) -> RV:
        """What the steps of a dialogue come to. Raises psycopg.OperationalError after the silence."""
        return super().wait(self._heard(gen), interval, timeout)

    def _heard(self, steps: PQGen[RV]) -> PQGen[RV]:
        """The steps as they are; they are told every `interval` that nothing has come."""
        last = time.monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    last = now
                elif now - last >= ANSWER_SECONDS:
                    self.close()
                    raise psycopg.OperationalError(f"the server sent nothing for {now - last:.0f} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found


def connecting(url: URL) -> Callable[[], Connection]:
    """What makes a connection to the database of a URL of the dialect "postgresql+psycopg"."""
    dialect = url.get_dialect()(dbapi=psycopg)  # type: ignore[call-arg]
    arguments, options = dialect.create_connect_args(url)
    limited: dict[str, Any] = {**options, **CONNECTION}
    return lambda: Connection.connect(*arguments, **limited)
