"""The process behind `memtune ui`: MLflow's pages for the one user who has the token.

MLflow's own server answers every local user and keeps artifacts wherever a request says. This module wraps
its application: a request needs the token, the address of this server and, from a page, this server's origin.

`mlflow_ui` starts a process that runs `main`, with a listening socket and with settings in its environment,
which other users cannot read.
"""

import hmac
import json
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

from memtune.tracking.compatibility import BROWSER_SETTINGS, START_FRAGMENT, load_server_application

TOKEN_VARIABLE = "MEMTUNE_UI_TOKEN"
LISTENING_FD_VARIABLE = "MEMTUNE_UI_LISTENING_FD"

MAX_CHECKED_BODY_BYTES = 1_000_000
CREATE_EXPERIMENT_PATH = "/mlflow/experiments/create"
REFUSED_PATH_PARTS = ("/mlflow/assistant", "/gateway/", "/mlflow/webhooks", "/mlflow/gateway")
"""MLflow's assistant runs shell commands, its gateway and webhooks call other servers. memtune uses none."""

GATEWAY_LIST_PATH = "/mlflow/gateway-proxy"
"""The pages of runs ask for the endpoints of a gateway and show a refusal as an error: there are none."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class OwnerOnly:
    """An ASGI application that passes a request on only if it comes from the token's owner.

    The token comes as `Authorization: Bearer` from clients (MLFLOW_TRACKING_TOKEN), as a cookie from a
    browser, and once as `?token=` in the address, which sets the cookie. `/health` needs no token.
    """

    def __init__(self, application: Application, token: str, port: int) -> None:
        self._application = application
        self._token = token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._cookie_name = f"memtune-ui-{port}"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with 200 (token accepted), 400, 401, 403 or 404."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        elif scope["type"] != "http":  # nothing on MLflow's pages that memtune needs uses websockets
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if not self._is_own_address(headers):
            await _refuse(send, 403, "PERMISSION_DENIED", "this address is not the one that is served")
        elif scope["path"] == "/health":
            await self._application(scope, receive, send)
        elif scope["method"] == "GET" and self._is_token(query.get("token", [""])[0]):
            await self._set_cookie(scope, send)
        elif not self._has_token(headers):
            message = "open the address with the token that `memtune ui` prints, or set MLFLOW_TRACKING_TOKEN"
            await _refuse(send, 401, "UNAUTHENTICATED", message)
        elif scope["path"].endswith(GATEWAY_LIST_PATH) and scope["method"] == "GET":
            await _send(send, 200, [("content-type", "application/json")], b'{"endpoints": []}')
        elif any(part in scope["path"] for part in REFUSED_PATH_PARTS):
            await _refuse(send, 404, "ENDPOINT_NOT_FOUND", "`memtune ui` does not serve this part of MLflow")
        elif scope["path"].endswith(CREATE_EXPERIMENT_PATH):
            await self._create_experiment(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    def _is_own_address(self, headers: dict[str, str]) -> bool:
        """Whether the request names this server as its host and, if it has an origin, as its origin."""
        origin = headers.get("origin")
        return headers.get("host") in self._hosts and (
            origin is None or origin.removeprefix("http://") in self._hosts
        )

    def _has_token(self, headers: dict[str, str]) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    async def _set_cookie(self, scope: Message, send: Send) -> None:
        """Keep the token in a cookie and lead the browser to the address without it."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        # Always the root: an address such as //host/?token= would lead to another server.
        location = f"/?{rest}" if rest else "/"
        cookie = f"{self._cookie_name}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        headers = [("content-type", "text/html; charset=utf-8"), ("set-cookie", cookie)]
        headers += [("cache-control", "no-store"), ("referrer-policy", "no-referrer")]
        await _send(send, 200, headers, _build_entry_page(location).encode())

    async def _create_experiment(self, scope: Message, receive: Receive, send: Send) -> None:
        """Create an experiment below the one artifact root; a location that the request names is refused."""
        body = await _read_body(receive, MAX_CHECKED_BODY_BYTES)
        if body is None or not _is_without_location(body):
            message = "an experiment keeps its artifacts below the root of `memtune ui`: name no location"
            await _refuse(send, 400, "INVALID_PARAMETER_VALUE", message)
            return
        await self._application(scope, _replay(body, receive), send)


def _build_entry_page(location: str) -> str:
    """A page that leads a browser on to a location on this server, and to the place that the address named.

    Before, it stores what the pages need, and keeps what the browser has stored already; see
    `compatibility.BROWSER_SETTINGS`.
    """
    settings = "".join(
        f"localStorage.getItem({json.dumps(name)}) ?? "
        f"localStorage.setItem({json.dumps(name)}, {json.dumps(value)});"
        for name, value in BROWSER_SETTINGS.items()
    )
    # "<" would end the script; urlencode has left none in the location.
    target = json.dumps(location).replace("<", "\\u003c")
    script = f"{settings}location.replace({target} + (location.hash || {json.dumps(START_FRAGMENT)}));"
    return (
        "<!doctype html><title>memtune ui</title>"
        f'<script>{script}</script><noscript><a href="{escape(location)}">continue</a></noscript>'
    )


async def _read_body(receive: Receive, limit: int) -> bytes | None:
    """The body of a request, or None where it is longer than `limit` bytes or breaks off."""
    body, is_open = b"", True
    while is_open:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        is_open = message.get("more_body", False)
        if len(body) > limit:
            return None
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read already, then what comes after it."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay_body() -> Message:
        return pending.pop() if pending else await receive()

    return replay_body


def _is_without_location(body: bytes) -> bool:
    """Whether a request to create an experiment is readable and leaves the artifact location open."""
    try:
        request = json.loads(body)
        if isinstance(request, str):  # MLflow accepts JSON that an old client encoded twice
            request = json.loads(request)
    except (ValueError, RecursionError):
        return False
    # Protocol buffers accept both spellings of a field.
    return isinstance(request, dict) and not any(
        request.get(field) for field in ("artifact_location", "artifactLocation")
    )


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    """Answer with an error in the form that MLflow's client reads."""
    content = json.dumps({"error_code": code, "message": message}).encode()
    await _send(send, status, [("content-type", "application/json")], content)


async def _send(send: Send, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    encoded.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": content})


def main() -> None:
    """Serve MLflow's application on the socket and with the token that the environment names."""
    # Imported here: the process that starts the server imports this module too, and serves nothing.
    import uvicorn

    token = os.environ.pop(TOKEN_VARIABLE)
    listening = socket.socket(fileno=int(os.environ.pop(LISTENING_FD_VARIABLE)))
    owner_only = OwnerOnly(load_server_application(), token, listening.getsockname()[1])
    # No access log: it would hold the token of the first address.
    config = uvicorn.Config(
        owner_only,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
    )
    uvicorn.Server(config).run(sockets=[listening])
