"""Free ports for servers of tests."""

import socket
from contextlib import suppress
from itertools import islice
from random import SystemRandom

__all__ = ["find_free_port", "find_free_ports"]


def find_free_port() -> int:
    """A port as of `find_free_ports`."""
    return find_free_ports(1)[0]


def find_free_ports(count: int) -> list[int]:
    """Free ports of loopback, below those that the kernel gives to other processes before a server starts.

    They are drawn independently of the seeds of tests, which run side by side.
    """
    candidates = SystemRandom().sample(range(20_000, 32_768), 1_000)
    return list(islice(filter(_is_free, candidates), count))


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False
