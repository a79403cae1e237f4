"""Models that tests register, and what the registry has of them."""

from memtune.objective import Objective
from memtune.tracking import ModelResult, register_if_better
from memtune.tracking.home_artifacts import find_local_folder
from memtune.tracking.registry.text_rules import TextRules

__all__ = ["VOCABULARY", "find_package", "make_result", "read_versions_by_alias", "register_package"]


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


def register_package(tracking_uri, result, model_folder, **options):
    """Offer a model of whole words, which needs no source, to the registry."""
    options = {"rules": TextRules(), "sources": (), **options}
    return register_if_better(tracking_uri, result, model_folder, VOCABULARY, **options)


def read_versions_by_alias(client):
    return {alias: int(version) for alias, version in client.get_registered_model("ptb").aliases.items()}


def find_package(client, tracking_uri, champion):
    """The folder in which the store keeps a version's package."""
    return find_local_folder(tracking_uri, client.get_logged_model(champion.model_id).artifact_location)
