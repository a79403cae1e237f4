"""Models that tests register, and what the registry has of them."""

from pathlib import Path

from memtune.tracking import (
    ModelResult,
)

__all__ = ["VOCABULARY", "find_package", "make_result", "read_versions_by_alias"]


VOCABULARY = ["<eos>", "<unk>", "the", "cat", "sleeps"]


def make_result(loss, **changes):
    given = {
        "corpus": "ptb",
        "corpus_digest": "d" * 64,
        "label": "stream",
        "objective": "perplexity",
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


def find_package(client, champion):
    """The folder in which the store keeps a version's package."""
    artifacts = client.get_run(champion.run_id).info.artifact_uri.removeprefix("file://")
    return Path(artifacts, champion.path)
