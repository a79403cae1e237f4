"""Classes of words for a factored softmax: ranges of ids, each with an equal share of the training text.

Mikolov, Kombrink, Burget, Černocký and Khudanpur (2011), "Extensions of Recurrent Neural Network Language
Model": words sorted by count are divided into ranges of equal summed frequency. Equal sums of square roots
("Povey style" in the code of Mirowski and Vlachos, 2015) make the classes of rare words smaller.

Ids are sorted by count, so a class is a range of ids. `borders` holds the first word of each class, and V.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

ClassMass = Literal["frequency", "square_root"]


def compute_class_borders(counts: Sequence[float], classes: int, mass: ClassMass) -> list[int]:
    """The `classes` + 1 borders of ranges of words with about equal sums of counts or of their square roots.

    No class is empty. A word with more than an equal share is a class of its own, and the other classes
    divide the rest.
    """
    assert 1 <= classes <= len(counts)
    masses = map(math.sqrt, counts) if mass == "square_root" else counts
    below = list(accumulate(masses, initial=0))
    borders = [0]
    for left in range(classes, 1, -1):
        first = borders[-1]
        share = (below[-1] - below[first]) / left
        nearest = bisect_left(below, below[first] + share, first)
        borders.append(min(max(nearest, first + 1), len(counts) - left + 1))
    return [*borders, len(counts)]


def compute_zipf_counts(words: int) -> list[float]:
    """Counts proportional to 1 / rank: the prior for a text whose counts are unknown (Zipf's law)."""
    return [1 / rank for rank in range(1, words + 1)]


def compute_range_shares(counts: Sequence[float], borders: Sequence[int]) -> list[float]:
    """The share of the text in the words from each border to the next."""
    total = sum(counts)
    return [sum(counts[first:end]) / total for first, end in pairwise(borders)]
