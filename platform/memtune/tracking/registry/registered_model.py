"""Registered models: downloaded to a cache, verified against the registry, ready to be loaded."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memtune.errors import TrackingError
from memtune.plugins import PluginSource, run_with_sources
from memtune.storage.local_files import open_scratch_folder
from memtune.tracking.home_artifacts import find_local_folder
from memtune.tracking.mlflow_connection import connect, translate_mlflow_errors
from memtune.tracking.registry import model_versions
from memtune.tracking.registry.model_package import (
    CARD_FILE,
    MAX_TEXT_BYTES,
    PACKAGE_FILES,
    WEIGHTS_FILE,
    ModelCard,
    check_package,
    digest_card,
    read_sources,
    read_text_rules,
    read_vocabulary,
)
from memtune.tracking.registry.model_versions import RegisteredVersion
from memtune.tracking.registry.text_rules import TextRules

if TYPE_CHECKING:
    from mlflow.entities import FileInfo
    from mlflow.tracking import MlflowClient

T = TypeVar("T")


@dataclass(frozen=True)
class DownloadedModel:
    """A version on this machine; the files in `folder` match their digests."""

    folder: Path
    version: RegisteredVersion
    card: ModelCard
    vocabulary: tuple[str, ...]
    rules: TextRules
    """How text becomes tokens of the vocabulary."""
    sources: tuple[PluginSource, ...] = ()
    """The sources of what is not built in; text, which is executed with consent only."""

    def run_with_sources(self, action: Callable[[], T], trust_code: bool) -> T:
        """The result of an action that builds the model, with the package's sources if the user trusts them.

        Raises PluginError that names the file and its digest without `trust_code`.
        """
        by_digest = {source.digest: source for source in self.sources}
        return run_with_sources(action, by_digest.get, self.version.uri, trust_code)


def load_registered(tracking_uri: str, uri: str, cache: Path) -> DownloadedModel:
    """The model behind `models:/ptb@champion` or `models:/ptb/3`, downloaded into `cache` if it is not there.

    Every file is checked against the digests in the model's card, and the card against the registry. Raises
    TrackingError for an unknown name, an altered file or a store that does not answer.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        version = model_versions.find_version(client, uri)
        folder = cache / version.content
        if not folder.is_dir():
            _download(client, tracking_uri, version, folder)
    card = _verify_package(folder, version)
    vocabulary, rules = read_vocabulary(folder), read_text_rules(folder)
    return DownloadedModel(folder, version, card, vocabulary, rules, read_sources(folder))


def _verify_package(folder: Path, version: RegisteredVersion) -> ModelCard:
    """The card of a package, after checking it against the registry and the other files against the card."""
    card = check_package(folder)
    if digest_card(folder) != version.content:
        raise TrackingError(f"{folder / CARD_FILE} is not the card that {version.uri} was registered with")
    return card


def _download(client: "MlflowClient", tracking_uri: str, version: RegisteredVersion, folder: Path) -> None:
    """Download the package next to `folder`, verify it, and rename it to `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(folder.parent) as temporary:
        fetched = _fetch(client, tracking_uri, version, temporary / "package")
        _verify_package(fetched, version)
        try:
            os.replace(fetched, folder)
        except OSError:
            if not folder.is_dir():  # another process downloaded the same package first
                raise


def _fetch(client: "MlflowClient", tracking_uri: str, version: RegisteredVersion, folder: Path) -> Path:
    """Download the files of a version into a new folder; returns where they are.

    Raises TrackingError before copying what is not a package: a device or a pipe would never end. MLflow
    follows links in a local folder, so those are checked here; elsewhere a listing has to do.
    """
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.artifacts import download_artifacts

    folder.mkdir()
    if version.model_id is not None:
        location = client.get_logged_model(version.model_id).artifact_location
        local = find_local_folder(tracking_uri, location)
    elif version.path is not None:
        location = client.get_run(version.run_id).info.artifact_uri
        run_folder = find_local_folder(tracking_uri, location)
        local = run_folder and run_folder / version.path
    else:
        raise TrackingError(f"{version.uri} has neither the tag model_id nor path; register the model again")
    if local is not None:
        check_package(local)
    else:
        _check_listing(client, version)
    if version.path is not None and version.model_id is None:
        return Path(client.download_artifacts(version.run_id, version.path, str(folder)))
    return Path(download_artifacts(artifact_uri=location, dst_path=str(folder), tracking_uri=tracking_uri))


def _check_listing(client: "MlflowClient", version: RegisteredVersion) -> None:
    """Raise TrackingError for files on a server that are not those of a package."""
    files: Sequence[FileInfo] = (
        client.list_artifacts(version.run_id, version.path)
        if version.model_id is None
        else client.list_logged_model_artifacts(version.model_id)
    )
    for file in files:
        name = file.path.rpartition("/")[2] if version.model_id is None else file.path
        is_too_large = name != WEIGHTS_FILE and (file.file_size or 0) > MAX_TEXT_BYTES
        if file.is_dir or name not in PACKAGE_FILES or is_too_large:
            raise TrackingError(f"{version.uri} holds {name}, which is not part of a registered model")
