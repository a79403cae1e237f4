"""Evaluation of registered models and of trials, also with rare words as `<unk>`.

Tran, Bisazza and Monz (2016) keep a word that occurs more than five times in their training sentences. A
model with a larger vocabulary gives the same figure by a sum: the probabilities of `<unk>` and of all rarer
words are added, and a rare word counts as predicted when `<unk>` is.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from memtune.arguments import check_type
from memtune.corpora import UNK, Corpus, TextUnits, count_text_units
from memtune.corpora.batching.protocols import Plan, TextProtocol
from memtune.data_frames import make_frame, render_table
from memtune.errors import ConfigurationError
from memtune.models import NeuralLanguageModel, logits
from memtune.results.loaded_models import TrainedModel, open_model
from memtune.results.other_texts import read_other_text, write_word_log_probabilities
from memtune.seed_statistics import Estimate
from memtune.settings import Settings
from memtune.tasks import CacheGrid, ContinuousCache, Metrics, tune_cache
from memtune.tracking import record_evaluation
from memtune.training import evaluate as evaluate_split


@dataclass(frozen=True)
class EvaluationResult:
    """A model's metrics on one split."""

    model: str
    """The version's URI, or the trial as the user named it."""
    label: str
    """Protocol and task; figures compare only under one label."""
    split: str
    metrics: Metrics
    ideal_perplexity: float | None
    """The perplexity that no model of this split can beat, where it is known."""
    cache: ContinuousCache | None = None
    """The cache that the model was evaluated with."""
    unit: Literal["tokens", "examples"] = "tokens"
    """What is predicted; a classifier predicts examples, which have no perplexity."""
    units: TextUnits | None = None
    """Words and bytes of the text, where every token was predicted once."""
    corpus: str | None = None
    """The corpus of the text, where that is not the model's own."""
    interval: tuple[float, float] | None = None
    """The 95 % interval of the perplexity or accuracy over texts like the test split, without a cache."""

    def to_frame(self) -> Any:
        """A pandas data frame with one row: the model, the text, and all figures."""
        names = {"model": self.model, "protocol": self.label, "corpus": self.corpus, "split": self.split}
        cache = {} if self.cache is None else {"cache": self.cache.label}
        return make_frame([{**names, **cache, **self.metrics.model_dump(), **self.text_figures}])

    def __repr__(self) -> str:
        text = self.split if self.corpus is None else f"{self.split} of {self.corpus}"
        name = "perplexity" if self.unit == "tokens" else "loss"
        name = name if self.metrics.accuracy is None else "accuracy"
        return f"EvaluationResult({self.model} on {text}: {name} {getattr(self.metrics, name):.3f})"

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        ideal = f", ideal perplexity {self.ideal_perplexity:.3f}" if self.ideal_perplexity else ""
        return render_table(f"{self.model} on {self.split}{ideal}", frame.dropna(axis="columns"))

    @property
    def text_figures(self) -> dict[str, float]:
        """The figures that compare over tokenisations: perplexity per word and per byte, bits per byte."""
        return {} if self.units is None else self.units.compute_figures(self.metrics.loss)


def evaluate(
    name: str,
    split: str = "valid",
    *,
    device: str = "cpu",
    cache: ContinuousCache | CacheGrid | None = None,
    corpus: str | None = None,
    words: str | Path | None = None,
    settings: Settings | None = None,
    trust_code: bool = False,
) -> EvaluationResult:
    """Evaluate a registered version or a trial on a split, under the protocol it was trained with.

    `corpus` names another text of the store, which is read in the model's vocabulary. The log probabilities
    of the words are written to the Parquet file `words`.

    `name` is as in `open_model`: `models:/ptb@champion`, `models:/ptb/3`, `STUDY#7` or a run's id. A network
    may be given a cache, or a grid of which the best cache on the validation split is taken. Each access to
    the test split is recorded, with its figures; those under a cache apart from those without. Raises the
    errors of `open_model`, which `trust_code` is for, and ConfigurationError for a cache on a model without
    hidden states.
    """
    expected = "ContinuousCache(size=2000), or CacheGrid() to choose one on the validation split"
    check_type("cache", cache, (ContinuousCache, CacheGrid, type(None)), expected)
    check_type("words", words, (str, Path, type(None)), 'a Parquet file, such as "words.parquet"')
    if words is not None and Path(words).suffix != ".parquet":
        raise ConfigurationError(
            f"words = {str(words)!r} is written as Parquet; name it {Path(words).with_suffix('.parquet')}"
        )
    settings = Settings.resolve(settings)
    opened = open_model(name, settings, device, trust_code=trust_code)
    config = opened.config
    if isinstance(cache, CacheGrid):
        reader = opened.model.require_language_model("a cache")
        cache = tune_cache(reader, opened.corpus, config.protocol, cache, device)
    if words is not None and cache is not None:
        raise ConfigurationError(
            "the probabilities of words are those without a cache; leave one of them out"
        )
    text = opened.corpus
    if corpus is not None or config.task.is_evaluable(text, config.protocol, split):
        opened.record_access(split, corpus)
    if corpus is not None and corpus != text.name:
        text, units = read_other_text(text, corpus, split, settings.corpus_store)
    else:
        units = count_text_units(text, split) if split in text.splits else TextUnits(0, 0, 0, 0)
    metrics = evaluate_split(opened.model, text, config.protocol, split, device, cache, config.task)
    if words is not None:
        write_word_log_probabilities(opened.model, text, config.protocol, split, Path(words), device)
    ideal = text.manifest.ideal.get(split) if text.manifest.ideal and corpus is None else None
    interval = _compute_interval(opened, text, split, device) if split == "test" and cache is None else None
    result = EvaluationResult(
        opened.name,
        config.label,
        split,
        metrics,
        ideal_perplexity=ideal,
        cache=cache,
        unit=config.task.prediction_unit,
        units=units if units.tokens == metrics.tokens else None,
        corpus=corpus,
        interval=interval,
    )
    if split == "test":
        name = "_".join(filter(None, (split, cache.label if cache else None, corpus)))
        figures = metrics.model_dump(exclude_none=True) | result.text_figures
        record_evaluation(settings.tracking_uri, opened.run_id, name, figures, opened.version)
    return result


def _compute_interval(
    opened: TrainedModel, text: Corpus, split: str, device: str
) -> tuple[float, float] | None:
    """The 95 % interval of the figure over the items of a split; None for too few items."""
    task = opened.config.task.open(text, opened.config.protocol)
    low, high = task.compute_item_costs(opened.model, split, device).compute_interval() or (None, None)
    return Estimate(cost=0.0, low=low, high=high).compute_interval(task.objective)


@dataclass(frozen=True)
class MergedPerplexity:
    """Two perplexities per token of one model, lower is better."""

    full: float
    """Over the model's own vocabulary."""
    merged: float
    """With rare words as `<unk>`."""
    vocabulary_size: int
    rare_words: int
    """The number of words that count as `<unk>`."""


def compute_merged_perplexity(
    model: str, split: str, max_count: int, settings: Settings | None = None, *, trust_code: bool = False
) -> MergedPerplexity:
    """Evaluate a registered model, words that occur at most `max_count` times in training counted as `<unk>`.

    Training counts are those of the sentences that the model's protocol keeps. Raises TrackingError for an
    unknown model, ConfigurationError for one that is not a neural language model of texts, and CorpusError
    for a missing corpus.
    """
    opened = open_model(model, settings, trust_code=trust_code)
    corpus, purpose = opened.corpus, f"the perplexity of {model} with rare words merged"
    protocol = opened.config.protocol.require_text(purpose)
    network = opened.model.eval().require_language_model(purpose).require_network(purpose)
    is_merged_V = torch.from_numpy(_count_targets(corpus, protocol) <= max_count)
    is_merged_V[corpus.vocabulary.get_id(UNK)] = True
    plan = protocol.evaluation_plan(corpus[split])
    opened.record_access(split)
    full, merged = _compute_perplexities(network, plan, is_merged_V)
    return MergedPerplexity(full, merged, len(is_merged_V), int(is_merged_V.sum()) - 1)


def _count_targets(corpus: Corpus, protocol: TextProtocol) -> np.ndarray:
    """How often one epoch of the training split predicts each word, shape (V,)."""
    plan = protocol.evaluation_plan(corpus["train"])
    counts_V = np.zeros(len(corpus.vocabulary), np.int64)
    for index in range(len(plan)):
        np.add.at(counts_V, plan.batch(index).targets_BT.numpy(), 1)
    return counts_V


@torch.inference_mode()
def _compute_perplexities(
    model: NeuralLanguageModel, plan: Plan, is_merged_V: torch.Tensor
) -> tuple[float, float]:
    """Perplexity over the whole vocabulary, and with the marked words as one."""
    full, merged, state = 0.0, 0.0, None
    for index in range(len(plan)):
        batch = plan.batch(index)
        logits_BTV, state = logits(model, batch.inputs_BT, state if batch.carries_state else None)
        log_NV = logits_BTV.log_softmax(-1).flatten(0, 1)
        targets_N = batch.targets_BT.flatten()
        target_N = log_NV.gather(1, targets_N[:, None])[:, 0]
        merged_N = log_NV[:, is_merged_V].logsumexp(1)
        full -= target_N.double().sum().item()
        merged -= torch.where(is_merged_V[targets_N], merged_N, target_N).double().sum().item()
    return math.exp(full / plan.token_count), math.exp(merged / plan.token_count)
