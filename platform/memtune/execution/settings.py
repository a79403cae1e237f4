"""Where things live: corpora, studies, trials' records, models. One value, read from the environment once."""

import os
from pathlib import Path

from memtune.errors import StorageError
from memtune.execution.passwords import refuse_password
from memtune.values import Value

__all__ = ["PLACES", "Settings"]

PLACES = ("MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_PROPOSALS", "MLFLOW_TRACKING_URI")
"""The environment variables of what may lie in shared storage or on a server."""


class Settings(Value):
    """The places a command reads and writes. Every URI may be local or shared.

    | field | environment | default |
    |---|---|---|
    | home | MEMTUNE_HOME | `.memtune` in the working folder |
    | store: corpora | MEMTUNE_STORE | `<home>/corpora` |
    | studies: trials' checkpoints | MEMTUNE_STUDIES | `<home>/studies` |
    | proposals: Optuna's storage | MEMTUNE_PROPOSALS | `journal:///<home>/proposals.log` |
    | tracking: MLflow | MLFLOW_TRACKING_URI | `sqlite:///<home>/mlflow.db` |
    """

    home: Path
    store: str
    studies: str
    proposals: str
    tracking: str

    @classmethod
    def read(cls, home: str | Path | None = None) -> "Settings":
        """Settings from the environment, relative paths made absolute from the working folder.

        Raises StorageError when the home folder cannot be made and ConfigurationError for a place with a
        password.
        """
        for name in PLACES:
            refuse_password(name, os.environ.get(name, ""))
        folder = Path(home or os.environ.get("MEMTUNE_HOME") or ".memtune").expanduser().absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the folder {folder}: {error.strerror}; "
                "set MEMTUNE_HOME to a folder that can be written"
            ) from error
        return cls(
            home=folder,
            store=_absolute(os.environ.get("MEMTUNE_STORE") or str(folder / "corpora")),
            studies=_absolute(os.environ.get("MEMTUNE_STUDIES") or str(folder / "studies")),
            proposals=os.environ.get("MEMTUNE_PROPOSALS") or f"journal:///{folder / 'proposals.log'}",
            tracking=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}",
        )


def _absolute(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())
