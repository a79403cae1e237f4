"""How often the training text has the pairs that attention joins: Tran, Bisazza and Monz (2016), table 3.

A pair is the most attended word and the word to predict. The paper asks whether distant attention repeats
frequent co-occurrences. It does not define a co-occurrence; here it is the attended word at most a window of
words before the predicted one, in one sentence unless the model reads on across sentences.
"""

from collections import Counter, defaultdict
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from memtune.corpora import Split
from memtune.corpora.batching.batches import BOUNDARY
from memtune.results.inspection.attention.attention_layer import find_most_attended
from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice
from memtune.results.inspection.sentence_readings import read_attention
from memtune.values import Value

CHUNK_TOKENS = 2**20
DISTANT_WORDS = 7
"""The paper's distant words are more than six positions to the left."""


class AttendedPair(Value):
    """A most attended word and the word that was predicted."""

    attended: str
    predicted: str
    distance: int
    predictions: int
    """How often the inspected text has it at this distance."""
    training_count: int
    """Co-occurrences in the training text, at any distance of the window."""
    training_count_at_distance: int


class PairDistance(Value):
    """The different pairs at one distance."""

    distance: int
    pairs: int
    predictions: int
    mean_training_count: float
    """The paper's mean frequency: the mean over the different pairs."""
    mean_training_count_at_distance: float


class AttendedPairs(Value):
    """All pairs with distant attention."""

    model: str
    family: str
    window: int
    """The largest distance of a co-occurrence."""
    by_distance: tuple[PairDistance, ...]
    pairs: tuple[AttendedPair, ...]
    """The pairs that are most frequent in the training text first."""


def count_attended_pairs(
    model: InspectedModel,
    choice: TextChoice,
    min_distance: int = DISTANT_WORDS,
    window: int | None = None,
    layer: int | None = None,
) -> AttendedPairs:
    """The pairs whose most attended word is at least `min_distance` words before the predicted one.

    Pairs with `<eos>` or `<unk>` are left out. `window` is by default the largest distance found. Raises the
    errors of `read_attention` and of `select_layer`.
    """
    found, skipped = Counter[tuple[int, int, int]](), model.find_signs()
    for reading in read_attention(model, choice):
        words_Tn, distances = reading.find_attended_words(), reading.distances_n.tolist()
        for step, slot, _ in find_most_attended(reading, layer):
            attended, predicted = int(words_Tn[step, slot]), int(reading.targets_T[step])
            if distances[slot] >= min_distance and skipped.isdisjoint((attended, predicted)):
                found[distances[slot], attended, predicted] += 1
    reach = window or max((distance for distance, _, _ in found), default=min_distance)
    counts = count_cooccurrences(
        model.corpus["train"],
        {(attended, predicted) for _, attended, predicted in found},
        reach,
        across_sentences=model.carries_state,
    )
    tokens = model.corpus.vocabulary.tokens
    pairs = [
        AttendedPair(
            attended=tokens[attended],
            predicted=tokens[predicted],
            distance=distance,
            predictions=predictions,
            training_count=sum(counts[attended, predicted].values()),
            training_count_at_distance=counts[attended, predicted][distance],
        )
        for (distance, attended, predicted), predictions in found.items()
    ]
    pairs.sort(key=lambda pair: (-pair.training_count, pair.attended, pair.predicted, pair.distance))
    return AttendedPairs(
        model=model.name,
        family=model.family,
        window=reach,
        by_distance=_group_by_distance(pairs),
        pairs=tuple(pairs),
    )


def _group_by_distance(pairs: list[AttendedPair]) -> tuple[PairDistance, ...]:
    groups = defaultdict[int, list[AttendedPair]](list)
    for pair in pairs:
        groups[pair.distance].append(pair)
    return tuple(
        PairDistance(
            distance=distance,
            pairs=len(group),
            predictions=sum(pair.predictions for pair in group),
            mean_training_count=mean(pair.training_count for pair in group),
            mean_training_count_at_distance=mean(pair.training_count_at_distance for pair in group),
        )
        for distance, group in sorted(groups.items())
    )


def count_cooccurrences(
    split: Split, pairs: set[tuple[int, int]], window: int, *, across_sentences: bool
) -> dict[tuple[int, int], Counter[int]]:
    """For each pair of ids, the number of places by distance at which the first precedes the second.

    Distances are from 1 to `window`; without `across_sentences` both words are in one sentence.
    """
    counts = {pair: Counter[int]() for pair in pairs}
    if not pairs:
        return counts
    base = 1 + max(max(pair) for pair in pairs)
    codes_P = np.sort(np.array([first * base + second for first, second in pairs]))
    for start in range(0, split.token_count, CHUNK_TOKENS):
        low, stop = max(0, start - window), min(start + CHUNK_TOKENS, split.token_count)
        words_K = split.read_tokens(low, stop)
        sentence_K = np.cumsum(words_K == BOUNDARY) - (words_K == BOUNDARY)
        for distance in range(1, window + 1):
            # Predicted words of this chunk; a word before it may be in the chunk before.
            places = np.arange(max(start - low, distance), len(words_K))
            first, second = words_K[places - distance], words_K[places]
            is_near = (first < base) & (second < base)
            if not across_sentences:
                is_near &= sentence_K[places - distance] == sentence_K[places]
            for code, count in _count_codes((first * base + second)[is_near], codes_P):
                counts[divmod(code, base)][distance] += count
    return counts


def _count_codes(codes: NDArray[np.int64], wanted_P: NDArray[np.int64]) -> list[tuple[int, int]]:
    """How often each wanted code occurs; codes that do not are left out."""
    values, counts = np.unique(codes[np.isin(codes, wanted_P)], return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))
