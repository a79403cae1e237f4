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
from html import escape
from urllib.parse import urlencode

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memtune.tracking.compatibility import BROWSER_SETTINGS, START_FRAGMENT, load_server_application
from memtune.tracking.mlflow_ui import LISTENING_FD_VARIABLE, TOKEN_VARIABLE

MAX_CHECKED_BODY_BYTES = 1_000_000
CREATE_EXPERIMENT_PATH = "/mlflow/experiments/create"
REFUSED_PATH_PARTS = ("/mlflow/assistant", "/gateway/", "/mlflow/webhooks", "/mlflow/gateway")
"""MLflow's assistant runs shell commands, its gateway and webhooks call other servers. memtune uses none."""

GATEWAY_LIST_PATH = "/mlflow/gateway-proxy"
"""The pages of runs ask for the endpoints of a gateway and show a refusal as an error: there are none."""


class OwnerOnly:
    """An ASGI application that passes a request on only if it comes from the token's owner.

    The token comes as `Authorization: Bearer` from clients (MLFLOW_TRACKING_TOKEN), as a cookie from a
    browser, and once as `?token=` in the address, which sets the cookie. `/health` needs no token.
    """

    def __init__(self, application: ASGIApp, token: str, port: int) -> None:
        self._application = application
        self._token = token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._cookie_name = f"memtune-ui-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with 200 (token accepted), 400, 401, 403 or 404."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        elif scope["type"] != "http":  # nothing on MLflow's pages that memtune needs uses websockets
            await send({"type": "websocket.close", "code": 1008})
        elif answer := self._answer(request := Request(scope, receive)):
            await answer(scope, receive, send)
        elif scope["path"].endswith(CREATE_EXPERIMENT_PATH):
            await self._create_experiment(request, send)
        else:
            await self._application(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that does not reach MLflow; None for one that does."""
        path, is_read = request.scope["path"], request.method == "GET"
        if not self._is_own_address(request):
            return _refuse(403, "PERMISSION_DENIED", "this address is not the one that is served")
        if path == "/health":
            return None
        if is_read and self._is_token(request.query_params.get("token", "")):
            return self._set_cookie(request)
        if not self._has_token(request):
            message = "open the address with the token that `memtune ui` prints, or set MLFLOW_TRACKING_TOKEN"
            return _refuse(401, "UNAUTHENTICATED", message)
        if path.endswith(GATEWAY_LIST_PATH) and is_read:
            return JSONResponse({"endpoints": []})
        if any(part in path for part in REFUSED_PATH_PARTS):
            return _refuse(404, "ENDPOINT_NOT_FOUND", "`memtune ui` does not serve this part of MLflow")
        return None

    def _is_own_address(self, request: Request) -> bool:
        """Whether the request names this server as its host and, if it has an origin, as its origin."""
        origin = request.headers.get("origin")
        return request.headers.get("host") in self._hosts and (
            origin is None or origin.removeprefix("http://") in self._hosts
        )

    def _has_token(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer" and self._is_token(bearer)
        return is_bearer or self._is_token(request.cookies.get(self._cookie_name, ""))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    def _set_cookie(self, request: Request) -> Response:
        """Keep the token in a cookie and lead the browser to the address without it."""
        rest = urlencode([each for each in request.query_params.multi_items() if each[0] != "token"])
        # Always the root: an address such as //host/?token= would lead to another server.
        page = _build_entry_page(f"/?{rest}" if rest else "/")
        cookie = f"{self._cookie_name}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        headers = {"set-cookie": cookie, "cache-control": "no-store", "referrer-policy": "no-referrer"}
        return HTMLResponse(page, headers=headers)

    async def _create_experiment(self, request: Request, send: Send) -> None:
        """Create an experiment below the one artifact root; a location that the request names is refused."""
        body = await _read_body(request)
        if body is None or not _is_without_location(body):
            message = "an experiment keeps its artifacts below the root of `memtune ui`: name no location"
            answer: ASGIApp = _refuse(400, "INVALID_PARAMETER_VALUE", message)
        else:
            answer = self._application
        await answer(request.scope, _replay(body or b"", request.receive), send)


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


async def _read_body(request: Request) -> bytes | None:
    """The body of a request, or None where it is longer than MAX_CHECKED_BODY_BYTES or breaks off."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_CHECKED_BODY_BYTES:
                return None
    except ClientDisconnect:
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


def _refuse(status: int, code: str, message: str) -> Response:
    """An error in the form that MLflow's client reads."""
    return JSONResponse({"error_code": code, "message": message}, status)


def main() -> None:
    """Serve MLflow's application on the socket and with the token that the environment names."""
    token = os.environ.pop(TOKEN_VARIABLE)
    listening = socket.socket(fileno=int(os.environ.pop(LISTENING_FD_VARIABLE)))
    owner_only = OwnerOnly(load_server_application(), token, listening.getsockname()[1])
    # No access log: it would hold the token of the first address.
    config = uvicorn.Config(
        owner_only, log_level="warning", access_log=False, server_header=False, lifespan="on"
    )
    uvicorn.Server(config).run(sockets=[listening])
