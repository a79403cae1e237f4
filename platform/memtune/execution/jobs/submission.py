"""A study made ready here and run on a cluster, and the same study taken up again."""

import json
import os
import secrets
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memtune.errors import ClusterError, ConfigurationError, CorpusError, StorageError
from memtune.execution.jobs.environment import HOME_ON_HEAD, job_environment, secrets_left_here, unset_places
from memtune.execution.jobs.package import StudyFiles, collect, write_package
from memtune.execution.jobs.server import STUDY_KEY, Job, JobServer
from memtune.execution.settings import Settings
from memtune.execution.study import Study, check_spaces, load_study, prepare
from memtune.values import Value, parse

__all__ = ["Submission", "prepare_submission", "resumption", "submit"]

FILES_KEY, TERMS_KEY = "memtune_files", "memtune_terms"
OPTIONS = {
    "budget.trials": "--trials",
    "budget.time": "--time-budget",
    "resources.gpus_per_trial": "--gpus-per-trial",
}
"""The options of `memtune search` that a study's entries are overridden by."""
USUAL_VOCABULARY = 10_000
"""Words assumed for a corpus that cannot be seen from here; sizes are checked again on the cluster."""


class Terms(Value):
    """How a study's file is to be run: what is put over it, and whether the champion is to be replaced."""

    overrides: dict[str, int | float | str]
    """By dotted name."""
    replace_champion: bool = False


@dataclass(frozen=True)
class Submission:
    """A study ready to be submitted."""

    study: str
    files: StudyFiles
    terms: Terms
    resume: bool
    environment: dict[str, str]
    notes: list[str] = field(default_factory=list)
    """What could not be checked here, and what to mind."""

    @property
    def entrypoint(self) -> str:
        """The command that the head runs in the package's folder."""
        options = [
            part for name, value in self.terms.overrides.items() for part in (OPTIONS[name], str(value))
        ]
        flags = {"--resume": self.resume, "--replace-champion": self.terms.replace_champion}
        options += [flag for flag, wanted in flags.items() if wanted]
        return shlex.join(["python", "-m", "memtune.cli", "search", self.files.study, *options])

    @property
    def metadata(self) -> dict[str, str]:
        """What the job server keeps of it, enough to submit it again."""
        return {
            STUDY_KEY: self.study,
            FILES_KEY: self.files.model_dump_json(),
            TERMS_KEY: self.terms.model_dump_json(),
        }


def prepare_submission(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    replace_champion: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Submission:
    """Check a study as far as it can be from here, and collect what it needs; nothing is sent.

    Raises what `search` raises for a study that cannot run, and ConfigurationError for a password in a
    setting.
    """
    path, terms = Path(path), _terms(overrides or {}, replace_champion)
    study = load_study(path, terms.overrides)
    variables = job_environment(environment)
    notes = [*_check(path, study, variables), *_places(environment)]
    return Submission(study.name, collect(path, study), terms, resume, variables, notes)


def _terms(overrides: Mapping[str, Any], replace_champion: bool) -> Terms:
    unknown = sorted(set(overrides) - set(OPTIONS))
    if unknown:
        raise ConfigurationError(
            f"{unknown[0]} cannot be put over a study that is submitted; write it into the study's file "
            f"(only {', '.join(OPTIONS)} can)"
        )
    return Terms(overrides=dict(overrides), replace_champion=replace_champion)


def _check(path: Path, study: Study, variables: Mapping[str, str]) -> list[str]:
    """Check the study and its spaces, with its corpus where that lies on this machine; what was left out."""
    later = "the tracking store and Optuna's storage are asked on the cluster, when the study begins"
    store = variables.get("MEMTUNE_STORE") or f"{variables['MEMTUNE_HOME']}/corpora"
    reason = f"from here {store} is not looked into"
    if "://" not in store:
        try:
            settings = Settings(home=Path.cwd(), store=store, studies="", proposals="", tracking="")
            prepare(path, study, settings)
            return [later]
        except (CorpusError, StorageError) as error:
            reason = str(error)
    check_spaces(path, study, USUAL_VOCABULARY)
    return [f'corpus "{study.corpus}" is looked for on the cluster; {reason}', later]


def _places(environment: Mapping[str, str]) -> list[str]:
    unset, kept = unset_places(environment), secrets_left_here(environment)
    home = environment.get("MEMTUNE_HOME") or HOME_ON_HEAD
    notes = []
    if unset:
        notes.append(
            f"{', '.join(unset)} not set: the job takes {home} on the head, which other nodes do not see "
            "and which may end with the cluster"
        )
    notes += [f"{name} stays here; the nodes read {file}" for name, file in kept.items()]
    return notes


def submit(server: JobServer, submission: Submission) -> str:
    """Send a study to a cluster; the job's id. Raises ClusterError for a package that is too large."""
    identity = f"{submission.study}-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix="memtune-job-") as scratch:
        folder = Path(scratch)
        write_package(submission.files, folder)
        server.submit(identity, submission.entrypoint, folder, submission.environment, submission.metadata)
    return identity


def resumption(job: Job, overrides: Mapping[str, Any] | None = None) -> Submission:
    """The study of a job again, to go on where it stopped; with this machine's memtune.

    `overrides` are put over those of the job, such as more trials. Raises ClusterError for a job that runs,
    and for one that `memtune submit` did not submit.
    """
    if not job.over:
        raise ClusterError(f"job {job.id} is {job.status.lower()}; stop it first: memtune jobs stop {job.id}")
    if FILES_KEY not in job.metadata or TERMS_KEY not in job.metadata:
        raise ClusterError(
            f"job {job.id} was not submitted by memtune; submit its study again with --resume at the end"
        )
    where = f"the metadata of job {job.id}"
    files = StudyFiles.model_validate(parse(StudyFiles, _json(job, FILES_KEY), where))
    before = Terms.model_validate(parse(Terms, _json(job, TERMS_KEY), where))
    terms = _terms({**before.overrides, **(overrides or {})}, before.replace_champion)
    return Submission(job.study or job.id, files, terms, True, job_environment(job.environment))


def _json(job: Job, key: str) -> object:
    try:
        return json.loads(job.metadata[key])
    except ValueError as error:
        raise ConfigurationError(
            f"{key} of job {job.id} is not JSON: {error}; submit its study again"
        ) from None
