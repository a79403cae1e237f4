"""Figures of a registered model on a split that no choice was made by, recorded with the version."""

from collections.abc import Mapping

from memtune.tracking.champions import Champion
from memtune.tracking.connection import connect, told_plainly

__all__ = ["record_evaluation"]


def record_evaluation(tracking_uri: str, champion: Champion, name: str, metrics: Mapping[str, float]) -> None:
    """Note an evaluation's figures on the version as tags, and on its run as metrics.

    `name` is the split's, with whatever else the figures depend on: `test` gives `test_perplexity` and so on.
    The same model has the same figures, so a second time changes nothing. Raises TrackingError when the store
    does not answer.
    """
    client = connect(tracking_uri)
    with told_plainly(tracking_uri):
        known = client.get_model_version(champion.corpus, str(champion.version)).tags
        for figure, value in metrics.items():
            client.set_model_version_tag(
                champion.corpus, str(champion.version), f"{name}_{figure}", str(value)
            )
            if f"{name}_{figure}" not in known:
                client.log_metric(champion.run_id, f"{name}_{figure}", float(value))
