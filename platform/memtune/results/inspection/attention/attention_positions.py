"""Mean attention by position: Tran, Bisazza and Monz (2016), figure 3."""

from collections import defaultdict

import numpy as np

from memtune.results.inspection.attention.attention_layer import select_layer
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice
from memtune.results.inspection.sentence_readings import NO_WORD, read_attention
from memtune.values import Value


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
    predictions: int
    positions: tuple[PositionMean, ...]
    """The most distant earlier word first."""
    share_without_word: float
    """The share of attention to slots without a word, such as the first slot of zeros of an LSTMN."""


def average_positions(
    model: InspectedModel, choice: TextChoice, layer: int | None = None
) -> AttentionPositions:
    """The mean attention of a layer (default: the last) to each position, over a text.

    Raises the errors of `read_attention` and of `select_layer`.
    """
    sums, counts = defaultdict[int, float](float), defaultdict[int, int](int)
    predictions, without_word = 0, 0.0
    for reading in read_attention(model, choice):
        weights_Tn, is_word_Tn = select_layer(reading, layer), reading.find_attended_words() != NO_WORD
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
        family=model.family,
        predictions=predictions,
        positions=positions,
        share_without_word=without_word / max(1, predictions),
    )
