"""Trained models as packages: offered to the registry, or written to a folder of their own."""

import shutil
from pathlib import Path

from memtune.corpora import Corpus
from memtune.errors import StorageError, TrackingError
from memtune.plugins import list_sources
from memtune.results.loaded_models import check_model_name, open_model
from memtune.results.study.study_description import StudyAnswer, describe_registration
from memtune.seed_statistics import Estimate
from memtune.settings import Settings
from memtune.storage.local_files import open_scratch_folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.tracking import (
    ModelResult,
    Recorder,
    Registration,
    find_text_rules,
    is_trial_name,
    load_registered,
    register_if_better,
    write_run_package,
)
from memtune.training import CheckpointRecord, find_best_report, save_model

STALL_SECONDS = 120
"""Seconds without any progress after which the tracking store counts as unavailable."""


def register_trial_model(
    settings: Settings,
    corpus: Corpus,
    study: str,
    checkpoints: Checkpoints,
    estimate: Estimate | None = None,
    *,
    as_champion: bool = True,
    max_tokens: int | None = None,
    answer: StudyAnswer | None = None,
) -> Registration:
    """Offer a trial's best model to the registry, which keeps the best of each label and family.

    The trial must be recorded. `estimate` is the cost of its configuration over several seeds; without it
    the trial's own cost counts. Weights of more than `max_tokens`, where the trial was stopped, are not used.
    `answer` is part of the registry's descriptions.
    Raises TrackingError when the tracking store does not answer, CheckpointError
    when no checkpoint is whole.
    """
    checkpoint = checkpoints.read(max_tokens)
    record = checkpoint.record
    with open_scratch_folder() as scratch:
        save_model(checkpoint.build_best_model(), scratch, record.config.task)
        registration = register_if_better(
            settings.tracking_uri,
            make_model_result(record, study, estimate, len(corpus.vocabulary)),
            scratch,
            corpus.vocabulary.tokens,
            rules=find_text_rules(corpus),
            sources=list_sources(record.config.model_dump(mode="json")),
            as_champion=as_champion,
        )
    describe_registration(settings.tracking_uri, corpus, registration, record.config, answer)
    return registration


def wait_for_records(recorder: Recorder, settings: Settings) -> None:
    """Wait until everything is recorded. Raises TrackingError when the tracking store does not answer."""
    if not recorder.flush(STALL_SECONDS):
        raise TrackingError(
            f"{settings.tracking_uri} recorded nothing for {STALL_SECONDS} s; resume the study "
            "when it answers again"
        )


def make_model_result(
    record: CheckpointRecord, study: str, estimate: Estimate | None, vocabulary_size: int
) -> ModelResult:
    """The result of a checkpoint's best weights; without an `estimate` their own cost counts."""
    best = find_best_report(record.curve)
    assert best is not None, "a checkpoint with best weights has a best report"
    assert best.cost is not None, "the best report was validated"
    figures = best.model_dump(
        include={"train_loss", "valid_loss", "valid_perplexity", "valid_accuracy", "tokens"}
    )
    return ModelResult(
        corpus=record.corpus,
        corpus_digest=record.corpus_digest,
        label=record.config.label,
        objective=best.objective,
        cost=best.cost if estimate is None else estimate.cost,
        estimate=estimate,
        trial_cost=best.cost,
        configuration=record.config.model_dump(mode="json"),
        metrics={name: float(value) for name, value in figures.items() if value is not None},
        trial=record.identity,
        study=study,
        seed=record.config.seed,
        parameters=record.config.parameter_count(vocabulary_size),
    )


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
    if not is_trial_name(name):
        found = load_registered(settings.tracking_uri, name, settings.home / "models")
        shutil.copytree(found.folder, folder)
        return
    opened = open_model(name, settings, trust_code=trust_code)
    vocabulary = opened.corpus.vocabulary.tokens
    assert opened.record is not None, "a trial has a checkpoint"
    with open_scratch_folder() as scratch:
        save_model(opened.model, scratch, opened.config.task)
        write_run_package(
            folder,
            opened.run_id,
            make_model_result(opened.record, opened.study, None, len(vocabulary)),
            scratch,
            vocabulary,
            find_text_rules(opened.corpus),
            list_sources(opened.config.model_dump(mode="json")),
        )
