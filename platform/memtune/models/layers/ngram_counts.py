"""Counts of n-grams and the tables of interpolated modified Kneser-Ney that they give.

Chen and Goodman (1998), "An Empirical Study of Smoothing Techniques for Language Modeling", sections 3 and 4;
Heafield et al. (2013), "Scalable Modified Kneser-Ney Language Model Estimation", for the adjusted counts of
n-grams at a sentence's start and the discounts of sparse orders.

The number of an n-gram is the place of its key among the sorted N keys of its order; the key is first word *
size + number of the n-gram of the other words, among `size` of those. So all counts are bincounts of numbers,
over all tokens at once.

Shapes: T tokens, V vocabulary, N n-grams of one order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memtune.errors import ConfigurationError

__all__ = ["ABSENT", "Order", "estimate", "sorted_with_positions"]

Integers = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

SPARSE_DISCOUNTS = (0.5, 1.0, 1.5)
"""D(1), D(2), D(3+) of an order with too few n-grams to estimate them, as in KenLM."""

ABSENT = -1
"""Number of an n-gram that was not seen, or that would begin before the start of the text."""


@dataclass(frozen=True)
class Order:
    """The n-grams of one order that were seen.

    keys (N,) in rising order; gain (N,): discounted count / sum of the context's counts; backoff (N of the
    order below,): share that each of those, as a context, leaves to the order below, 1 if it is never one.
    """

    keys: npt.NDArray[np.int64]
    gain: Floats
    backoff: Floats
    discounts: tuple[float, float, float]


def estimate(tokens: Integers, starts: Integers, order: int, vocabulary_size: int) -> Iterator[Order]:
    """The orders from 1 up of a text of token ids (T,) that begins anew at each of the positions `starts`.

    One start sign, whose id is V, stands before each beginning; it is context and never predicted. Raises
    ConfigurationError for an empty text, ids outside of the vocabulary, and positions that do not begin with
    0 or do not rise.
    """
    text = _with_starts(tokens, starts, vocabulary_size)
    history = _history(text, order, vocabulary_size)
    number_T = next(history)
    counts = _unigrams(number_T, vocabulary_size)
    for word_T in history:
        longer, number_T = _lengthen(word_T, number_T, len(counts.keys), vocabulary_size)
        preceded = np.bincount(longer.keys % len(counts.keys), minlength=len(counts.keys))
        yield _smooth(counts, np.where(counts.initial, counts.seen, preceded))
        counts = longer
    yield _smooth(counts, counts.seen)


def _with_starts(tokens: Integers, starts: Integers, vocabulary_size: int) -> npt.NDArray[np.int32]:
    if not len(tokens):
        raise ConfigurationError("kneser_ney: the text is empty; give at least one token")
    if not 0 <= tokens.min() <= tokens.max() < vocabulary_size:
        raise ConfigurationError(
            f"kneser_ney: token ids must lie from 0 to {vocabulary_size - 1}, got {tokens.min()} to "
            f"{tokens.max()}; was the text encoded with another vocabulary?"
        )
    if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any() or starts[-1] >= len(tokens):
        raise ConfigurationError(
            f"kneser_ney: starts must rise from 0 and stay below the {len(tokens)} tokens, got {starts}"
        )
    return np.insert(np.asarray(tokens, dtype=np.int32), starts, vocabulary_size)


def _history(text: Integers, order: int, start: int) -> Iterator[Integers]:
    """The text itself, then the words 1 to order - 1 before each position, ABSENT before the start sign."""
    column_T = text
    yield column_T
    for _ in range(order - 1):
        before_T = np.empty_like(column_T)
        before_T[0], before_T[1:] = ABSENT, column_T[:-1]
        before_T[text == start] = ABSENT
        column_T = before_T
        yield column_T


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order as they stand in the text.

    keys, seen, context (N,): key, occurrences, number of the context among `contexts`; initial (N,): does it
    begin with the start sign, so that nothing can precede it?
    """

    keys: npt.NDArray[np.int64]
    seen: Integers
    context: Integers
    contexts: int
    initial: npt.NDArray[np.bool_]


def _unigrams(text: Integers, vocabulary_size: int) -> Counts:
    """Every word of the vocabulary, seen or not, and the start sign, which counts as never seen."""
    keys = np.arange(vocabulary_size + 1)
    seen = np.bincount(text, minlength=len(keys))
    seen[vocabulary_size] = 0
    return Counts(keys, seen, np.zeros_like(keys), 1, keys == vocabulary_size)


def _lengthen(
    word_T: Integers, number_T: Integers, size: int, vocabulary_size: int
) -> tuple[Counts, Integers]:
    """The n-grams one word longer, and the number of that at each position (T,).

    `number_T` is the number, among `size`, of the n-gram ending at each position, `word_T` the word before.
    """
    key_T, position_T = sorted_with_positions(_key(word_T, number_T, size))
    begins = np.flatnonzero(np.diff(key_T, prepend=ABSENT))
    keys, seen = key_T[begins], np.diff(begins, append=len(key_T))
    longer_T = np.full(len(word_T), ABSENT, dtype=np.int32)
    longer_T[position_T] = np.repeat(np.arange(len(keys), dtype=np.int32), seen)
    context = number_T[position_T[begins] - 1]
    return Counts(keys, seen, context, size, keys >= vocabulary_size * size), longer_T


def _key(word_T: Integers, number_T: Integers, size: int) -> npt.NDArray[np.int64]:
    """Keys of the n-grams of a word and the n-gram after it, numbered among `size`; ABSENT if either is."""
    key_T = np.asarray(np.multiply(word_T, size, dtype=np.int64) + number_T, dtype=np.int64)
    key_T[np.minimum(word_T, number_T) < 0] = ABSENT
    return key_T


def sorted_with_positions(
    key_T: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The keys that are not ABSENT, sorted, and where each was; writes over `key_T`.

    Where key and position fit into one integer, sorting those is several times faster than argsort.
    """
    bits = len(key_T).bit_length()
    if int(key_T.max()).bit_length() + bits > 63:
        position_T = np.argsort(key_T)
        present = np.searchsorted(key_T, 0, sorter=position_T)
        return key_T[position_T[present:]], position_T[present:]
    key_T <<= bits
    key_T |= np.arange(len(key_T))
    key_T.sort()
    present_K = key_T[np.searchsorted(key_T, 0) :]
    return present_K >> bits, present_K & ((1 << bits) - 1)


def _smooth(counts: Counts, adjusted: Integers) -> Order:
    discounts = _discounts(adjusted)
    taken = np.array((0.0, *discounts)).take(adjusted, mode="clip")
    total = np.bincount(counts.context, weights=adjusted, minlength=counts.contexts)
    lost = np.bincount(counts.context, weights=taken, minlength=counts.contexts)
    used = total > 0
    gain = (adjusted - taken) / np.where(used, total, 1.0)[counts.context]
    backoff = np.where(used, lost / np.where(used, total, 1.0), 1.0)
    return Order(counts.keys, gain, backoff, discounts)


def _discounts(adjusted: Integers) -> tuple[float, float, float]:
    """D(1), D(2), D(3+) from how many n-grams have each count: Chen and Goodman (1998), equation 26."""
    _, once, twice, thrice, four_times = (
        int(number) for number in np.bincount(np.minimum(adjusted, 5), minlength=6)[:5]
    )
    if not (once and twice and thrice and four_times):
        return SPARSE_DISCOUNTS
    share = once / (once + 2 * twice)
    estimates = (
        1 - 2 * share * twice / once,
        2 - 3 * share * thrice / twice,
        3 - 4 * share * four_times / thrice,
    )
    if any(not 0 <= discount <= count for count, discount in enumerate(estimates, start=1)):
        return SPARSE_DISCOUNTS
    return estimates
