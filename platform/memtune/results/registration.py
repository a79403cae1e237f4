"""Trained models as packages: offered to the registry and described there, or written to a folder."""

import shutil
from contextlib import suppress
from pathlib import Path

from memtune.arguments import check_type
from memtune.corpora import Corpus
from memtune.errors import CheckpointError, StorageError, TrackingError
from memtune.number_format import format_parameters
from memtune.plugins import list_sources
from memtune.results.loaded_models import check_model_name, open_model
from memtune.results.study.ranking import Configuration, rank_trials
from memtune.results.study.study_leaderboard import describe_model
from memtune.seed_statistics import Estimate
from memtune.settings import SINGLE_TRIALS_FOLDER, Settings
from memtune.storage.local_files import open_scratch_folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.tracking import (
    NO_STUDY,
    LeaderboardRow,
    ModelResult,
    Recorder,
    RegisteredVersion,
    Registration,
    describe_registered,
    find_text_rules,
    is_trial_name,
    load_registered,
    read_leaderboard,
    register_if_better,
    write_run_package,
)
from memtune.training import CheckpointRecord, TrialConfig, find_best_report, save_model
from memtune.values import Value

STALL_SECONDS = 120
"""Seconds without any progress after which the tracking store counts as unavailable."""
SELECTION_RULE = (
    "The champion of a protocol and task is the configuration with the best mean over seeds on the "
    "validation split at full length. The registered weights are those of its best-validated seed. A single "
    "seed replaces it only where it is better than these. The test split does not select."
)


class StudyAnswer(Value):
    """What a study says of its winner, in words."""

    question: str
    answer: str


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


def register_configuration(settings: Settings, corpus: Corpus, config: TrialConfig) -> Registration | None:
    """Offer a configuration to the registry, with its mean over the seeds of all trainings without a study.

    The best of these seeds that has a checkpoint here is offered; None where none has one, or a validation.
    Where another process has recorded a seed meanwhile, the mean over all is offered again: one of fewer
    seeds may have replaced it. Raises TrackingError when the tracking store does not answer.
    """
    registration, offered = None, None
    while (winner := _find_best_seeds(settings, corpus, config)) and winner.estimate != offered:
        offered = winner.estimate
        for row in winner.trials:
            checkpoints = Checkpoints(settings.name_checkpoint_root(SINGLE_TRIALS_FOLDER), row.trial)
            with suppress(CheckpointError):
                registration = register_trial_model(settings, corpus, NO_STUDY, checkpoints, offered)
                break
    return registration


def _find_best_seeds(
    settings: Settings, corpus: Corpus, config: TrialConfig
) -> Configuration[LeaderboardRow] | None:
    """The recorded seeds of a configuration without a study, best first; None before a validation."""
    known = read_leaderboard(settings.tracking_uri, corpus.name, config.configuration_identity)
    ranking = rank_trials([row for row in known if row.has_read(corpus.digest)])
    return None if ranking is None else ranking.winner


def describe_registration(
    tracking_uri: str,
    corpus: Corpus,
    registration: Registration,
    config: TrialConfig,
    answer: StudyAnswer | None = None,
) -> None:
    """Describe a registered version, and its corpus's model where the version is its champion.

    Raises TrackingError when the store does not answer.
    """
    version = registration.champion or registration.version
    if version is None:
        return
    # The model is that of the main label; its other champions are described by their versions.
    is_main = version.alias == "champion"
    of_model = describe_models_of(corpus, version, answer) if is_main else None
    best = answer.answer.replace("**", "") if answer else f"{version.family}: {version.summary}."
    of_corpus = f"Best: {best} Protocol: {version.protocol}." if is_main else None
    of_version = describe_version(corpus, version, config, answer)
    describe_registered(tracking_uri, version, of_version, of_model, of_corpus)


def describe_models_of(corpus: Corpus, champion: RegisteredVersion, answer: StudyAnswer | None) -> str:
    """The description of a corpus's model, as Markdown."""
    splits = ", ".join(f"{name} {split.tokens:,}" for name, split in corpus.manifest.splits.items())
    parts = [
        f"Language models of **{corpus.name}**: {splits} tokens, {len(corpus.vocabulary):,} types.",
        *([f"**Question.** {answer.question}", f"**Answer.** {answer.answer}"] if answer else []),
        f"**Champion.** Version {champion.version}, {champion.family}, {champion.summary}.",
        f"**Protocol.** {champion.protocol}. Figures under another protocol or task do not compare.",
        f"**Selection.** {SELECTION_RULE}",
        f"`memtune best --corpus {corpus.name}` lists the champions of all protocols and tasks.",
    ]
    return "\n\n".join(parts)


def describe_version(
    corpus: Corpus, version: RegisteredVersion, config: TrialConfig, answer: StudyAnswer | None
) -> str:
    """The description of a version, as Markdown: its result first, then what it is and how to use it."""
    words = describe_model(config.model)
    size = format_parameters(config.parameter_count(len(corpus.vocabulary)))
    # Whatever a model counts, it counts the same under every seed.
    origin = f"weights of seed {config.seed}" if config.model.is_trained_by_gradient else "learns by counting"
    has_test = config.task.is_evaluable(corpus, config.protocol, "test")
    commands = [
        f"memtune evaluate {version.uri}{' --split test' if has_test else ''}",
        f'memtune generate {version.uri} --prompt "..."',
    ]
    parts = [
        version.summary,
        f"**{version.family}** {words}, {size}, protocol {version.protocol}, {origin}.",
        *([f"**Question.** {answer.question}"] if answer else []),
        "Use: " + ", ".join(f"`{command}`" for command in commands),
    ]
    return "\n\n".join(parts)


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
        configuration_identity=record.config.configuration_identity if study == NO_STUDY else "",
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
    name: str, folder: str | Path, settings: Settings | None = None, *, trust_code: bool = False
) -> None:
    """Write the model behind `models:/ptb@champion`, `STUDY#7` or a run's id to a new folder.

    The folder is a model of MLflow, with the files of a registered version. A trial's model is that of its
    best report; `trust_code` consents to executing the source of a user's family to read it. Raises
    ArgumentError for no path, StorageError for a folder that exists or cannot be made, and the errors of
    `open_model`.
    """
    check_model_name(name)
    check_type("folder", folder, (str, Path), 'a folder that does not exist yet, such as "lstm_model"')
    settings, folder = Settings.resolve(settings), Path(folder)
    if folder.exists():
        raise StorageError(f"{folder} exists; name a folder that does not")
    if not is_trial_name(name):
        found = load_registered(settings.tracking_uri, name, settings.home / "models")
        _make_folder(folder)
        shutil.copytree(found.folder, folder, dirs_exist_ok=True)
        return
    opened = open_model(name, settings, trust_code=trust_code)
    vocabulary = opened.corpus.vocabulary.tokens
    assert opened.record is not None, "a trial has a checkpoint"
    _make_folder(folder)
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


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot write to {folder}: {reason}; choose another place") from None
