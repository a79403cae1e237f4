"""What travels to the cluster with a study: memtune's source, the study file and the search spaces it names.

Nothing else does: no corpora, which live in a store, no `.git`, no environment. Paths in a package are
relative; the study keeps its place below the working folder, so that messages name it as its user does, and
spaces named without a path lie in the package's own `search_spaces`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import model_validator

import memtune
from memtune.errors import ClusterError, StudyError
from memtune.execution.clusters.delivery import LARGEST_UPLOAD
from memtune.execution.study import Study, find_space
from memtune.spaces import space_files
from memtune.values import Value

__all__ = ["SOURCE", "StudyFiles", "collect", "write_package"]

SOURCE = Path(memtune.__file__).parent
"""The package that runs now: the cluster runs the same one."""
SHOWN = 3


class StudyFiles(Value):
    """A study and its spaces as text, by their paths in the package."""

    study: str
    texts: dict[str, str]

    @model_validator(mode="after")
    def _stay_inside(self) -> Self:
        """Paths come back from a job's metadata, which whoever has the token could write."""
        for name in (self.study, *self.texts):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or path.suffix != ".toml":
                raise ValueError(f"{name!r} is no path of a TOML file below the package")
        if self.study not in self.texts:
            raise ValueError(f"the study {self.study!r} is not among the files")
        return self


def collect(path: Path, study: Study) -> StudyFiles:
    """The text of a study file and of every space it names.

    Raises StudyError or SpaceError for a space that is missing or cannot travel.
    """
    beside = [file for name in study.spaces if name.endswith(".toml") for file in _beside(name, path)]
    own = [_plain(file) for file in (path, *beside)]
    root = _root(own)
    placed = {file.relative_to(root).as_posix(): file for file in own}
    for name in study.spaces:
        if not name.endswith(".toml"):
            _place_named(space_files(find_space(name, path)), placed)
    texts = {name: file.read_text(encoding="utf-8") for name, file in placed.items()}
    return StudyFiles(study=own[0].relative_to(root).as_posix(), texts=texts)


def _beside(name: str, study: Path) -> list[Path]:
    if Path(name).is_absolute():
        raise StudyError(
            f"{study} names the space {name} by an absolute path, which a cluster does not have; "
            "name it relative to the study file"
        )
    return space_files(find_space(name, study))


def _place_named(files: Iterable[Path], placed: dict[str, Path]) -> None:
    for file in files:
        name = f"search_spaces/{file.name}"
        other = placed.setdefault(name, file)
        if other.read_bytes() != file.read_bytes():
            raise StudyError(
                f"the study names two spaces {file.stem}: {other} and {file}; rename one of them"
            )


def _plain(path: Path) -> Path:
    """The path absolute and without `..`, links not followed."""
    return Path(os.path.normpath(path.absolute()))


def _root(files: list[Path]) -> Path:
    """What paths in the package are relative to: the working folder if it holds all, else what they share."""
    here = Path.cwd()
    if all(file.is_relative_to(here) for file in files):
        return here
    return Path(os.path.commonpath([file.parent for file in files]))


def write_package(files: StudyFiles, folder: Path, source: Path = SOURCE) -> int:
    """Write memtune's source and a study's files into `folder`; the bytes of all.

    Raises ClusterError, before anything is written, for a package as large as the cluster's limit or larger.
    """
    modules = {f"platform/memtune/{path.relative_to(source).as_posix()}": path for path in _source(source)}
    sizes = {name: path.stat().st_size for name, path in modules.items()}
    sizes |= {name: len(text.encode()) for name, text in files.texts.items()}
    _check_size(sizes)
    for name, path in modules.items():
        _write(folder / name, path.read_bytes())
    for name, text in files.texts.items():
        _write(folder / name, text.encode())
    return sum(sizes.values())


def _source(root: Path) -> list[Path]:
    """The files of the package, without what Python or an editor leaves beside them."""
    return [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(root).parts)
    ]


def _check_size(sizes: Mapping[str, int]) -> None:
    total = sum(sizes.values())
    if total < LARGEST_UPLOAD:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:SHOWN]
    named = ", ".join(f"{name} ({sizes[name] / 2**20:.0f} MiB)" for name in largest)
    raise ClusterError(
        f"the job's package has {total / 2**20:.0f} MiB and {LARGEST_UPLOAD / 2**20:.0f} MiB is the limit of "
        f"an upload; its largest files are {named}: keep data in a store, not beside the source"
    )


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
