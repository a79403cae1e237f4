"""One configuration trained in this process, without Ray, and recorded like a trial of a study."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from memtune.arguments import check_type
from memtune.corpora import Corpus
from memtune.corpora.probes.probe_corpora import open_or_draw_corpus
from memtune.data_frames import make_frame, render_table
from memtune.errors import StudyError
from memtune.library import FileKind, find_file
from memtune.model_checks.check_run import check_new_families
from memtune.models.layers.placed_dropout import explain_unused_dropout
from memtune.objective import Objective
from memtune.plugins import list_sources, store_sources
from memtune.results.model_evaluation import evaluate
from memtune.results.registration import register_configuration, wait_for_records
from memtune.settings import SINGLE_TRIALS_FOLDER, Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.study import copy_as_toml
from memtune.studies.definition.toml_files import load_listed_models, name_place, override_fields, read_toml
from memtune.studies.trial_records import (
    collect_trial_files,
    collect_trial_parameters,
    describe_trial_run,
    make_corpus_input,
    make_trial_tags,
)
from memtune.toml_text import locate_field
from memtune.tracking import Recorder, Registration, check_tracking, find_evaluation
from memtune.training import AnyTrainer, Progress, Report, TrialConfig, create_trainer
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import Place, Value, parse

log = logging.getLogger(__name__)

TrialSource = str | Path | Mapping[str, Any]
"""A trial as users give it: a TOML file or the name of a packaged trial, or the content of such a file."""


class TrialFile(Value):
    """The content of a trial file: a question, a corpus, and one configuration."""

    question: str = ""
    corpus: str
    trial: TrialConfig


@dataclass(frozen=True)
class TrainResult:
    """The result of one training."""

    name: str
    identity: str
    curve: list[Report]
    best: Report | None
    initial_tokens: int
    """Tokens seen before this call: 0 for a new trial, all of them for one that had ended before."""
    registration: Registration | None
    unit: str
    """What `tokens` counts, such as tokens or examples."""
    has_test_split: bool
    corpus: str

    @property
    def cost(self) -> float | None:
        """The best validation cost, lower is better; None without one, and for a seed that diverged."""
        return None if self.best is None or self.curve[-1].has_diverged else self.best.cost

    def curves(self) -> Any:
        """A pandas data frame with a row for each report."""
        return make_frame(report.model_dump(exclude={"end", "objective"}) for report in self.curve)

    def __repr__(self) -> str:
        return f"TrainResult({self.name}: {self._describe_best()})"

    def _repr_html_(self) -> str:
        shown = ["tokens", "train_perplexity", "valid_perplexity", "valid_accuracy", "tokens_per_second"]
        return render_table(
            f"{self.name}: {self._describe_best()}", self.curves()[shown].dropna(axis="columns")
        )

    def _describe_best(self) -> str:
        if self.best is None or self.best.cost is None:
            return "no validation"
        figure = self.best.objective.format_cost(self.best.cost, 3)
        return f"best validation {self.best.objective} {figure} at {self.best.tokens:,} {self.unit}"


def load_trial(path: Path, overrides: Mapping[str, Any] | None = None) -> TrialFile:
    """The trial in a TOML file, with `overrides` by dotted name in place of its values.

    The files of its list `models` are executed. Raises StudyError when the file cannot be read or holds a
    study, PluginError for a file of `models` that cannot be used, ConfigurationError for an unknown field.
    """
    return _read_trial(read_toml(path), path, overrides)


def open_trial(source: TrialSource, overrides: Mapping[str, Any] | None) -> tuple[str, TrialFile]:
    """A trial with the name of its runs: that of its file, or the family for a trial of a program."""
    expected = "a TOML file, the name of a packaged trial, or a mapping with the content of a file"
    check_type("trial", source, (str, Path, Mapping), expected)
    if isinstance(source, Mapping):
        trial = _read_trial(copy_as_toml(source), None, overrides)
        return trial.trial.model.family, trial
    path = find_file(FileKind.TRIAL, Path(source))
    return path.stem, load_trial(path, overrides)


def _read_trial(
    document: dict[str, Any], path: Path | None, overrides: Mapping[str, Any] | None
) -> TrialFile:
    override_fields(document, copy_as_toml(overrides))
    place = name_place(path, "trial")
    if "spaces" in document:
        command = "memtune.run_search(...)" if path is None else f"memtune search {path}"
        raise StudyError(f"{place} names search spaces, so it is a study; run: {command}")
    load_listed_models(document, path, "trial")
    document.pop("models", None)
    return parse_trial(document, lambda name: locate_field(place, name))


def parse_trial(document: dict[str, Any], where: Place) -> TrialFile:
    """The trial in the content of a file. Raises ConfigurationError, which begins with `where`."""
    fields = dict(document)
    named: dict[str, Any] = {name: fields.pop(name) for name in ("question", "corpus") if name in fields}
    named["trial"] = parse(TrialConfig, fields, where)
    return TrialFile.model_validate(parse(TrialFile, named, where))


def train_trial(
    file: TrialFile,
    name: str,
    *,
    device: str,
    settings: Settings,
    on_progress: Callable[[Progress], None] | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
    registers: bool = True,
) -> TrainResult:
    """Train a configuration recorded under `name`, from its last checkpoint when there is one.

    While another process trains it, this one waits; then it continues where that one ended. `on_progress` is
    called a few times a second, `on_report` at each milestone. With `registers` the configuration is
    registered when its mean over the seeds of all such trainings is the best of its label or of its family.
    Raises a MemtuneError before training when something that the file names is missing.
    """
    corpus = open_or_draw_corpus(file.corpus, settings.corpus_store)
    check_tracking(settings.tracking_uri, corpus.name)
    check_new_families([file.trial])
    if problem := explain_unused_dropout(file.trial.model):
        log.warning("%s: %s", name, problem)
    checkpoints = open_checkpoints(file.trial, corpus, settings)
    folder = f"{settings.studies_folder}/{SINGLE_TRIALS_FOLDER}"
    store_sources(folder, list_sources(file.trial.model_dump(mode="json")))
    with checkpoints.hold(), Recorder(settings.tracking_uri, corpus.name) as recorder:
        trainer = checkpoints.restore(corpus, device) or create_trainer(file.trial, corpus, device)
        initial_tokens = trainer.tokens
        config, vocabulary_size = trainer.config, len(corpus.vocabulary)
        recorder.start_trial(
            trainer.identity,
            f"{name} seed {config.seed}",
            collect_trial_parameters(config, vocabulary_size),
            {**make_trial_tags(config, corpus), "name": name},
            make_corpus_input(corpus, settings),
            description=describe_trial_run(config, vocabulary_size, ""),
        )
        recorder.log_files(trainer.identity, collect_trial_files(config))
        recorder.log_reports(trainer.identity, trainer.curve)
        _train_and_record(trainer, checkpoints, recorder, on_progress, on_report)
        registration = None
        wait_for_records(recorder, settings)
        if trainer.best and registers:
            registration = register_configuration(settings, corpus, config)
    return TrainResult(
        name,
        trainer.identity,
        trainer.curve,
        trainer.best,
        initial_tokens,
        registration,
        unit=config.task.prediction_unit,
        has_test_split=config.task.is_evaluable(corpus, config.protocol, "test"),
        corpus=corpus.name,
    )


def read_test_figure(
    trained: TrainResult, objective: Objective, settings: Settings, device: str
) -> tuple[str | None, float | None]:
    """The run of a training and the test figure of its best weights, which are recorded at the first reading.

    None for a training without a recorded run and for a corpus without a test split.
    """
    recorded = find_evaluation(settings.tracking_uri, trained.corpus, trained.identity)
    if recorded is None:
        return None, None
    if objective in recorded.figures:
        return recorded.run_id, recorded.figures[objective]
    if not trained.has_test_split:
        return recorded.run_id, None
    metrics = evaluate(recorded.run_id, "test", device=device, settings=settings).metrics
    return recorded.run_id, objective.compute_figure(metrics.cost(objective))


def train_at_best_rate(
    file: TrialFile, rates: Sequence[float], seeds: int, train: Callable[[TrialFile], TrainResult]
) -> list[tuple[TrialFile, TrainResult]]:
    """Choose the learning rate with the lowest validation cost under the file's seed; train so many seeds.

    Returns the trial of each seed, the file's own first; without rates all have the file's own rate.
    """

    def vary(own: TrialFile, **changes: Any) -> TrialFile:
        return own.model_copy(update={"trial": own.trial.model_copy(update=changes)})

    files = [file]
    if rates:
        training = file.trial.gradient_training
        optimisers = [training.optimiser.model_copy(update={"learning_rate": rate}) for rate in rates]
        files = [vary(file, training=training.model_copy(update={"optimiser": own})) for own in optimisers]
    tried = [(own, train(own)) for own in files]
    best = min(tried, key=lambda pair: inf if pair[1].best is None else pair[1].best.cost or 0.0)
    others = [vary(best[0], seed=file.trial.seed + index) for index in range(1, seeds)]
    return [best, *((other, train(other)) for other in others)]


def open_checkpoints(trial: TrialConfig, corpus: Corpus, settings: Settings) -> Checkpoints:
    """The checkpoints of a configuration that is trained without a study."""
    return Checkpoints(settings.name_checkpoint_root(SINGLE_TRIALS_FOLDER), trial.identity(corpus.digest))


def _train_and_record(
    trainer: AnyTrainer,
    checkpoints: Checkpoints,
    recorder: Recorder,
    on_progress: Callable[[Progress], None] | None,
    on_report: Callable[[Report], None],
) -> None:
    try:
        while not trainer.is_finished:
            latest = trainer.advance(on_progress)
            checkpoints.save(trainer)
            recorder.log_reports(trainer.identity, [latest])
            on_report(latest)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            recorder.finish_trial(trainer.identity, TrialState.INTERRUPTED)
        else:
            end = TrialEnd(reason=StopReason.ERROR, detail=str(error) or type(error).__name__)
            recorder.finish_trial(trainer.identity, TrialState.FAILED, end)
        raise
    state = TrialState.FAILED if trainer.best is None else TrialState.COMPLETE
    recorder.finish_trial(trainer.identity, state, trainer.curve[-1].end)
