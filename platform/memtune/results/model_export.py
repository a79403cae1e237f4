"""A registered model or a trial as a folder of its own, which needs neither the registry nor the corpus."""

import shutil
from pathlib import Path

from memtune.errors import StorageError
from memtune.plugins import list_sources
from memtune.results.model_sources import TrainedModel, check_model_name, open_model
from memtune.results.promotion import make_model_result
from memtune.settings import Settings
from memtune.storage.local_files import open_scratch_folder
from memtune.tracking import find_text_rules, is_trial_name, load_registered, write_run_package
from memtune.training import save_model


def export_model(
    name: str, folder: Path, settings: Settings | None = None, *, trust_code: bool = False
) -> None:
    """Write the model behind `models:/ptb@champion`, `STUDY#7` or a run's id to a new folder.

    The folder is a model of MLflow, with the files of a registered version. A trial's model is that of its
    best report; `trust_code` consents to executing the source of a user's family to read it. Raises
    StorageError for a folder that exists, and the errors of `open_model`.
    """
    check_model_name(name)
    settings = Settings.resolve(settings)
    if folder.exists():
        raise StorageError(f"{folder} exists; name a folder that does not")
    if is_trial_name(name):
        _write_trial(open_model(name, settings, trust_code=trust_code), folder)
    else:
        found = load_registered(settings.tracking_uri, name, settings.home / "models")
        shutil.copytree(found.folder, folder)


def _write_trial(opened: TrainedModel, folder: Path) -> None:
    record, vocabulary = opened.record, opened.corpus.vocabulary.tokens
    assert record is not None, "a trial has a checkpoint"
    with open_scratch_folder() as scratch:
        save_model(opened.model, scratch, opened.config.task)
        write_run_package(
            folder,
            opened.run_id,
            make_model_result(record, opened.study, None, len(vocabulary)),
            scratch,
            vocabulary,
            find_text_rules(opened.corpus),
            list_sources(opened.config.model_dump(mode="json")),
        )
