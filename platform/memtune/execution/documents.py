"""TOML files of trials and studies, read before anything is imported that takes seconds."""

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from memtune.errors import StudyError, did_you_mean

__all__ = ["check_document", "read_toml"]


def check_document(path: Path, needed: Collection[str]) -> None:
    """See what is wrong at first sight: raises StudyError as `read_toml` does, and for a missing name."""
    document = read_toml(path)
    for name in needed:
        if name not in document:
            raise StudyError(f'{path}: {name} is missing; write {name} = "..." above the first table')


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dictionary. Raises StudyError that names the file, the line and a near name."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = sorted(other.name for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        raise StudyError(f"no file {path}; {did_you_mean(path.name, near)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"{path} is not TOML: {error}") from None
