"""The search spaces, studies, trials and tables of papers that memtune brings, found by name.

A clone has them in the folders of its root, and an installed package in its folder `files`, where
`wheel_build` puts them. A file of the user has precedence over a packaged one of the same name. Completion of
names imports this, so it imports little.
"""

import os
import shlex
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path

from memtune.errors import StudyError, did_you_mean

_INSTALLED_ROOT = Path(__file__).parent / "files"
LIBRARY_ROOT = _INSTALLED_ROOT if _INSTALLED_ROOT.is_dir() else Path(__file__).parents[3]
"""The folder that has the folders of the library: of the installed package, or the source tree."""

JOB_VARIABLE = "MEMTUNE_JOB"
"""The environment variable that holds the id of the job in which a process runs."""
RESUMED_VARIABLE = "MEMTUNE_RESUMED_JOB"
"""That of the job which it resumes, and which may have failed before its study began."""


class FileKind(Enum):
    """A kind of packaged file: its folder below LIBRARY_ROOT, and its noun in messages."""

    SPACE = "search_spaces", "search space"
    STUDY = "jobs/studies", "study"
    TRIAL = "jobs/trials", "trial"
    PAPER = "jobs/papers", "tables of a paper"

    def __init__(self, folder: str, noun: str) -> None:
        self.folder, self.noun = LIBRARY_ROOT / folder, noun


def list_packaged(kind: FileKind) -> list[str]:
    """The names of the packaged files of a kind, sorted."""
    return sorted(path.stem for path in kind.folder.glob("*.toml"))


def find_packaged(kind: FileKind, name: str) -> Path:
    """The packaged file of a name. Raises StudyError that suggests the nearest name."""
    known = list_packaged(kind)
    if name not in known:
        raise StudyError(f'no packaged {kind.noun} "{name}"; {did_you_mean(name, known)}')
    return kind.folder / f"{name}.toml"


def find_file(kind: FileKind, given: Path) -> Path:
    """The file that a user names: by its path, or a file NAME.toml of the working folder, or a packaged NAME.

    Raises StudyError for a folder, and for a missing file with the nearest one of the kind.
    """
    known = list_packaged(kind)
    if _is_name(given) and not given.is_file():
        nearby = Path(f"{given}.toml")
        if nearby.is_file():
            return nearby
        if given.name in known:
            return kind.folder / nearby
    if given.is_dir():
        files = ", ".join(path.name for path in _list_files(kind, given))
        raise StudyError(
            f"{given} is a folder; name one {kind.noun} in it{f': {files}' if files else '; it has none'}"
        )
    if given.exists():
        return given
    if not _is_name(given):
        raise StudyError(f"no file {given}; {_suggest_file(kind, given)}")
    names = {*known, *(path.stem for path in _list_files(kind, Path()))}
    raise StudyError(
        f'no file {given} and no packaged {kind.noun} "{given.name}"; {did_you_mean(given.name, names)}'
    )


def _suggest_file(kind: FileKind, given: Path) -> str:
    """The nearest file of a kind in the folder of a missing one, or the packaged file of its name."""
    if given.stem in list_packaged(kind) and given.suffix == ".toml":
        return f'the packaged {kind.noun} of this name is "{given.stem}", without a path'
    if not given.parent.is_dir():
        return f"there is no folder {given.parent}"
    names = [path.name for path in _list_files(kind, given.parent)]
    return did_you_mean(given.name, names) if names else f"there is no {kind.noun} in its folder"


def format_argument(path: Path) -> str:
    """A file in a command: the name of a file that is installed with memtune, else the path."""
    is_packaged = path.is_relative_to(_INSTALLED_ROOT)
    return path.stem if is_packaged else shlex.quote(str(path))


def format_resumption(study: Path, options: Sequence[str] = (), *, is_edited: bool = False) -> str:
    """The command that resumes a study from where the user types: of a job, not of its process on the head.

    `options` are those of `memtune search`, which a job keeps. One whose file `is_edited` is submitted again,
    because a job keeps the file that it was submitted with.
    """
    job = os.environ.get(JOB_VARIABLE)
    if job and not is_edited:
        return f"memtune jobs resume {job}"
    command = f"memtune {'submit' if job else 'search'} {format_argument(study)} --resume"
    # The address that a job connects to is not the one that it is submitted to.
    return " ".join([command, *(each for each in options if not (job and each.startswith("--address")))])


def read_question(path: Path) -> str:
    """The question in a packaged file; "" where it has none."""
    return str(tomllib.loads(path.read_text(encoding="utf-8")).get("question", ""))


def copy_packaged(kind: FileKind, name: str, target: Path | None = None) -> Path:
    """Copy a packaged file to a path, into a folder, or into the working folder; returns the new file.

    Raises StudyError for an unknown name, an existing file, and a place that cannot be written.
    """
    source = find_packaged(kind, name)
    new = source.name if target is None else target / source.name if target.is_dir() else target
    path = Path(new)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(source.read_text(encoding="utf-8"))
    except FileExistsError:
        raise StudyError(f"{path} exists and is not overwritten; name another path") from None
    except OSError as error:
        with suppress(OSError):  # a part of it would be in the way of the next attempt
            path.unlink()
        raise StudyError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from None
    return path


def _is_name(given: Path) -> bool:
    """Whether a path could be the name of a packaged file: one part, without a suffix."""
    return len(given.parts) == 1 and given.suffix != ".toml"


def _list_files(kind: FileKind, folder: Path) -> list[Path]:
    """The TOML files of a kind in a folder; one that cannot be read is of every kind."""
    return [path for path in sorted(folder.glob("*.toml")) if _find_kind(path) in (kind, None)]


def _find_kind(path: Path) -> FileKind | None:
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8")).keys()
    except (OSError, ValueError):
        return None
    if "tables" in fields:
        return FileKind.PAPER
    if "corpus" not in fields:
        return FileKind.SPACE
    return FileKind.STUDY if "spaces" in fields else FileKind.TRIAL
