"""Access control of MLflow's pages: accepted and refused requests."""

import asyncio
import json

import pytest

from memtune.tracking.ui_server import OwnerOnly

TOKEN = "t" * 43
OWN = {"host": "127.0.0.1:5000"}
CREDENTIALS = {**OWN, "authorization": f"Bearer {TOKEN}"}


async def answer_with_body(scope, receive, send):
    """An application that answers 200 and the body of the request."""
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message.get("body", b"")})


def request(path="/api/2.0/mlflow/runs/search", headers=CREDENTIALS, body=b"", method="POST", query=""):
    """(status, headers, body) of the answer to one request."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(OwnerOnly(answer_with_body, TOKEN, 5000)(scope, receive, send))
    named = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], named, sent[1]["body"]


def test_a_client_with_the_token_is_answered():
    assert request()[0] == 200


@pytest.mark.parametrize(
    "credentials",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"cookie": "memtune-ui-5000=wrong"},
        {"cookie": f"memtune-ui-5001={TOKEN}"},
        {"cookie": "=;;"},
    ],
    ids=[
        "nothing",
        "another token",
        "another scheme",
        "another cookie",
        "another port's cookie",
        "malformed",
    ],
)
def test_a_request_without_the_token_is_refused(credentials):
    status, _, body = request(headers={**OWN, **credentials})
    assert status == 401
    assert (
        "open the address with the token that `memtune ui` prints, or set MLFLOW_TRACKING_TOKEN"
        in (json.loads(body)["message"])
    )


@pytest.mark.parametrize("path", ["/", "/static-files/x.js", "/get-artifact", "/version", "/health/../api"])
def test_no_page_is_public(path):
    assert request(path, headers=OWN, method="GET")[0] == 401


def test_the_health_check_is_public():
    assert request("/health", headers=OWN, method="GET")[0] == 200


@pytest.mark.parametrize(
    "host", ["attacker.example:5000", "127.0.0.1.nip.io:5000", "127.0.0.1:5001", "192.168.0.1:5000", ""]
)
def test_another_host_name_is_refused_although_the_token_is_right(host):
    """A page whose name resolves to this machine (DNS rebinding) carries its own name here."""
    assert request(headers={**CREDENTIALS, "host": host})[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:6000", "https://127.0.0.1:5000", "null", "http://x.example"]
)
def test_a_page_of_another_origin_is_refused_although_it_has_the_cookie(origin):
    headers = {**OWN, "cookie": f"memtune-ui-5000={TOKEN}", "origin": origin}
    assert request(headers=headers)[0] == 403


def test_the_address_with_the_token_sets_a_cookie_and_leads_to_the_page():
    status, headers, page = request("/", OWN, method="GET", query=f"a=1&token={TOKEN}")
    assert status == 200
    assert b'location.replace("/?a=1" + ' in page
    assert headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    cookie = headers["set-cookie"].partition(";")[0]
    assert request("/", {**OWN, "cookie": f"other=1; {cookie}"}, method="GET")[0] == 200


def test_the_address_with_the_token_leads_to_no_other_server():
    _, _, page = request("//attacker.example/", OWN, method="GET", query=f"token={TOKEN}")
    assert b'location.replace("/" + ' in page


def test_the_entry_page_runs_no_script_of_the_address():
    _, _, page = request("/", OWN, method="GET", query=f"a=</script><script>evil()&token={TOKEN}")
    assert page.count(b"<script>") == 1
    assert TOKEN.encode() not in page


@pytest.mark.parametrize("prefix", ["/api/2.0", "/ajax-api/2.0"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "e", "artifact_location": "file:///etc"}',
        b'{"name": "e", "artifactLocation": "file:///etc"}',
        json.dumps('{"name": "e", "artifact_location": "file:///etc"}').encode(),
        b"not json",
        b"[1]",
        b" " * 1_000_001,
    ],
    ids=["a location", "in camel case", "encoded twice", "unreadable", "not an object", "too long"],
)
def test_an_experiment_with_a_location_is_refused(prefix, body):
    assert request(f"{prefix}/mlflow/experiments/create", body=body)[0] == 400


def test_an_experiment_without_a_location_reaches_mlflow_unchanged():
    body = b'{"name": "e", "artifact_location": ""}'
    assert request("/api/2.0/mlflow/experiments/create", body=body)[::2] == (200, body)


@pytest.mark.parametrize(
    "path",
    ["/ajax-api/3.0/mlflow/assistant/message", "/gateway/x/mlflow/invocations", "/api/2.0/mlflow/webhooks"],
)
def test_parts_that_run_commands_or_call_other_servers_are_not_served(path):
    assert request(path)[0] == 404
