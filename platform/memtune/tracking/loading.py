"""A registered model, from the registry alone: downloaded to a cache, verified, ready to be loaded."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.errors import TrackingError
from memtune.tracking import champions
from memtune.tracking.card import CARD, Card, card_digest, read_card, read_vocabulary
from memtune.tracking.champions import Champion
from memtune.tracking.connection import connect, told_plainly

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

__all__ = ["RegisteredModel", "load_registered"]


@dataclass(frozen=True)
class RegisteredModel:
    """A version on this machine: `folder` holds model.safetensors and model.json, whole and unaltered."""

    folder: Path
    champion: Champion
    card: Card
    vocabulary: tuple[str, ...]


def load_registered(tracking_uri: str, uri: str, cache: Path) -> RegisteredModel:
    """The model behind `models:/ptb@champion` or `models:/ptb/3`, downloaded into `cache` unless it is there.

    Every file is checked against the digests in the model's card, and the card against the registry. Raises
    TrackingError for an unknown name, an altered file or a store that does not answer.
    """
    client = connect(tracking_uri)
    with told_plainly(tracking_uri):
        champion = champions.find(client, uri)
        folder = cache / champion.content
        if not folder.is_dir():
            _download(client, champion, folder)
    return RegisteredModel(folder, champion, _verified(folder, champion), read_vocabulary(folder))


def _verified(folder: Path, champion: Champion) -> Card:
    """The card of a package, after checking it against the registry and the other files against it."""
    card = read_card(folder)
    if card_digest(folder) != champion.content:
        raise TrackingError(f"{folder / CARD} is not the card that {champion.uri} was registered with")
    return card


def _download(client: "MlflowClient", champion: Champion, folder: Path) -> None:
    """Fetch the package beside `folder`, and give it that name once it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fetched = Path(client.download_artifacts(champion.run_id, champion.path, temporary))
        _verified(fetched, champion)
        try:
            os.replace(fetched, folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise
