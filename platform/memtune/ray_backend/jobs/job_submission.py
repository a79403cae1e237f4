"""Prepare a study on this machine, submit it to a cluster, and resume the study of an ended job."""

import json
import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtune.errors import ClusterError, ConfigurationError, CorpusError, StorageError
from memtune.library import FileKind, find_file
from memtune.ray_backend.jobs import job_package
from memtune.ray_backend.jobs.job_package import SOURCE_PATH, STUDY_FOLDER, StudyFiles
from memtune.ray_backend.jobs.job_server import STUDY_KEY, Job, JobServer
from memtune.settings import LOCATION_VARIABLES, Settings
from memtune.storage.local_files import open_scratch_folder
from memtune.studies.definition.study import Study
from memtune.studies.definition.study_loader import check_spaces, load_study, resolve_study
from memtune.values import Value, parse

FILES_KEY, OPTIONS_KEY = "memtune_files", "memtune_terms"
CLI_OPTIONS = {
    "budget.trials": "--trials",
    "budget.time": "--time-budget",
    "resources.gpus_per_trial": "--gpus-per-trial",
}
"""The options of `memtune search` that override entries of a study, by dotted name."""
ASSUMED_VOCABULARY_SIZE = 10_000
"""Words assumed for a corpus that this machine cannot read; the cluster checks sizes again."""


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
    variables = job_package.build_job_environment(environment)
    notes = [*_check_study_locally(path, study, variables), *_note_locations(environment)]
    files = job_package.collect_study_files(path, study)
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


def _note_locations(environment: Mapping[str, str]) -> list[str]:
    unset = [name for name in LOCATION_VARIABLES if not environment.get(name)]
    home = environment.get("MEMTUNE_HOME") or job_package.HOME_ON_HEAD
    notes = []
    if unset:
        notes.append(
            f"{', '.join(unset)} not set: the job uses {home} on the head; other nodes have to share "
            "this folder, which may be deleted with the cluster"
        )
    for name, file in job_package.SECRET_FILES_ON_NODES.items():
        if environment.get(name):
            notes.append(f"{name} is not sent; the nodes read {file}")
    return notes


def submit(server: JobServer, submission: Submission) -> str:
    """Submit a study and return the id of its job. Raises ClusterError for a package that is too large."""
    job_id = f"{submission.study}-{secrets.token_hex(3)}"
    with open_scratch_folder() as folder:
        job_package.write_package(submission.files, folder)
        server.submit(job_id, submission.entrypoint, folder, submission.environment, submission.metadata)
    return job_id


def prepare_resumption(job: Job, overrides: Mapping[str, Any] | None = None) -> Submission:
    """Prepare the study of an ended job for resumption, with the source of this machine's memtune.

    `overrides`, such as more trials, take precedence over those of the job. Raises ClusterError for a job
    that has not ended, and for a job that `memtune submit` did not submit.
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
    variables = job_package.build_job_environment(job.environment)
    return Submission(job.study or job.id, files, options, True, variables)


def _read_metadata(job: Job, key: str, kind: type[Value]) -> Any:
    """What `memtune submit` has stored of a job under a key."""
    try:
        stored = json.loads(job.metadata[key])
    except ValueError as error:
        raise ConfigurationError(
            f"{key} of job {job.id} is not JSON: {error}; submit its study again"
        ) from None
    return parse(kind, stored, f"the metadata of job {job.id}")
