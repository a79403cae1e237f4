"""What a driver learns from the API of Kubernetes, whose place an HTTPS server takes."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.cluster, pytest.mark.long]

MANIFEST = Path(__file__).parents[2] / "clusters" / "kubernetes" / "raycluster.yaml"
READ_CONFIGS = """
import json, os
from memtune.ray_backend.compatibility import read_autoscaling_config
found = {}
for namespace in ("studies", "others"):
    os.environ["RAY_CLUSTER_NAMESPACE"] = namespace
    found[namespace] = read_autoscaling_config("10.0.0.1:6379")
print(json.dumps(found))
"""


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=api"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command, *names], capture_output=True, check=True)
    return certificate, key


@contextmanager
def serve_api(answers: dict[str, Any], folder: Path) -> Iterator[dict[str, str]]:
    """Serve JSON by path, else 403, during the block; yields the variables of a container that finds it."""

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path)
            self.send_response(403 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    certificate, key = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
            "RAY_CLUSTER_NAME": "memtune",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT_HTTPS": str(server.server_port),
            "RAY_KUBERAY_CA_CERT_PATH": str(certificate),
            "RAY_KUBERAY_CLIENT_CERT_PATH": str(certificate),
            "RAY_KUBERAY_CLIENT_KEY_PATH": str(key),
        }
        server.shutdown()


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The autoscaling files that memtune finds on heads in two namespaces, one of which the API refuses."""
    cluster = yaml.safe_load(MANIFEST.read_text())
    cluster["metadata"]["namespace"] = "studies"
    answers = {"/apis/ray.io/v1/namespaces/studies/rayclusters/memtune": cluster}
    with serve_api(answers, tmp_path_factory.mktemp("api")) as environment:
        done = subprocess.run(
            [sys.executable, "-c", READ_CONFIGS],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_driver_on_kubernetes_knows_the_nodes_that_may_be_added(configs: dict[str, Any]) -> None:
    assert configs["studies"]["max_workers"] == 12
    assert configs["studies"]["available_node_types"]["gpu"]["resources"]["GPU"] == 1


def test_a_cluster_whose_head_may_not_read_it_counts_as_one_that_does_not_grow(
    configs: dict[str, Any],
) -> None:
    assert configs["others"] is None
