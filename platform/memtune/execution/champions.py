"""From trials to the registry and back: the best model of a corpus, put there and evaluated from there."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memtune.corpora import Corpus, open_corpus
from memtune.corpora.protocols import Protocol
from memtune.errors import ConfigurationError, CorpusError, TrackingError
from memtune.execution.checkpoints import Checkpoints
from memtune.execution.settings import Settings
from memtune.execution.study import ReadyStudy
from memtune.execution.wording import unit
from memtune.models.interface import LanguageModel, Model
from memtune.search import Outcome
from memtune.tasks import CacheGrid, ContinuousCache, Metrics, tune_cache
from memtune.tracking import (
    Champion,
    Decision,
    Recorder,
    Result,
    load_registered,
    record_evaluation,
    register_champion,
)
from memtune.training import (
    Record,
    TrialConfig,
    best_report,
    evaluate,
    find_device,
    load_best_model,
    load_model,
    read_checkpoint,
    save_model,
)

__all__ = ["Evaluated", "crown", "evaluate_registered", "is_evaluable", "register", "trained_corpus"]

FLUSH_SECONDS = 120


@dataclass(frozen=True)
class Evaluated:
    """A registered model's metrics on one split, and what it is."""

    champion: Champion
    split: str
    metrics: Metrics
    ideal: float | None
    """The perplexity that no model of this split can beat, where it is known."""
    cache: ContinuousCache | None = None
    """The cache the model was given, as it was chosen."""
    unit: Literal["tokens", "examples"] = "tokens"
    """What was predicted; a classifier's examples have no perplexity to speak of."""


def crown(
    ready: ReadyStudy, recorder: Recorder, outcomes: Sequence[Outcome], replace: bool
) -> Decision | None:
    """Register the model with the best validation of a study's trials, stopped ones included.

    None when no trial reached a validation. `replace` as in `register`.
    """
    reached = [outcome for outcome in outcomes if outcome.curve]
    if not reached:
        return None
    winner = min(reached, key=lambda outcome: (min(outcome.curve.values()), outcome.number))
    checkpoints = Checkpoints(ready.checkpoints, winner.identity)
    return register(ready.settings, ready.corpus, recorder, ready.id, checkpoints, replace)


def register(
    settings: Settings,
    corpus: Corpus,
    recorder: Recorder,
    study: str,
    checkpoints: Checkpoints,
    replace: bool,
) -> Decision:
    """Offer a trial's best model to the registry, which takes it if it is the best of its corpus.

    With `replace` it is taken whatever the champion is: figures under another protocol do not compare. Raises
    TrackingError when the tracking store does not answer, CheckpointError when no checkpoint is whole.
    """
    if not recorder.flush(FLUSH_SECONDS):
        raise TrackingError(f"{settings.tracking} does not answer; resume the study when it does")
    with checkpoints.newest() as folder, tempfile.TemporaryDirectory(prefix="memtune-champion-") as scratch:
        record = read_checkpoint(folder).record
        save_model(load_best_model(folder), Path(scratch), record.config.task)
        return register_champion(
            settings.tracking,
            _result(record, study),
            Path(scratch),
            corpus.vocabulary.tokens,
            replace=replace,
        )


def _result(record: Record, study: str) -> Result:
    best = best_report(record.curve)
    assert best is not None, "a checkpoint with best weights has a best report"
    assert best.cost is not None, "the best report was validated"
    figures = best.model_dump(
        include={"train_loss", "valid_loss", "valid_perplexity", "valid_accuracy", "tokens"}
    )
    return Result(
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
) -> Evaluated:
    """Evaluate `models:/ptb@champion` or `models:/ptb/3` on a split, under the protocol it was trained with.

    The model comes from the registry alone; its corpus from the store. A network may be given a cache, or a
    grid of which the best cache on the validation split is taken. Figures on the test split are recorded with
    the version, those under a cache apart from those without. Raises TrackingError for an unknown model,
    CorpusError when the corpus is missing or holds another text than the model was trained on, and
    ConfigurationError for a cache on a model without hidden states.
    """
    settings = settings or Settings.read()
    model = load_registered(settings.tracking, uri, settings.home / "models")
    corpus = trained_corpus(uri, model.champion, settings)
    config = TrialConfig.model_validate(model.card.result.configuration)
    loaded = load_model(model.folder, str(find_device(device)))
    chosen = _chosen(cache, loaded, corpus, config.protocol, device)
    metrics = evaluate(loaded, corpus, config.protocol, split, device, chosen, config.task)
    if split == "test":
        name = f"{split}_{chosen.label}" if chosen else split
        figures = metrics.model_dump(exclude_none=True)
        record_evaluation(settings.tracking, model.champion, name, figures)
    ideal = corpus.manifest.ideal.get(split) if corpus.manifest.ideal else None
    return Evaluated(model.champion, split, metrics, ideal, chosen, unit(config.task))


def is_evaluable(corpus: Corpus, config: TrialConfig, split: str) -> bool:
    """Whether a split has what a trial's task and protocol read: text, and questions, labels or trees."""
    kind, asked = config.task.kind, corpus.questions
    if unit(config.task) == "tokens" and split not in corpus.splits:
        return False
    if config.protocol.kind == "tree" and split not in corpus.annotations.get("trees", {}):
        return False
    return kind == "language_modelling" or (asked is not None and split in asked.annotations.get(kind, {}))


def trained_corpus(uri: str, champion: Champion, settings: Settings) -> Corpus:
    """The corpus a registered model was trained on.

    Raises CorpusError when the store lacks it or holds another text of that name.
    """
    corpus = open_corpus(champion.corpus, settings.store)
    if corpus.digest != champion.corpus_digest:
        raise CorpusError(
            f'{uri} was trained on "{corpus.name}" with digest {champion.corpus_digest[:12]}, the '
            f"store {settings.store} holds {corpus.digest[:12]}; import the text it was trained on"
        )
    return corpus


def _chosen(
    cache: ContinuousCache | CacheGrid | None, model: Model, corpus: Corpus, protocol: Protocol, device: str
) -> ContinuousCache | None:
    """The cache as it is given, or the best of a grid on the validation split."""
    if not isinstance(cache, CacheGrid):
        return cache
    if not isinstance(model, LanguageModel):
        raise ConfigurationError("a cache remembers words to predict, and this model predicts none")
    return tune_cache(model, corpus, protocol, cache, device)
