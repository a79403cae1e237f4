"""The attention of one layer over a whole text, one prediction at a time.

Shapes: T steps of a sentence, n slots.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from memtune.errors import ConfigurationError
from memtune.results.inspection.sentence_readings import SentenceAttention


def select_layer(reading: SentenceAttention, layer: int | None) -> NDArray[np.float64]:
    """weights_Tn of a layer, counted from 1; None is the last. Raises ConfigurationError for another one."""
    layers = len(reading.weights_LTn)
    if layer is not None and not 1 <= layer <= layers:
        raise ConfigurationError(f"layer must be from 1 to {layers}, got {layer}; the last is the default")
    found_Tn: NDArray[np.float64] = reading.weights_LTn[-1 if layer is None else layer - 1]
    return found_Tn


def find_most_attended(reading: SentenceAttention, layer: int | None) -> Iterator[tuple[int, int, float]]:
    """Yield (step, slot, weight) of the most attended word of each step at which any slot has a word."""
    weights_Tn, words_Tn = select_layer(reading, layer), reading.find_attended_words()
    masked_Tn = np.where(words_Tn >= 0, weights_Tn, -np.inf)
    for step, slot in enumerate(masked_Tn.argmax(1).tolist()):
        weight = float(masked_Tn[step, slot])
        if np.isfinite(weight):
            yield step, slot, weight
