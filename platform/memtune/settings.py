"""Locations of corpora, studies, trial records and models, read from the environment once."""

import getpass
import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from memtune.arguments import check_type
from memtune.errors import StorageError
from memtune.storage.uris import JOURNAL_PREFIX, make_path_uri, make_sqlite_uri, refuse_credentials
from memtune.values import UserValue

log = logging.getLogger(__name__)

LOCATION_VARIABLES = ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI")
"""The environment variables of locations that may be in shared storage or on a server."""
URI_VARIABLES = (
    *LOCATION_VARIABLES,
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "MLFLOW_S3_ENDPOINT_URL",
    "MLFLOW_REGISTRY_URI",
)
"""Every environment variable with a URL that memtune or its libraries read; none may hold credentials."""

USER_VARIABLE = "MEMTUNE_USER"
"""The environment variable that holds who submitted the job in which a process runs."""

SINGLE_TRIALS_FOLDER = "single"
"""In the folder of studies: what trials without a study have there."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


class Settings(UserValue):
    """The locations that a command reads and writes. Every URI may be local or shared.

    A home belongs to one user: a new one has mode 0700. Users share results through servers and buckets.

    | field | environment | default |
    |---|---|---|
    | home | MEMTUNE_HOME | `.memtune` in the working folder |
    | corpus_store | MEMTUNE_STORE | `<home>/corpora` |
    | studies_folder: checkpoints of trials | MEMTUNE_STUDIES | `<home>/studies` |
    | study_database: Optuna's storage | MEMTUNE_PROPOSALS | `journal:///<home>/proposals.log` |
    | tracking_uri: MLflow | MLFLOW_TRACKING_URI | `sqlite:///<home>/mlflow.db` |
    """

    home: Path
    corpus_store: str
    studies_folder: str
    study_database: str
    tracking_uri: str

    @classmethod
    def from_environment(cls, home: str | Path | None = None) -> "Settings":
        """Settings from the environment; relative paths become absolute from the working folder.

        Raises StorageError when the home folder cannot be created, ConfigurationError for a URI with
        credentials, and ArgumentError for a home that is not a path.
        """
        if home is not None:
            check_type("home", home, (str, Path), 'a folder, such as ".memtune"')
        for name in URI_VARIABLES:
            refuse_credentials(name, os.environ.get(name, ""))
        folder = Path(home or os.environ.get("MEMTUNE_HOME") or ".memtune").expanduser().absolute()
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the folder {folder}: {error.strerror}; "
                "set MEMTUNE_HOME to a folder that can be written"
            ) from error
        _warn_of_open_home(folder)
        return cls(
            home=folder,
            corpus_store=_make_absolute(os.environ.get("MEMTUNE_STORE") or str(folder / "corpora")),
            studies_folder=_make_absolute(os.environ.get("MEMTUNE_STUDIES") or str(folder / "studies")),
            study_database=os.environ.get("MEMTUNE_PROPOSALS")
            or make_path_uri(f"{JOURNAL_PREFIX}/", folder / "proposals.log"),
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or make_sqlite_uri(folder),
        )

    @classmethod
    def resolve(cls, settings: "Settings | None") -> "Settings":
        """The settings that a function was given; without any, those of the environment.

        Raises ArgumentError for anything else.
        """
        if settings is None:
            return cls.from_environment()
        check_type("settings", settings, cls, 'memtune.Settings, such as Settings.from_environment("HOME")')
        return settings

    def name_checkpoint_root(self, study: str) -> str:
        """The folder of the checkpoints of a study's trials."""
        return f"{self.studies_folder}/{study}/checkpoints"


def find_user() -> str:
    """The name of who submitted this job, else of who runs this process; "" where the system has none."""
    with suppress(KeyError, OSError):
        return os.environ.get(USER_VARIABLE) or getpass.getuser()
    return ""


@cache
def _warn_of_open_home(folder: Path) -> None:
    """Name, once, a home with records that other users may enter, as earlier versions made them."""
    state = folder.stat()
    if state.st_uid == os.getuid() and state.st_mode & 0o077 and (folder / "mlflow.db").exists():
        text = "other users can read and lock the files of %s (mode %#o); to close it: chmod 700 %s"
        log.warning(text, folder, state.st_mode & 0o777, folder)


def bypass_proxy_for_loopback() -> None:
    """Have this process and its children reach servers of this machine directly: no proxy reaches them.

    MLflow's and Ray's clients send every request that NO_PROXY does not exempt to the environment's proxy.
    """
    if getproxies_environment():
        name = "no_proxy" if os.environ.get("no_proxy") else "NO_PROXY"  # the first hides the second
        exempt = [host.strip() for host in os.environ.get(name, "").split(",") if host.strip()]
        os.environ[name] = ",".join([*exempt, *(host for host in LOOPBACK_HOSTS if host not in exempt)])


def explain_proxy(url: str) -> str:
    """The end of an error about a server: how to reach it without the environment's proxy; "" without one."""
    parts = urlsplit(url)
    if parts.scheme not in getproxies_environment() or proxy_bypass(parts.hostname or ""):
        return ""
    return (
        f"; the request went to the proxy of {parts.scheme.upper()}_PROXY: where the proxy does not reach "
        f"the server, add {parts.hostname} to NO_PROXY"
    )


def _make_absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())
