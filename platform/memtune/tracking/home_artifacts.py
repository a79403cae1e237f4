"""Artifacts of a store in a file: next to the file and addressed relative to it, so that a home can be moved.

The store holds `mlflow-artifacts:/<corpus>/...`, as that of a server does. `memtune ui` serves these from the
folder `artifacts` next to the file; here they are read and written in that folder directly.
"""

import sqlite3
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from memtune.errors import TrackingError
from memtune.storage.uris import find_sqlite_path
from memtune.tracking.compatibility import LOCATION_COLUMNS, open_repository_of

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

SCHEME = "mlflow-artifacts"
SERVER_SCHEMES = (SCHEME, "http", "https")
"""The schemes of locations whose files a server sends."""
ARTIFACTS_FOLDER = "artifacts"


def make_relative_location(corpus: str) -> str:
    """The artifact location of a corpus's experiment in a store in a file."""
    return f"{SCHEME}:/{quote(corpus)}"


def find_local_folder(tracking_uri: str, location: str) -> Path | None:
    """The folder of a location on this machine; None for one on a server or in an object store.

    Raises TrackingError for a location that leads out of the folder of artifacts.
    """
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path))
    database = find_sqlite_path(tracking_uri)
    if parts.scheme != SCHEME or parts.netloc or database is None:
        return None
    relative = PurePosixPath(unquote(parts.path).lstrip("/"))
    if ".." in relative.parts:
        raise TrackingError(
            f"{location} leads out of the folder of artifacts; delete the run or model that has it"
        )
    return database.absolute().parent / ARTIFACTS_FOLDER / relative


def open_repository(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> "ArtifactRepository":
    """MLflow's access to the artifacts of a location on a server: `mlflow-artifacts:`, `http:` and `https:`.

    The signature is that of MLflow's registry of repositories, in which pyproject.toml names this function.
    Raises TrackingError for a server other than the tracking server, before it receives a request.
    """
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.tracking import get_tracking_uri

    store = tracking_uri or get_tracking_uri()
    folder = find_local_folder(store, artifact_uri)
    if folder is None:
        _refuse_other_servers(store, artifact_uri)
    return open_repository_of(folder, artifact_uri, tracking_uri, registry_uri)


def _refuse_other_servers(tracking_uri: str, location: str) -> None:
    """Raise TrackingError for a location on another host.

    MLflow sends the user and the password of the tracking server to each server that a location names, and
    whoever may create an experiment or a model chooses its location.
    """
    host, own = urlsplit(location).netloc, urlsplit(tracking_uri).netloc
    if host and host != own:
        raise TrackingError(
            f"{location} is on another server than the tracking store {tracking_uri}, which would receive "
            "your credentials; delete the experiment, run or model that has this location"
        )
    if not host and not own:
        raise TrackingError(f"{location} names no server; delete the experiment, run or model that has it")


def make_locations_relative(database: Path) -> None:
    """Replace absolute locations, as earlier versions stored them, by relative ones.

    Only those of experiments whose folder lies next to the file: a home that was moved, or is about to be.
    """
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)) as connection:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in listed}
        if "experiments" not in tables:
            return
        artifacts = database.absolute().parent / ARTIFACTS_FOLDER
        query = "SELECT experiment_id, name, artifact_location FROM experiments"
        found = connection.execute(f"{query} WHERE artifact_location NOT LIKE '{SCHEME}:%'").fetchall()
        with connection:
            for experiment, name, old in found:
                is_own = old.endswith(f"/{ARTIFACTS_FOLDER}/{quote(name)}") and (artifacts / name).is_dir()
                # MLflow creates experiment 0 with a folder of its own choice, which nothing uses.
                if not is_own and experiment != 0:
                    continue
                new = make_relative_location(name)
                connection.execute(
                    "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (new, experiment)
                )
                for table, column in LOCATION_COLUMNS:
                    if table in tables:
                        # The names are constants.
                        connection.execute(
                            f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                            f"WHERE substr({column}, 1, ?) = ?",
                            (new, len(old) + 1, len(old) + 1, f"{old}/"),
                        )
