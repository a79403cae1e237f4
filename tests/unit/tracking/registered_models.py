"""Models that tests register, and what the registry has of them."""

from memtune.objective import Objective
from memtune.tracking import ModelResult
from memtune.tracking.home_artifacts import find_local_folder

__all__ = ["VOCABULARY", "find_package", "make_result", "read_versions_by_alias"]


VOCABULARY = ["<eos>", "<unk>", "the", "cat", "sleeps"]


def make_result(loss, **changes):
    given = {
        "corpus": "ptb",
        "corpus_digest": "d" * 64,
        "label": "stream",
        "objective": Objective.PERPLEXITY,
        "cost": loss,
        "configuration": {"model": {"family": "lstm"}, "seed": 3},
        "metrics": {"valid_loss": loss},
        "trial": "t1",
        "study": "s1",
        "seed": 3,
    }
    return ModelResult.model_validate(given | changes)


def read_versions_by_alias(client):
    return {alias: int(version) for alias, version in client.get_registered_model("ptb").aliases.items()}


def find_package(client, tracking_uri, champion):
    """The folder in which the store keeps a version's package."""
    return find_local_folder(tracking_uri, client.get_logged_model(champion.model_id).artifact_location)
