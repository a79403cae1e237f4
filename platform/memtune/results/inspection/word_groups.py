"""The perplexity of models on groups of words, by what a memory could have kept of them.

By context: whether the predicted word and the word before it were read together before, or the predicted
word alone, or not. A pair that was read and that the training text does not have asks for recall: Arora et
al. (2023, "Zoology", section 3) separate rare pairs from frequent ones, which a model knows without a memory.
By training text: how often that has the predicted word.

Shapes: N predicted words, I sentences, each ending with `<eos>`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memtune.corpora import UNK, Corpus
from memtune.corpora.batching.batches import BOUNDARY
from memtune.errors import ConfigurationError
from memtune.models import find_device
from memtune.objective import Objective
from memtune.results.loaded_models import TrainedModel
from memtune.tasks.item_costs import ItemCosts, compute_token_nats
from memtune.values import Value

CONTEXT_WORDS = 500
"""Before the predicted word, where a text is read on across sentences; else those of its sentence."""
NEW_PAIR, KNOWN_PAIR, WORD, NEW, UNKNOWN, END = CONTEXTS = (
    "pair read before, not in training",
    "pair read before, in training",
    "word read before",
    "word not read before",
    "unknown word",
    "end of a sentence",
)
COUNT_BOUNDS = (1, 10, 100, 1000, 10_000)
"""Training counts that begin a group."""


class GroupFigure(Value):
    """The figure of a model on a group of words."""

    perplexity: float
    interval: tuple[float, float] | None
    """95 %, over sentences; None below 20 of them."""
    change: float | None
    """Per cent that the perplexity is higher than the first model's; None for the first model."""
    change_interval: tuple[float, float] | None
    """95 %, over the same sentences."""


class GroupedModel(Value):
    """The figures of a model on all groups."""

    model: str
    memory: str
    """Its family, or the mixer of its blocks."""
    figures: tuple[GroupFigure, ...]
    """In the order of the groups."""


class WordGroup(Value):
    """Words that are predicted."""

    name: str
    predictions: int
    share: float
    """Of all predictions of the split."""


class WordGroups(Value):
    """Models on the same text: the groups, and the figures of each model."""

    split: str
    groups: tuple[WordGroup, ...]
    models: tuple[GroupedModel, ...]


def compare_on_groups(models: Sequence[TrainedModel], split: str = "valid") -> WordGroups:
    """The perplexity of each model on each group of words, and its change from that of the first model.

    Raises ConfigurationError for a classifier, for trees, and for models that predict different words.
    """
    first, purpose = models[0], "the perplexity on groups of words"
    for model in models:
        model.model.require_language_model(purpose)
        model.config.protocol.require_text(purpose)
        terms = [(each.config.protocol.label, each.corpus.vocabulary.digest) for each in (first, model)]
        if terms[0] != terms[1]:
            raise _refuse(model, first)
    words_N, nats = np.empty(0, np.int64), list[NDArray[np.float64]]()
    for model in models:
        found_N, nats_N = _predict(model, split)
        if nats and not np.array_equal(found_N, words_N):
            raise _refuse(model, first)
        words_N = found_N
        nats.append(nats_N)
    groups = {
        "all words": np.ones(len(words_N), bool),
        **_group_by_context(words_N, first.corpus, first.config.protocol.carries_state),
        **_group_by_count(words_N, first.corpus),
    }
    groups = {name: own_N for name, own_N in groups.items() if own_N.any()}
    return WordGroups(
        split=split,
        groups=tuple(
            WordGroup(name=name, predictions=int(own_N.sum()), share=float(own_N.mean()))
            for name, own_N in groups.items()
        ),
        models=tuple(
            GroupedModel(
                model=model.name,
                memory=model.memory,
                figures=tuple(
                    _measure(words_N, own_N, nats_N, None if place == 0 else nats[0])
                    for own_N in groups.values()
                ),
            )
            for place, (model, nats_N) in enumerate(zip(models, nats, strict=True))
        ),
    )


def _refuse(model: TrainedModel, first: TrainedModel) -> ConfigurationError:
    return ConfigurationError(
        f"{model.name} predicts other words than {first.name}; name models of one text and protocol"
    )


def _predict(model: TrainedModel, split: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """words_N in the order of the text, and nats_N."""
    model.record_access(split)
    reader = model.model.require_language_model("a text")
    plan = model.config.protocol.require_text("a text").text_plan(model.corpus[split])
    return compute_token_nats(reader, plan, find_device(reader))


def _group_by_context(
    words_N: NDArray[np.int64], corpus: Corpus, carries_state: bool
) -> dict[str, NDArray[np.bool_]]:
    """For each group, whether a prediction belongs to it; each belongs to one."""
    # Without `<unk>` both are the boundary, and the last one counts.
    signs = {corpus.vocabulary.ids.get(UNK, BOUNDARY): UNKNOWN, BOUNDARY: END}
    last_place: dict[int | tuple[int, int], int] = {}
    names, before, start = list[str](), BOUNDARY, 0
    for place, word in enumerate(words_N.tolist()):
        first = max(0, place - CONTEXT_WORDS) if carries_state else start
        if word in signs:
            names.append(signs[word])
        elif before not in signs and last_place.get((before, word), -1) >= first:
            names.append(NEW_PAIR)
        else:
            names.append(WORD if last_place.get(word, -1) >= first else NEW)
        last_place[word] = last_place[before, word] = place
        before = word
        start = place + 1 if word == BOUNDARY else start
    found = {name: np.array(names) == name for name in CONTEXTS}
    is_known_N = _find_training_pairs(words_N, corpus)
    found[KNOWN_PAIR] = found[NEW_PAIR] & is_known_N
    found[NEW_PAIR] &= ~is_known_N
    return found


def _find_training_pairs(words_N: NDArray[np.int64], corpus: Corpus) -> NDArray[np.bool_]:
    """Whether the training text has each word after the word before it."""
    size, last, is_known_N = len(corpus.vocabulary), BOUNDARY, np.zeros(len(words_N), bool)
    pairs_N = size * np.append(BOUNDARY, words_N[:-1]) + words_N
    for ids in corpus["train"].iterate_tokens():
        is_known_N |= np.isin(pairs_N, size * np.append(last, ids[:-1]) + ids)
        last = int(ids[-1])
    return is_known_N


def _group_by_count(words_N: NDArray[np.int64], corpus: Corpus) -> dict[str, NDArray[np.bool_]]:
    """By the training count of the predicted word, without `<eos>` and `<unk>`."""
    size = len(corpus.vocabulary)
    counts_V = sum(
        (np.bincount(ids, minlength=size) for ids in corpus["train"].iterate_tokens()), np.zeros(size)
    )
    is_word_N = ~np.isin(words_N, [BOUNDARY, corpus.vocabulary.ids.get(UNK, BOUNDARY)])
    counts_N = counts_V[words_N]
    found = {"not in training": is_word_N & (counts_N == 0)}
    for low, high in zip(COUNT_BOUNDS, [*COUNT_BOUNDS[1:], np.inf], strict=True):
        name = f"{low:,} or more in training" if high == np.inf else f"{low:,} to {high - 1:,} in training"
        found[name] = is_word_N & (counts_N >= low) & (counts_N < high)
    return found


def _measure(
    words_N: NDArray[np.int64],
    own_N: NDArray[np.bool_],
    nats_N: NDArray[np.float64],
    first_N: NDArray[np.float64] | None,
) -> GroupFigure:
    """The figure of a model on the predictions of a group, and its change from that of the first model."""
    sentences_N = np.cumsum(words_N == BOUNDARY) - (words_N == BOUNDARY)

    def collect(values_N: NDArray[np.float64]) -> ItemCosts:
        counts_I = np.bincount(sentences_N[own_N])
        sums_I = np.bincount(sentences_N[own_N], values_N[own_N]).astype(np.float64)
        return ItemCosts("sentences", sums_I[counts_I > 0], counts_I[counts_I > 0])

    costs, perplexity = collect(nats_N), Objective.PERPLEXITY
    bounds, changes = costs.compute_interval(), None if first_N is None else collect(nats_N - first_N)
    change_bounds = changes and changes.compute_interval()
    return GroupFigure(
        perplexity=perplexity.compute_figure(costs.cost),
        interval=bounds and (perplexity.compute_figure(bounds[0]), perplexity.compute_figure(bounds[1])),
        change=None if changes is None else -perplexity.compute_gain(changes.cost),
        change_interval=change_bounds
        and (-perplexity.compute_gain(change_bounds[0]), -perplexity.compute_gain(change_bounds[1])),
    )
