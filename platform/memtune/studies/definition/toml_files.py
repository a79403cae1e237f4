"""TOML files of trials and studies, read before the imports that take seconds."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from memtune.arguments import check_type
from memtune.errors import StudyError, did_you_mean
from memtune.toml_text import parse_toml, read_toml_text


def check_document(path: Path, required_names: Collection[str]) -> None:
    """Raise StudyError where `read_toml` does, and for a missing name."""
    document = read_toml(path)
    for name in required_names:
        if name not in document:
            raise StudyError(f'{path}: {name} is missing; write {name} = "..." above the first table')


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dictionary. Raises StudyError that names the file, the line and the nearest name."""
    try:
        return parse_toml(read_toml_text(path))
    except FileNotFoundError:
        near = sorted(other.name for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        hint = did_you_mean(path.name, near) if near else "there is no TOML file in its folder"
        raise StudyError(f"no file {path}; {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"cannot read {path}: {error}") from None
    except ValueError as error:
        raise StudyError(f"{path} is not TOML: {error}") from None


def name_place(path: Path | None, noun: str = "study") -> str:
    """What messages call a study or a trial: its file; "the study" for one of a program."""
    return f"the {noun}" if path is None else str(path)


def find_folder(path: Path | None) -> Path:
    """The folder that paths in a study or a trial start from: that of its file, or the working folder."""
    return Path() if path is None else path.parent


def override_fields(document: dict[str, Any], overrides: Mapping[str, Any] | None) -> None:
    """Replace fields of a study or a trial by values with dotted names, such as "training.tokens".

    Raises ArgumentError for overrides that are not a mapping.
    """
    if overrides is not None:
        check_type("overrides", overrides, Mapping, 'values by dotted name, such as {"training.tokens": 900}')
    for name, value in (overrides or {}).items():
        *tables, key = name.split(".")
        entries: Any = document
        for table in tables:
            # The schema refuses a value that is no table, and names it.
            entries = entries.setdefault(table, {}) if isinstance(entries, dict) else None
        if isinstance(entries, dict):
            entries[key] = value


def load_listed_models(document: Mapping[str, Any], path: Path | None, noun: str = "study") -> None:
    """Execute the Python files in the list `models` of a study or a trial, by paths relative to its file.

    Raises StudyError for anything but a list of names, and the errors of `load_plugin_file`.
    """
    names = document.get("models", ())
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise StudyError(
            f"{name_place(path, noun)}: models must be a list of Python files, such as "
            f'["my_memory.py"], got {names!r}'
        )
    # Imported here: `check_document` runs before imports that take seconds.
    from memtune.plugins import load_plugin_files

    load_plugin_files(names, find_folder(path))
