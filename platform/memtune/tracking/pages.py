"""MLflow's own pages over the tracking store: the command that serves them, and links into them.

A link's view (columns, order, filter) is kept as a tag of the experiment, in the form that the pages of
MLflow 3.17 read; that form is not documented.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn
from urllib.parse import quote

from memtune.errors import TrackingError
from memtune.objective import Objective, better
from memtune.tracking.commands import ROLE, STUDY
from memtune.tracking.connection import connect, is_server, sqlite_path, told_plainly
from memtune.tracking.runs import best_metric

__all__ = ["comparison_link", "experiment_link", "serve_pages", "ui_command", "ui_environment"]

OLD_IMPORT = "starlette.middleware.wsgi is deprecated"
COLUMNS = ("train_perplexity", "tokens_per_second", "seconds")


@contextmanager
def serve_pages(tracking_uri: str, port: int = 5000) -> Iterator["subprocess.Popen[bytes]"]:
    """MLflow's pages over a store in a file, on http://127.0.0.1:<port>, while the context lasts.

    The server and its workers end with it, also when this process is told to terminate. Raises TrackingError
    for a server's URI, for a store that does not exist yet, and for a port that is taken.
    """
    command = ui_command(tracking_uri, port)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise TrackingError(
                f"port {port} cannot be served: {error.strerror}; another one: memtune ui --port {port + 1}"
            ) from None
    server = subprocess.Popen(command, env=ui_environment(), start_new_session=True)
    terminated = signal.signal(signal.SIGTERM, _interrupted)
    try:
        yield server
    finally:
        signal.signal(signal.SIGTERM, terminated)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def ui_command(tracking_uri: str, port: int) -> list[str]:
    """The command that serves MLflow's pages over a store in a file, on http://127.0.0.1:<port>.

    Raises TrackingError for a server's URI: its pages are already there.
    """
    database = sqlite_path(tracking_uri)
    if database is None:
        way_out = f"open {tracking_uri}" if is_server(tracking_uri) else "start `mlflow server` beside it"
        raise TrackingError(f"{tracking_uri} is not a file that memtune can serve; {way_out}")
    if not database.is_file():
        raise TrackingError(f"nothing was recorded in {database} yet; run a search or a training first")
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", tracking_uri]
    command += ["--artifacts-destination", str(database.parent / "artifacts")]
    pages = ",".join(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost"))
    command += ["--cors-allowed-origins", pages]  # left out, MLflow advises to listen on every network
    return [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]


def ui_environment() -> dict[str, str]:
    """This one, without telemetry, the server's job workers, and a warning about its own imports."""
    quiet = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), f"ignore:{OLD_IMPORT}"]))
    settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return {**os.environ, **settings, "PYTHONWARNINGS": quiet}


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def experiment_link(
    tracking_uri: str,
    corpus: str,
    parameters: Sequence[str],
    study: str | None = None,
    base: str | None = None,
    objective: Objective = "perplexity",
) -> str:
    """A link to the table of a corpus's trials, best first; columns are the main metrics and `parameters`.

    The view is stored on the experiment. `base` is the address of the pages when the store is a file.
    """
    client = connect(tracking_uri)
    with told_plainly(tracking_uri):
        experiment_id = _experiment_id(tracking_uri, corpus)
        name = f"memtune-{study}" if study else "memtune"
        state = json.dumps(view_state(parameters, study, objective))
        client.set_experiment_tag(experiment_id, f"mlflow.sharedViewState.{name}", state)
    query = f"workflowType=machine_learning&viewStateShareKey={quote(name)}"
    return f"{_base(tracking_uri, base)}/#/experiments/{experiment_id}/runs?{query}"


def view_state(parameters: Sequence[str], study: str | None, objective: Objective) -> Mapping[str, object]:
    """The table of trials alone (their study's run would hide them), ordered by the best validation."""
    conditions = [f"tags.`{ROLE}` = 'trial'", *([f"tags.`{STUDY}` = '{study}'"] if study else [])]
    best = best_metric(objective)
    metrics = [f"metrics.`{name}`" for name in (best, f"valid_{objective}", *COLUMNS)]
    return {
        "searchFilter": " AND ".join(conditions),
        "orderByKey": f"metrics.`{best}`",
        "orderByAsc": better(objective) == "lower",
        "selectedColumns": [*metrics, *(f"params.`{name}`" for name in parameters)],
    }


def comparison_link(tracking_uri: str, corpus: str, run_ids: Sequence[str], base: str | None = None) -> str:
    """A link to the page that compares these runs; `base` as in `experiment_link`."""
    with told_plainly(tracking_uri):
        experiment_id = _experiment_id(tracking_uri, corpus)
    runs, experiments = (quote(json.dumps(ids)) for ids in (list(run_ids), [experiment_id]))
    query = f"runs={runs}&experiments={experiments}&workflowType=machine_learning"
    return f"{_base(tracking_uri, base)}/#/compare-runs?{query}"


def _experiment_id(tracking_uri: str, corpus: str) -> str:
    experiment = connect(tracking_uri).get_experiment_by_name(corpus)
    if experiment is None:
        raise TrackingError(f'nothing was recorded for corpus "{corpus}" in {tracking_uri}')
    return str(experiment.experiment_id)


def _base(tracking_uri: str, base: str | None) -> str:
    return (base or (tracking_uri if is_server(tracking_uri) else "http://127.0.0.1:5000")).rstrip("/")
