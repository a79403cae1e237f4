"""The attention of one layer over a text: Tran, Bisazza and Monz (2016), figures 3 to 5.

Figure 3 is the mean attention by position, figure 4 a sample of predicted words, and figure 5 has words that
were predicted with attention to a distant word. Shapes: T steps of a sentence, n slots.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from memtune.corpora.batching.batches import BOUNDARY
from memtune.errors import ConfigurationError
from memtune.results.inspection.sentence_readings import (
    NO_WORD,
    SentenceAttention,
    TextChoice,
    list_signs,
    read_attention,
)
from memtune.results.loaded_models import TrainedModel
from memtune.values import Value

NEXT_WORDS = 5
DISTANT_WORDS = 7
"""The paper's distant words are more than six positions to the left."""


def select_layer(reading: SentenceAttention, layer: int | None) -> NDArray[np.float64]:
    """weights_Tn of a layer, counted from 1; None is the last. Raises ConfigurationError for another one."""
    layers = len(reading.weights_LTn)
    if layer is not None and not 1 <= layer <= layers:
        raise ConfigurationError(f"layer must be from 1 to {layers}, got {layer}; the last is the default")
    found_Tn: NDArray[np.float64] = reading.weights_LTn[-1 if layer is None else layer - 1]
    return found_Tn


def find_most_attended(
    reading: SentenceAttention, layer: int | None
) -> Iterator[tuple[int, int, float, tuple[int, int]]]:
    """Yield (step, slot, weight, (word, target)) of the most attended word of each step that has one."""
    weights_Tn, words_Tn = select_layer(reading, layer), reading.find_attended_words()
    masked_Tn = np.where(words_Tn >= 0, weights_Tn, -np.inf)
    for step, slot in enumerate(masked_Tn.argmax(1).tolist()):
        weight = float(masked_Tn[step, slot])
        if np.isfinite(weight):
            yield step, slot, weight, (int(words_Tn[step, slot]), int(reading.targets_T[step]))


class PositionMean(Value):
    """The attention to one position."""

    distance: int
    """Words from the attended word to the word to predict: 1 is the word before it; negative is after it."""
    mean: float
    """Mean weight over the predictions that have a word at this position."""
    share: float
    """Mean weight over all predictions: the share of all attention."""
    predictions: int
    """Predictions that have a word at this position."""


class AttentionPositions(Value):
    """The attention of a model to each position of its memory."""

    model: str
    family: str
    layer: int
    """Counted from 1, the lowest."""
    predictions: int
    positions: tuple[PositionMean, ...]
    """The most distant earlier word first."""
    share_without_word: float
    """The share of attention to slots without a word, such as the first slot of zeros of an LSTMN."""


def average_positions(
    model: TrainedModel, choice: TextChoice, layer: int | None = None
) -> AttentionPositions:
    """The mean attention of a layer (default: the last) to each position, over a text.

    Raises the errors of `read_attention` and of `select_layer`.
    """
    sums, counts = defaultdict[int, float](float), defaultdict[int, int](int)
    predictions, without_word = 0, 0.0
    for reading in read_attention(model, choice):
        weights_Tn, is_word_Tn = select_layer(reading, layer), reading.find_attended_words() != NO_WORD
        layer = layer or len(reading.weights_LTn)
        predictions += len(weights_Tn)
        without_word += float(weights_Tn[~is_word_Tn].sum())
        sums_n, counts_n = np.where(is_word_Tn, weights_Tn, 0.0).sum(0), is_word_Tn.sum(0)
        for distance, total, count in zip(reading.distances_n.tolist(), sums_n, counts_n, strict=True):
            sums[distance] += float(total)
            counts[distance] += int(count)
    positions = tuple(
        PositionMean(
            distance=distance,
            mean=sums[distance] / counts[distance],
            share=sums[distance] / predictions,
            predictions=counts[distance],
        )
        for distance in sorted(counts, reverse=True)
        if counts[distance]
    )
    return AttentionPositions(
        model=model.name,
        family=model.network.config.family,
        layer=layer or 1,
        predictions=predictions,
        positions=positions,
        share_without_word=without_word / max(1, predictions),
    )


class AttendedWord(Value):
    """A word in a slot, and its weight."""

    distance: int
    """Words from it to the word to predict."""
    word: str
    weight: float


class AttentionSample(Value):
    """The attention before the prediction of one word."""

    sentence: int
    """Counted from 0 within the split."""
    step: int
    """The position of the predicted word in its sentence, from 0."""
    predicted: str
    attended: tuple[AttendedWord, ...]
    """The most distant earlier word first; slots without a word are left out."""


def sample_attention(
    model: TrainedModel, choice: TextChoice, count: int = 100, seed: int = 0, layer: int | None = None
) -> list[AttentionSample]:
    """A random sample of predicted words, without `<eos>`, in the order of the text.

    Every word has the same chance; a text of fewer words is taken whole. Raises the errors of
    `read_attention` and of `select_layer`.
    """
    random = np.random.default_rng(seed)
    kept: list[tuple[float, AttentionSample]] = []
    for reading in read_attention(model, choice):
        steps = np.flatnonzero(reading.targets_T != BOUNDARY)
        for step, key in zip(steps.tolist(), random.random(len(steps)).tolist(), strict=True):
            # The words with the smallest of independent random keys are a sample without replacement.
            if len(kept) < count or key < kept[-1][0]:
                sample = AttentionSample(
                    sentence=reading.sentence.number,
                    step=step,
                    predicted=model.corpus.vocabulary.tokens[int(reading.targets_T[step])],
                    attended=list_attended_words(model, reading, step, layer),
                )
                kept.append((key, sample))
                kept = sorted(kept, key=lambda pair: pair[0])[:count]
    return sorted((sample for _, sample in kept), key=lambda sample: (sample.sentence, sample.step))


def list_attended_words(
    model: TrainedModel, reading: SentenceAttention, step: int, layer: int | None
) -> tuple[AttendedWord, ...]:
    """The words in the slots at a step, the most distant earlier word first."""
    tokens, weights_Tn = model.corpus.vocabulary.tokens, select_layer(reading, layer)
    slots = zip(
        reading.distances_n.tolist(),
        reading.find_attended_words()[step].tolist(),
        weights_Tn[step],
        strict=True,
    )
    return tuple(
        AttendedWord(distance=distance, word=tokens[word], weight=float(weight))
        for distance, word, weight in sorted(slots, key=lambda slot: -slot[0])
        if word != NO_WORD
    )


class NextWord(Value):
    """A word and its log-probability in nats."""

    word: str
    log_probability: float


class AttentionExample(Value):
    """A prediction, what it attended to, and the most likely next words."""

    sentence: int
    """Counted from 0 within the split."""
    predicted: NextWord
    rank: int
    """Of the predicted word among all words, from 1."""
    most_attended: AttendedWord
    attended: tuple[AttendedWord, ...]
    """All words in the memory, the most distant first."""
    next_words: tuple[NextWord, ...]
    """The most likely next words, the likeliest first."""


def find_distant_examples(
    model: TrainedModel,
    choice: TextChoice,
    count: int = 3,
    min_distance: int = DISTANT_WORDS,
    max_rank: int = NEXT_WORDS,
    layer: int | None = None,
) -> list[AttentionExample]:
    """The predictions with most weight on a word at least `min_distance` words before the predicted one.

    Only predictions whose correct word is among the `max_rank` likeliest count, and neither word is `<unk>`
    or `<eos>`; each pair of words appears once. The largest weight comes first. Raises the errors of
    `read_attention` and of `select_layer`.
    """
    skipped = list_signs(model.corpus)
    best, seen = list[tuple[float, AttentionExample]](), set[tuple[int, int]]()
    for reading in read_attention(model, choice):
        distances = reading.distances_n
        for step, slot, weight, pair in find_most_attended(reading, layer):
            is_far = distances[slot] >= min_distance and skipped.isdisjoint(pair) and pair not in seen
            if not is_far or (len(best) == count and weight <= best[-1][0]):
                continue
            example = _describe_example(model, reading, step, slot, layer)
            if example.rank <= max_rank:
                seen.add(pair)
                # The sort is stable, which keeps the first of equal weights.
                best = sorted([*best, (weight, example)], key=lambda entry: -entry[0])[:count]
    return [example for _, example in best]


@torch.no_grad()
def _describe_example(
    model: TrainedModel, reading: SentenceAttention, step: int, slot: int, layer: int | None
) -> AttentionExample:
    tokens = model.corpus.vocabulary.tokens
    log_probabilities_V = model.network.output(reading.hidden_TH[step : step + 1])[0].log_softmax(0)
    values, ids = (found.tolist() for found in log_probabilities_V.topk(min(NEXT_WORDS, len(tokens))))
    target = int(reading.targets_T[step])
    attended = list_attended_words(model, reading, step, layer)
    distance = int(reading.distances_n[slot])
    return AttentionExample(
        sentence=reading.sentence.number,
        predicted=NextWord(word=tokens[target], log_probability=float(log_probabilities_V[target])),
        rank=1 + int((log_probabilities_V > log_probabilities_V[target]).sum()),
        most_attended=next(word for word in attended if word.distance == distance),
        attended=attended,
        next_words=tuple(
            NextWord(word=tokens[word], log_probability=value)
            for word, value in zip(ids, values, strict=True)
        ),
    )
