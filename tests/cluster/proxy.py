"""A TCP proxy that injects faults: delays, status 503, closed connections, lost responses."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["FaultyProxy"]

RESPONSE_503_HEAD = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
RESPONSE_503_BODY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class FaultyProxy:
    """A port of loopback that relays to another port and injects the configured fault.

    `fault_count` is the number of injected faults.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.fault_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._handle_connection: Callable[[socket.socket], None] = self._handle_by_relaying
        self._should_drop_response: Callable[[], bool] = lambda: False
        self._delay_seconds = 0.0
        self._faults_left = 0
        self._count_lock = threading.Lock()

    @contextmanager
    def serve(self) -> Iterator["FaultyProxy"]:
        """Run the proxy during the block."""
        threading.Thread(target=self._accept_connections, daemon=True).start()
        try:
            yield self
        finally:
            self._listener.close()

    def stop_faults(self) -> None:
        """Relay everything."""
        self._handle_connection, self._should_drop_response, self._delay_seconds = (
            self._handle_by_relaying,
            lambda: False,
            0.0,
        )

    def respond_503(self, times: int) -> None:
        """Answer this number of requests with 503, like an overloaded object store."""
        self._handle_connection, self._faults_left = self._handle_with_503, times

    def close_connections(self, times: int) -> None:
        """Close this number of connections immediately, including open ones."""
        self._handle_connection, self._faults_left = self._handle_by_closing, times

    def delay_responses(self, seconds: float) -> None:
        """Delay every piece of a response."""
        self._delay_seconds = seconds

    def drop_responses(self, seed: int, min_responses: int, max_responses: int) -> None:
        """Close the connection in place of one response in `min_responses` to `max_responses`.

        The server has carried out the request.
        """
        rng = random.Random(seed)
        responses_left = rng.randint(min_responses, max_responses)
        lock = threading.Lock()

        def should_drop() -> bool:
            nonlocal responses_left
            with lock:
                responses_left -= 1
                if responses_left > 0:
                    return False
                responses_left = rng.randint(min_responses, max_responses)
            return True

        self._should_drop_response = should_drop

    def _accept_connections(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            self._handle_connection(client)

    def _count_fault(self) -> None:
        with self._count_lock:
            self.fault_count += 1
            self._faults_left -= 1
            if self._faults_left == 0:
                self._handle_connection = self._handle_by_relaying

    def _handle_by_closing(self, client: socket.socket) -> None:
        self._count_fault()

    def _handle_with_503(self, client: socket.socket) -> None:
        client.settimeout(5)
        client.recv(2**16)
        self._count_fault()
        client.sendall(
            RESPONSE_503_HEAD + b"Content-Length: %d\r\n\r\n" % len(RESPONSE_503_BODY) + RESPONSE_503_BODY
        )
        client.shutdown(socket.SHUT_WR)
        while client.recv(2**16):  # unread bytes would turn the response into a reset
            pass

    def _handle_by_relaying(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.target_port)) as server:
            request_thread = threading.Thread(target=self._relay_request, args=[client, server], daemon=True)
            request_thread.start()
            try:
                self._relay_response(client, server)
            finally:
                for end in (client, server):  # unlike close(), this wakes the other thread
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                request_thread.join()

    def _relay_request(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(2**16):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _relay_response(self, client: socket.socket, server: socket.socket) -> None:
        while data := server.recv(2**16):
            if self._handle_connection != self._handle_by_relaying or self._should_drop_response():
                self._count_fault()
                return
            time.sleep(self._delay_seconds)
            client.sendall(data)
