"""A way to a server that fails as networks and servers do: slow, saying 503, hanging up, losing answers."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["Proxy"]

HEAD = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Proxy:
    """A port of loopback that leads to another one, well or as `behave` says.

    `struck` counts what went wrong on purpose.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.struck = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._connect: Callable[[socket.socket], None] = self._pass
        self._lose: Callable[[], bool] = lambda: False
        self._pause = 0.0
        self._left = 0
        self._counting = threading.Lock()

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        """The proxy for the time of the block."""
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.close()

    def behave(self) -> None:
        """Pass everything on."""
        self._connect, self._lose, self._pause = self._pass, lambda: False, 0.0

    def say_503(self, times: int) -> None:
        """Answer so many requests with 503, as an object store that is overrun."""
        self._connect, self._left = self._refuse, times

    def hang_up(self, times: int) -> None:
        """Close so many connections at once, those that are open too."""
        self._connect, self._left = self._close, times

    def be_slow(self, seconds: float) -> None:
        """Hold back every piece of an answer for so long."""
        self._pause = seconds

    def lose_answers(self, seed: int, least: int, most: int) -> None:
        """Cut the connection in place of one answer in `least` to `most`; the server has done its part."""
        chance = random.Random(seed)
        left = chance.randint(least, most)
        lock = threading.Lock()

        def lose() -> bool:
            nonlocal left
            with lock:
                left -= 1
                if left > 0:
                    return False
                left = chance.randint(least, most)
            return True

        self._lose = lose

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self._connect(client)

    def _strike(self) -> None:
        with self._counting:
            self.struck += 1
            self._left -= 1
            if self._left == 0:
                self._connect = self._pass

    def _close(self, client: socket.socket) -> None:
        self._strike()

    def _refuse(self, client: socket.socket) -> None:
        client.settimeout(5)
        client.recv(2**16)
        self._strike()
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(SLOW_DOWN) + SLOW_DOWN)
        client.shutdown(socket.SHUT_WR)
        while client.recv(2**16):  # what is still on its way would turn the answer into a reset
            pass

    def _pass(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            onward = threading.Thread(target=self._forward, args=[client, server], daemon=True)
            onward.start()
            try:
                self._answer(client, server)
            finally:
                for end in (client, server):  # which wakes the other thread, unlike closing
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                onward.join()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(2**16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        while data := server.recv(2**16):
            if self._connect != self._pass or self._lose():
                self._strike()
                return
            time.sleep(self._pause)
            client.sendall(data)
