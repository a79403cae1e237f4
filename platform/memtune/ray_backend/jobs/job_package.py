"""The package of a job: memtune's source, the study file, and the search spaces and models that it names.

A package has no corpora, no `.git` and no Python environment; nodes read corpora from the store. Its folder
`platform` has memtune's source, and `study` the study with its files: Ray puts the package itself on Python's
path, where a model file `random.py` would replace the module of that name. In `study` the study keeps its
path below the working folder, so that messages show the path that the user typed; spaces named without a path
are in `study/search_spaces`.

The dashboard shows a job's variables to everyone with the token, so only the listed variables are forwarded.
The nodes read passwords and keys from files: `~/.pgpass`, `~/.mlflow/credentials`, `~/.aws/credentials`.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import model_validator

import memtune
from memtune.errors import ClusterError, StudyError
from memtune.plugins.source_modules import read_source_text
from memtune.ray_backend.clusters.cluster_check import MAX_UPLOAD_BYTES
from memtune.settings import LOCATION_VARIABLES
from memtune.spaces import list_space_files
from memtune.storage.uris import refuse_credentials
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_loader import find_space
from memtune.values import Value

HOME_ON_HEAD = "~/.memtune"
"""Default folder of a job's records on the head; Ray deletes the job's working folder."""
FORWARDED_VARIABLES = (
    "MEMTUNE_HOME",
    *LOCATION_VARIABLES,
    "MEMTUNE_CACHE",
    "MEMTUNE_CACHE_BYTES",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "MLFLOW_S3_ENDPOINT_URL",
)
"""Variables that a job receives when they are set on the client."""
SECRET_FILES_ON_NODES = {
    "PGPASSWORD": "~/.pgpass",
    "MLFLOW_TRACKING_PASSWORD": "~/.mlflow/credentials",
    "MLFLOW_TRACKING_TOKEN": "~/.mlflow/credentials",
    "AWS_SECRET_ACCESS_KEY": "~/.aws/credentials or the machine's role",
}
"""Variables that a job never receives, and the file on the nodes that replaces each."""
FOLDER_VARIABLES = ("MEMTUNE_HOME", "MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_CACHE")
SOURCE_PATH, STUDY_FOLDER = "platform", "study"
FIXED_VARIABLES = {
    "PYTHONPATH": SOURCE_PATH,
    # SIGINT and 60 s let a stopped driver checkpoint its open trials and record them as resumable.
    "RAY_JOB_STOP_SIGNAL": "SIGINT",
    "RAY_JOB_STOP_WAIT_TIME_S": "60",
}


def build_job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job, selected from `environment`.

    Relative folders become absolute. A folder that starts with `~` stays as written; the head expands it.
    Raises ConfigurationError for a setting that contains a password.
    """
    forwarded = {name: environment[name] for name in FORWARDED_VARIABLES if environment.get(name)}
    for name, value in forwarded.items():
        refuse_credentials(name, value)
        if name in FOLDER_VARIABLES and "://" not in value and not value.startswith("~"):
            forwarded[name] = os.path.abspath(value)
    return {"MEMTUNE_HOME": HOME_ON_HEAD, **forwarded, **FIXED_VARIABLES}


SOURCE_FOLDER = Path(memtune.__file__).parent
"""The source of the running memtune; the cluster runs the same source."""
MAX_LISTED_FILES = 3


class StudyFiles(Value):
    """A study, its spaces and its model files as text, by their paths in the package's STUDY_FOLDER."""

    study: str
    texts: dict[str, str]

    @model_validator(mode="after")
    def _require_inside(self) -> Self:
        """Refuse paths outside of the package: every holder of the token can write job metadata."""
        for name in (self.study, *self.texts):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or path.suffix not in (".toml", ".py"):
                raise ValueError(f"{name!r} is not the path of a TOML or Python file inside the package")
        if self.study not in self.texts:
            raise ValueError(f"the study {self.study!r} is not among the files")
        return self


def collect_study_files(path: Path, study: Study) -> StudyFiles:
    """The texts of a study file, of every space that it names and of its model files.

    Raises StudyError, SpaceError or PluginError for a file that is missing or cannot be packaged.
    """
    spaces_by_path = [name for name in study.spaces if name.endswith(".toml")]
    for noun, names in (("space", spaces_by_path), ("model file", study.models)):
        if absolute := [name for name in names if Path(name).is_absolute()]:
            raise StudyError(
                f"{path} names the {noun} {absolute[0]} by an absolute path, which the cluster does not "
                "have; name it relative to the study file"
            )
    relative_spaces = [file for name in spaces_by_path for file in list_space_files(find_space(name, path))]
    model_files = [path.parent / name for name in study.models]
    for file in model_files:
        read_source_text(file)
    folders = [file.parent for file in model_files]
    named_spaces = [find_space(name, path, folders) for name in study.spaces if name not in spaces_by_path]
    beside_models = [space for space in named_spaces if space.parent in folders]
    # Absolute without `..`; symbolic links are not resolved.
    listed = (path, *relative_spaces, *model_files, *beside_models)
    files = [Path(os.path.normpath(file.absolute())) for file in listed]
    # Paths in the package start from the working folder if it has all files, else from their nearest common
    # folder.
    root = Path.cwd()
    if not all(file.is_relative_to(root) for file in files):
        root = Path(os.path.commonpath([file.parent for file in files]))
    packaged = {file.relative_to(root).as_posix(): file for file in files}
    elsewhere = [space for space in named_spaces if space not in beside_models]
    for file in [file for space in elsewhere for file in list_space_files(space)]:
        other = packaged.setdefault(f"search_spaces/{file.name}", file)
        if other.read_bytes() != file.read_bytes():
            raise StudyError(
                f"the study names two spaces {file.stem}: {other} and {file}; rename one of them"
            )
    texts = {name: file.read_text(encoding="utf-8") for name, file in packaged.items()}
    return StudyFiles(study=files[0].relative_to(root).as_posix(), texts=texts)


def write_package(files: StudyFiles, folder: Path, source: Path = SOURCE_FOLDER) -> int:
    """Write memtune's source and a study's files into `folder`; returns their size in bytes.

    Raises ClusterError before it writes when the package reaches the upload limit of the job server.
    """
    modules: dict[str, Path] = {}
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        # Without bytecode caches and hidden files.
        is_left_out = any(part == "__pycache__" or part.startswith(".") for part in relative.parts)
        if path.is_file() and not is_left_out:
            modules[f"{SOURCE_PATH}/memtune/{relative.as_posix()}"] = path
    texts = {f"{STUDY_FOLDER}/{name}": text.encode() for name, text in files.texts.items()}
    sizes = {name: path.stat().st_size for name, path in modules.items()}
    sizes |= {name: len(text) for name, text in texts.items()}
    total = sum(sizes.values())
    if total >= MAX_UPLOAD_BYTES:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:MAX_LISTED_FILES]
        named = ", ".join(f"{name} ({sizes[name] / 2**20:.0f} MiB)" for name in largest)
        raise ClusterError(
            f"the job's package has {total / 2**20:.0f} MiB; an upload is limited to "
            f"{MAX_UPLOAD_BYTES / 2**20:.0f} MiB; its largest files are {named}: keep data in a store, not "
            "in the source folder"
        )
    for name in sizes:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(modules[name].read_bytes() if name in modules else texts[name])
    return total
