"""Figures of a registered model on a split that no choice was made by, recorded with the version."""

from collections.abc import Mapping

from memtune.tracking.champions import Champion
from memtune.tracking.connection import connect, told_plainly

__all__ = ["record_evaluation"]


def record_evaluation(
    tracking_uri: str, champion: Champion, split: str, metrics: Mapping[str, float]
) -> None:
    """Note a split's figures on the version as tags, `test_perplexity` and so on, and on its run as metrics.

    The same model has the same figures, so a second time changes nothing. Raises TrackingError when the store
    does not answer.
    """
    client = connect(tracking_uri)
    with told_plainly(tracking_uri):
        known = client.get_model_version(champion.corpus, str(champion.version)).tags
        for name, value in metrics.items():
            client.set_model_version_tag(
                champion.corpus, str(champion.version), f"{split}_{name}", str(value)
            )
            if f"{split}_{name}" not in known:
                client.log_metric(champion.run_id, f"{split}_{name}", float(value))
