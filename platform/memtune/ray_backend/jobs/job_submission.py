"""Prepare a study on this machine, submit it to a cluster, and resume the study of an ended job.

A job's package has memtune's source, the study file, and the search spaces and models that it names, but no
corpora, no `.git` and no Python environment; nodes read corpora from the store. Its folder `platform` has
memtune's source, and `study` the study with its files: Ray puts the package itself on Python's path, where a
model file `random.py` would replace the module of that name. In `study` the study keeps its path below the
working folder, so that messages show the path that the user typed; spaces named without a path are in
`study/search_spaces`.

The dashboard shows a job's variables to everyone with the token, so only the listed variables are forwarded.
The nodes read passwords and keys from files: `~/.pgpass`, `~/.mlflow/credentials`, `~/.aws/credentials`.
"""

import json
import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self

from pydantic import model_validator

import memtune
from memtune.errors import ClusterError, ConfigurationError, CorpusError, StorageError, StudyError
from memtune.library import JOB_VARIABLE, RESUMED_VARIABLE, FileKind, find_file
from memtune.plugins.source_modules import read_source_text
from memtune.ray_backend.clusters.cluster_check import MAX_UPLOAD_BYTES
from memtune.ray_backend.jobs.job_server import STUDY_KEY, USER_KEY, Job, JobServer
from memtune.settings import LOCATION_VARIABLES, USER_VARIABLE, Settings, find_user
from memtune.spaces import list_space_files
from memtune.storage.local_files import open_scratch_folder
from memtune.storage.uris import refuse_credentials
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_loader import check_spaces, find_space, load_study, resolve_study
from memtune.values import Value, parse

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
        forwarded[name] = _make_absolute(name, value)
    return {"MEMTUNE_HOME": HOME_ON_HEAD, **forwarded, **FIXED_VARIABLES}


def _make_absolute(name: str, value: str) -> str:
    """The value of a variable as a job gets it."""
    is_relative = name in FOLDER_VARIABLES and "://" not in value and not value.startswith("~")
    return os.path.abspath(value) if is_relative else value


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


def write_package(files: StudyFiles, folder: Path, source: Path = SOURCE_FOLDER) -> None:
    """Write memtune's source and a study's files into `folder`.

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


FILES_KEY, OPTIONS_KEY = "memtune_files", "memtune_terms"
CLI_OPTIONS = {
    "budget.trials": "--trials",
    "budget.time": "--time-budget",
    "resources.gpus_per_trial": "--gpus-per-trial",
}
"""The options of `memtune search` that override entries of a study, by dotted name."""
ASSUMED_VOCABULARY_SIZE = 10_000
"""Words assumed for a corpus that this machine cannot read; the cluster checks sizes again."""


SUBMIT_AGAIN = "memtune submit STUDY --resume"
"""What continues a study with its file and the locations as they now are."""


class SubmissionOptions(Value):
    """The overrides of a study's file, and whether results of other studies are used."""

    overrides: dict[str, int | float | str]
    """By dotted name."""
    reuse: bool = True
    """Whether configurations that another study of the home has trained are not trained again."""


@dataclass(frozen=True)
class Submission:
    """A study that was checked and packaged for submission."""

    study: str
    files: StudyFiles
    options: SubmissionOptions
    resume: bool
    environment: dict[str, str]
    notes: list[str] = field(default_factory=list)
    """Messages for the user: checks that only the cluster can make, and settings that affect the job."""

    @property
    def entrypoint(self) -> str:
        """The command that the head runs in the package's folder, without the modules of the study's."""
        options = [
            part for name, value in self.options.overrides.items() for part in (CLI_OPTIONS[name], str(value))
        ]
        options += [] if self.options.reuse else ["--no-cache"]
        options += ["--resume"] if self.resume else []
        python = f"cd {STUDY_FOLDER} && exec env PYTHONPATH=../{SOURCE_PATH} python -P"
        return f"{python} -m memtune.cli {shlex.join(['search', self.files.study, *options])}"

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata that the job server stores; it suffices to submit the study again."""
        return {
            STUDY_KEY: self.study,
            FILES_KEY: self.files.model_dump_json(),
            OPTIONS_KEY: self.options.model_dump_json(),
        }


def prepare_submission(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    reuse: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> Submission:
    """Check a study on this machine and collect its files; nothing is sent.

    Without `reuse` the job also trains what another study of its home has trained.

    Raises the errors of `search` for a study that cannot run, and ConfigurationError for a password in a
    setting.
    """
    path, options = find_file(FileKind.STUDY, Path(path)), _build_options(overrides or {}, reuse)
    study = load_study(path, options.overrides)
    variables = build_job_environment(environment)
    notes = [
        *_check_study_locally(path, study, variables),
        *_note_locations(environment, variables["MEMTUNE_HOME"]),
    ]
    files = collect_study_files(path, study)
    return Submission(study.name, files, options, resume, variables, notes)


def _build_options(overrides: Mapping[str, Any], reuse: bool) -> SubmissionOptions:
    unknown = sorted(set(overrides) - set(CLI_OPTIONS))
    if unknown:
        raise ConfigurationError(
            f"{unknown[0]} cannot be overridden for a submitted study; write it into the study's file "
            f"(only {', '.join(CLI_OPTIONS)} can be overridden)"
        )
    return SubmissionOptions(overrides=dict(overrides), reuse=reuse)


def _check_study_locally(path: Path, study: Study, variables: Mapping[str, str]) -> list[str]:
    """Check the study and its spaces, and its corpus if this machine has it; notes about the checks left."""
    later = "the tracking store and the study database are checked on the cluster, when the study starts"
    store = variables.get("MEMTUNE_STORE") or f"{variables['MEMTUNE_HOME']}/corpora"
    reason = f"this machine does not read {store}"
    if "://" not in store:
        try:
            settings = Settings(
                home=Path.cwd(), corpus_store=store, studies_folder="", study_database="", tracking_uri=""
            )
            resolve_study(path, study, settings)
            return [later]
        except (CorpusError, StorageError) as error:
            reason = str(error)
    check_spaces(path, study, ASSUMED_VOCABULARY_SIZE)
    return [f'corpus "{study.corpus}" is checked on the cluster; {reason}', later]


def _note_locations(environment: Mapping[str, str], home: str) -> list[str]:
    unset = [name for name in LOCATION_VARIABLES if not environment.get(name)]
    notes = []
    if unset:
        notes.append(
            f"{', '.join(unset)} not set: the job uses {home} on the head; other nodes have to share "
            "this folder, which may be deleted with the cluster"
        )
    for name, file in SECRET_FILES_ON_NODES.items():
        if environment.get(name):
            notes.append(f"{name} is not sent; the nodes read {file}")
    return notes


def submit(server: JobServer, submission: Submission) -> str:
    """Submit a study and return the id of its job.

    Raises ClusterError for a package that is too large, and where another job runs the study.
    """
    if other := next((job for job in server.list_jobs() if _runs_study(job, submission)), None):
        raise ClusterError(
            f"job {other.id} has study {submission.study} and is {other.status.lower()}; follow it: memtune "
            f"jobs logs {other.id} --follow, or stop it first: memtune jobs stop {other.id}"
        )
    job_id = f"{submission.study}-{secrets.token_hex(3)}"
    with open_scratch_folder() as folder:
        write_package(submission.files, folder)
        environment = {**submission.environment, JOB_VARIABLE: job_id, USER_VARIABLE: find_user()}
        metadata = {**submission.metadata, USER_KEY: find_user()}
        server.submit(job_id, submission.entrypoint, folder, environment, metadata)
    return job_id


def _runs_study(job: Job, submission: Submission) -> bool:
    """Whether a job that has not ended has the study of a submission; an edited file may be another study."""
    places = ("MEMTUNE_HOME", "MEMTUNE_PROPOSALS")
    return (
        not job.has_ended
        and job.metadata.get(STUDY_KEY) == submission.study
        and all(job.environment.get(name) == submission.environment.get(name) for name in places)
        and (submission.resume is True or job.metadata.get(FILES_KEY) == submission.metadata[FILES_KEY])
    )


def prepare_resumption(
    job: Job,
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
) -> Submission:
    """Prepare the study of an ended job for resumption, with the source of this machine's memtune.

    A study that has not begun, because its job failed before, is started. `overrides`, such as more trials,
    take precedence over those of the job. Raises ClusterError for a job that has not ended, and for a job
    that `memtune submit` did not submit.
    """
    if not job.has_ended:
        raise ClusterError(f"job {job.id} is {job.status.lower()}; stop it first: memtune jobs stop {job.id}")
    if FILES_KEY not in job.metadata or OPTIONS_KEY not in job.metadata:
        raise ClusterError(
            f"job {job.id} was not submitted by memtune; submit its study again with --resume at the end"
        )
    files: StudyFiles = _read_metadata(job, FILES_KEY, StudyFiles)
    previous: SubmissionOptions = _read_metadata(job, OPTIONS_KEY, SubmissionOptions)
    options = _build_options({**previous.overrides, **(overrides or {})}, previous.reuse)
    variables = build_job_environment(job.environment)
    edited = f"the study's file is that of {job.id}; to use an edited one: {SUBMIT_AGAIN}"
    notes = [edited, *_note_kept_locations(variables, environment)]
    variables[RESUMED_VARIABLE] = job.id
    return Submission(job.study or job.id, files, options, True, variables, notes)


def _note_kept_locations(variables: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """A note for each variable of a job that has another value in the environment, which is not repeated."""
    return [
        f"the job keeps {name}{f'={variables[name]}' if name in variables else ' unset'}; to change it: "
        f"{SUBMIT_AGAIN}"
        for name in FORWARDED_VARIABLES
        if environment.get(name) and _make_absolute(name, environment[name]) != variables.get(name)
    ]


def _read_metadata(job: Job, key: str, kind: type[Value]) -> Any:
    """What `memtune submit` has stored of a job under a key."""
    try:
        stored = json.loads(job.metadata[key])
    except ValueError as error:
        raise ConfigurationError(
            f"{key} of job {job.id} is not JSON: {error}; submit its study again"
        ) from None
    return parse(kind, stored, f"the metadata of job {job.id}")
