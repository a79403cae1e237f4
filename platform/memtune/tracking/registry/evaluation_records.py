"""Figures of a model on the test split, recorded with its run and its version."""

from collections.abc import Mapping

from memtune.tracking.mlflow_connection import connect, translate_mlflow_errors
from memtune.tracking.registry.model_versions import RegisteredVersion

__all__ = ["record_evaluation"]


def record_evaluation(
    tracking_uri: str,
    run_id: str,
    name: str,
    metrics: Mapping[str, float],
    version: RegisteredVersion | None = None,
) -> None:
    """Record an evaluation's figures on the model's run as metrics, and on its version as tags.

    `name` is the split, with everything else that the figures depend on: `test` gives `test_perplexity`.
    The same model has the same figures, so a repeated call changes nothing. Raises TrackingError when the
    store does not answer.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        known = client.get_run(run_id).data.metrics
        for figure, value in metrics.items():
            if version is not None:
                place = version.corpus, str(version.version)
                client.set_model_version_tag(*place, f"{name}_{figure}", str(value))
            if f"{name}_{figure}" not in known:
                client.log_metric(run_id, f"{name}_{figure}", float(value))
