"""Figures of a registered model on the test split, recorded with the version."""

from collections.abc import Mapping

from memtune.tracking.mlflow_connection import connect, translate_mlflow_errors
from memtune.tracking.registry.model_versions import RegisteredVersion

__all__ = ["record_evaluation"]


def record_evaluation(
    tracking_uri: str, version: RegisteredVersion, name: str, metrics: Mapping[str, float]
) -> None:
    """Record an evaluation's figures as tags of the version and as metrics of its run.

    `name` is the split, with everything else that the figures depend on: `test` gives `test_perplexity`.
    The same model has the same figures, so a repeated call changes nothing. Raises TrackingError when the
    store does not answer.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        known = client.get_model_version(version.corpus, str(version.version)).tags
        for figure, value in metrics.items():
            client.set_model_version_tag(version.corpus, str(version.version), f"{name}_{figure}", str(value))
            if f"{name}_{figure}" not in known:
                client.log_metric(version.run_id, f"{name}_{figure}", float(value))
