"""A screenshot of a page of a server that asks for a password.

A headless browser takes credentials from an address, but then refuses the requests of the page itself.
Therefore a proxy on loopback adds them to each request.
"""

import base64
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

__all__ = ["take_screenshot"]

FORWARDED_HEADERS = ("Content-Type", "Accept")


def take_screenshot(link: str, name: str, password: str, picture: Path) -> None:
    """Write a picture of the page at a link, as this user sees it."""
    parts = urlsplit(link)
    server = f"{parts.scheme}://{parts.netloc}"
    with (
        run_authenticating_proxy(server, name, password) as address,
        TemporaryDirectory(prefix="memtune-browser-") as folder,
    ):
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--window-size=1900,800", "--virtual-time-budget=60000", f"--user-data-dir={folder}"]
        page = link.replace(server, address, 1)
        subprocess.run([*command, f"--screenshot={picture}", page], check=True, capture_output=True)


@contextmanager
def run_authenticating_proxy(server: str, name: str, password: str) -> Iterator[str]:
    """Run a proxy during the block that adds this user's credentials to each request; yields its address."""
    authorization = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._forward(None)

        def do_POST(self) -> None:
            self._forward(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def _forward(self, body: bytes | None) -> None:
            headers = {kept: self.headers[kept] for kept in FORWARDED_HEADERS if kept in self.headers}
            request = urllib.request.Request(server + self.path, body, headers, method=self.command)
            request.add_header("Authorization", authorization)
            try:
                answer = urllib.request.urlopen(request, timeout=60)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                content = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
