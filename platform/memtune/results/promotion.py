"""Promotion of the best model of a corpus to the registry, and evaluation of registered models."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from memtune.corpora import Corpus, open_corpus
from memtune.corpora.batching.protocols import Protocol
from memtune.errors import CheckpointError, ConfigurationError, CorpusError, TrackingError
from memtune.models.architecture import LanguageModel, Model
from memtune.search import Outcome
from memtune.settings import Settings
from memtune.spaces import RandomChooser
from memtune.storage.scratch_folder import open_scratch_folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.study import ResolvedStudy
from memtune.tasks import CacheGrid, ContinuousCache, Metrics, tune_cache
from memtune.tracking import (
    ModelResult,
    Promotion,
    Recorder,
    RegisteredVersion,
    load_registered,
    record_evaluation,
    register_if_better,
)
from memtune.training import (
    CheckpointRecord,
    TrialConfig,
    evaluate,
    find_best_report,
    find_device,
    load_best_model,
    load_model,
    read_checkpoint,
    save_model,
)

__all__ = [
    "EvaluationResult",
    "evaluate_registered",
    "has_test_split",
    "open_training_corpus",
    "promote_best_trial",
    "register_trial_model",
]

log = logging.getLogger(__name__)
STALL_SECONDS = 120
"""Seconds without any progress after which the tracking store counts as unavailable."""


@dataclass(frozen=True)
class EvaluationResult:
    """A registered model's metrics on one split."""

    version: RegisteredVersion
    split: str
    metrics: Metrics
    ideal_perplexity: float | None
    """The perplexity that no model of this split can beat, where it is known."""
    cache: ContinuousCache | None = None
    """The cache that the model was evaluated with."""
    unit: Literal["tokens", "examples"] = "tokens"
    """What is predicted; a classifier predicts examples, which have no perplexity."""


def promote_best_trial(
    study: ResolvedStudy, recorder: Recorder, outcomes: Sequence[Outcome], replace: bool
) -> Promotion | None:
    """Register the model with the best validation of a study's trials, stopped ones included.

    A trial whose checkpoints are damaged or missing is skipped with a warning. None when no trial reached a
    validation or none has a checkpoint. `replace` as in `register_trial_model`.
    """
    reached = [outcome for outcome in outcomes if outcome.curve]
    for outcome in sorted(reached, key=lambda outcome: (min(outcome.curve.values()), outcome.number)):
        checkpoints = Checkpoints(study.checkpoint_root, outcome.identity)
        try:
            return register_trial_model(
                study.settings,
                study.corpus,
                recorder,
                study.id,
                checkpoints,
                replace,
                max_tokens=max(outcome.curve),
            )
        except CheckpointError as error:
            log.warning("the model of trial %d cannot be registered: %s", outcome.number, error)
    return None


def register_trial_model(
    settings: Settings,
    corpus: Corpus,
    recorder: Recorder,
    study: str,
    checkpoints: Checkpoints,
    replace: bool,
    max_tokens: int | None = None,
) -> Promotion:
    """Offer a trial's best model to the registry, which registers it if it is the best of its corpus.

    With `replace` it is registered in any case: figures under another protocol do not compare. Weights of
    more than `max_tokens`, where the trial was stopped, are not used. Raises TrackingError when the tracking
    store does not answer, CheckpointError when no checkpoint is whole.
    """
    if not recorder.flush(STALL_SECONDS):
        raise TrackingError(
            f"{settings.tracking_uri} recorded nothing for {STALL_SECONDS} s; resume the study "
            "when it answers again"
        )
    with checkpoints.open_newest(max_tokens) as folder, open_scratch_folder() as scratch:
        record = read_checkpoint(folder).record
        save_model(load_best_model(folder), scratch, record.config.task)
        return register_if_better(
            settings.tracking_uri,
            _build_result(record, study),
            scratch,
            corpus.vocabulary.tokens,
            replace=replace,
        )


def _build_result(record: CheckpointRecord, study: str) -> ModelResult:
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
        cost=best.cost,
        configuration=record.config.model_dump(mode="json"),
        metrics={name: float(value) for name, value in figures.items() if value is not None},
        trial=record.identity,
        study=study,
        seed=record.config.seed,
    )


def evaluate_registered(
    uri: str,
    split: str = "valid",
    *,
    device: str = "cpu",
    cache: ContinuousCache | CacheGrid | None = None,
    settings: Settings | None = None,
) -> EvaluationResult:
    """Evaluate `models:/ptb@champion` or `models:/ptb/3` on a split, under the protocol it was trained with.

    The model comes from the registry alone; its corpus from the store. A network may be given a cache, or a
    grid of which the best cache on the validation split is taken. Figures on the test split are recorded with
    the version, those under a cache apart from those without. Raises TrackingError for an unknown model,
    CorpusError when the corpus is missing or holds another text than the model was trained on, and
    ConfigurationError for a cache on a model without hidden states.
    """
    settings = settings or Settings.from_environment()
    model = load_registered(settings.tracking_uri, uri, settings.home / "models")
    corpus = open_training_corpus(uri, model.version, settings)
    config = TrialConfig.model_validate(model.card.result.configuration)
    loaded = load_model(model.folder, str(find_device(device)))
    chosen = _choose_cache(cache, loaded, corpus, config.protocol, device)
    metrics = evaluate(loaded, corpus, config.protocol, split, device, chosen, config.task)
    if split == "test":
        name = f"{split}_{chosen.label}" if chosen else split
        figures = metrics.model_dump(exclude_none=True)
        record_evaluation(settings.tracking_uri, model.version, name, figures)
    ideal = corpus.manifest.ideal.get(split) if corpus.manifest.ideal else None
    return EvaluationResult(model.version, split, metrics, ideal, chosen, config.task.prediction_unit)


def has_test_split(study: ResolvedStudy) -> bool:
    """Whether the study's corpus has a test split for the study's task and protocol."""
    sample = study.sample(RandomChooser(study.study.seed))
    return sample.task.is_evaluable(study.corpus, sample.protocol, "test")


def open_training_corpus(uri: str, version: RegisteredVersion, settings: Settings) -> Corpus:
    """The corpus a registered model was trained on.

    Raises CorpusError when the store lacks it or holds another text of that name.
    """
    corpus = open_corpus(version.corpus, settings.corpus_store)
    if corpus.digest != version.corpus_digest:
        raise CorpusError(
            f'{uri} was trained on "{corpus.name}" with digest {version.corpus_digest[:12]}, the '
            f"store {settings.corpus_store} holds {corpus.digest[:12]}; import the text it was trained on"
        )
    return corpus


def _choose_cache(
    cache: ContinuousCache | CacheGrid | None, model: Model, corpus: Corpus, protocol: Protocol, device: str
) -> ContinuousCache | None:
    """The given cache, or the best of a grid on the validation split."""
    if not isinstance(cache, CacheGrid):
        return cache
    if not isinstance(model, LanguageModel):
        raise ConfigurationError(
            "a cache needs a language model, and this model is a classifier; evaluate it without a cache"
        )
    return tune_cache(model, corpus, protocol, cache, device)
