"""Accesses to test splits: each is one entry in the history of a metric, so none is lost or counted twice.

An access with a recorded model is on its run. Others are on a run of their own, one for each corpus.
"""

import time
from typing import TYPE_CHECKING

from memtune.tracking.mlflow_connection import connect, ensure_experiment, translate_mlflow_errors
from memtune.tracking.runs import run_store
from memtune.tracking.runs.run_commands import ROLE_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

TEST_ACCESSES = "test_accesses"
"""The metric, and the role of the run for accesses without a recorded model."""


def record_test_access(tracking_uri: str, corpus: str, run_id: str | None = None) -> None:
    """Record one access to a test split of a corpus, with the run of the model that reads it.

    Raises TrackingError when the store does not answer.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        run_id = run_id or _find_own_run(client, tracking_uri, corpus)
        count = len(client.get_metric_history(run_id, TEST_ACCESSES)) + 1
        client.log_metric(run_id, TEST_ACCESSES, count, round(1000 * time.time()), count)


def count_test_accesses(tracking_uri: str, corpus: str) -> int:
    """The accesses to test splits by models of a corpus."""
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        experiment = client.get_experiment_by_name(corpus)
        if experiment is None:
            return 0
        page = client.search_runs(
            [experiment.experiment_id], f"metrics.{TEST_ACCESSES} > 0", max_results=50_000
        )
        return sum(count_run_accesses(client, run) for run in page)


def count_run_accesses(client: "MlflowClient", run: "Run") -> int:
    """The accesses to test splits by the model of a run."""
    if TEST_ACCESSES not in run.data.metrics:
        return 0
    return len(client.get_metric_history(run.info.run_id, TEST_ACCESSES))


def _find_own_run(client: "MlflowClient", tracking_uri: str, corpus: str) -> str:
    """The corpus's run for accesses without a recorded model."""
    experiment, tags = ensure_experiment(client, tracking_uri, corpus), {ROLE_TAG: TEST_ACCESSES}
    found = run_store.find_runs(client, experiment, tags)
    run = (
        found[0] if found else client.create_run(experiment, tags=tags, run_name="accesses to the test split")
    )
    return str(run.info.run_id)
