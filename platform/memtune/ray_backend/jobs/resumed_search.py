"""What `memtune jobs resume` runs on the head: `memtune search`, with --resume if the study has begun.

A job may have failed before its study began, which only the head can say: it has the job's storages.
Usage: python -m memtune.ray_backend.jobs.resumed_search STUDY OPTIONS, with SubmissionOptions as JSON.
"""

import os
import sys
from pathlib import Path

from memtune.errors import MemtuneError
from memtune.ray_backend.jobs.job_submission import SubmissionOptions
from memtune.search import StudyReader
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies.definition.study_loader import load_study, resolve_study


def must_resume(study: Path, options: SubmissionOptions, settings: Settings) -> bool:
    """Whether trials of the study are stored, or checkpoints of trials that its database has lost.

    Raises a MemtuneError for a study that cannot run.
    """
    resolved = resolve_study(study, load_study(study, options.overrides), settings).find_begun()
    has_begun = StudyReader(settings.study_database).has_begun(resolved.id)
    return has_begun or bool(Folder.open(resolved.checkpoint_root).list_names())


def main(study: str, options_json: str) -> None:
    """Replace this process by `memtune search`, which then gets the signals that stop the job."""
    options = SubmissionOptions.model_validate_json(options_json)
    try:
        resumes = must_resume(Path(study), options, Settings.from_environment())
    except MemtuneError:  # which the search raises again, with its message
        resumes = True
    words = [study, *options.list_words(), *(["--resume"] if resumes else [])]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "memtune.cli", "search", *words])


if __name__ == "__main__":
    main(*sys.argv[1:])
