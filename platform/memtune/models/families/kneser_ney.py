"""Interpolated modified Kneser-Ney: the n-gram baseline of the networks.

Chen and Goodman (1998), "An Empirical Study of Smoothing Techniques for Language Modeling", sections 3 and 4.
It is fitted by counting, without gradients. The probability of word w after the context c of n - 1 words
mixes order n with order n - 1, whose context c' lacks the first word:

    p(w | c) = (a(c w) - D(a(c w))) / sum_v a(c v)  +  backoff(c) p(w | c'),    order 0 being uniform,

where a is the count at the highest order and, below, the number of different words seen before the n-gram
(the count where nothing can precede it); D(1), D(2), D(3 and more) are one triple for each order; backoff(c)
is the probability that the discounts remove from c.

Heafield et al. (2013), "Scalable Modified Kneser-Ney Language Model Estimation": the adjusted counts of
n-grams at a sentence's start, and the discounts of sparse orders.

The number of an n-gram is the index of its key among the N sorted keys of its order. The key is first word *
size + number of the (n - 1)-gram of the other words, where `size` is the number of (n - 1)-grams. All counts
are therefore bincounts of numbers over all tokens.

Shapes: B batch, T time or all tokens of a text, V vocabulary, N n-grams of one order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.architecture import CountingConfig, LanguageModel, RecurrentState
from memtune.models.memories.recent_words import keep_recent_words, make_empty_words
from memtune.models.outputs.hashed_ngrams import BOUNDARY_ID

Integers = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

SPARSE_DISCOUNTS = (0.5, 1.0, 1.5)
"""D(1), D(2), D(3+) of an order too sparse for an estimate: the defaults of lmplz --discount_fallback."""

ABSENT = -1
"""The number of an n-gram that does not occur or that would begin before the start of the text."""

SENTINEL_KEY = torch.iinfo(torch.int64).max
NO_KEYS, NO_SHARES = np.empty(0, dtype=np.int64), np.empty(0)


class NgramTable(nn.Module):
    """The n-grams of one order; every table has a last entry more, which the index ABSENT (-1) reads.

    keys (N + 1,) in ascending order; gain (N + 1,): discounted count / sum of the context's counts; backoff
    (number of n-grams of the order below + 1,): the probability that each of those, as a context, leaves to
    the order below, 1 if it is no context; discounts (3,).
    """

    keys: Tensor
    gain: Tensor
    backoff: Tensor
    discounts: Tensor

    def __init__(
        self,
        keys: Integers = NO_KEYS,
        gain: Floats = NO_SHARES,
        backoff: Floats = NO_SHARES,
        discounts: Sequence[float] = (0, 0, 0),
    ) -> None:
        super().__init__()
        self.register_buffer("keys", torch.from_numpy(np.append(keys, SENTINEL_KEY)))
        self.register_buffer("gain", torch.from_numpy(np.append(gain, 0.0)))
        self.register_buffer("backoff", torch.from_numpy(np.append(backoff, 1.0)))
        self.register_buffer("discounts", torch.tensor(discounts, dtype=torch.float64))

    def __len__(self) -> int:
        """N, the number of n-grams."""
        return len(self.keys) - 1

    def find_indices(self, word_BT: Tensor, number_BT: Tensor | None, size: int) -> Tensor:
        """Numbers of the n-grams of a word and the (n - 1)-gram after it; ABSENT for one that does not occur.

        `number_BT` is the number of the (n - 1)-gram among `size`, None for n = 1.
        """
        key_BT = word_BT
        if number_BT is not None:
            key_BT = torch.where((word_BT < 0) | (number_BT < 0), ABSENT, word_BT * size + number_BT)
        position_BT = torch.searchsorted(self.keys, key_BT.contiguous())
        return position_BT.masked_fill_(self.keys[position_BT] != key_BT, ABSENT)


def estimate_kneser_ney(
    tokens: Integers, starts: Integers, order: int, vocabulary_size: int
) -> Iterator[NgramTable]:
    """The orders 1 to `order` of a text of token ids (T,); `starts` are the positions of its sentences.

    A start sign with id V precedes each sentence. It is context and never predicted. Raises
    ConfigurationError for an empty text, ids outside the vocabulary, and positions that do not begin with 0
    or do not ascend.
    """
    text = _insert_start_signs(tokens, starts, vocabulary_size)
    history = _iterate_shifted_words(text, order, vocabulary_size)
    number_T = next(history)
    words = np.arange(vocabulary_size + 1)  # absent words too
    seen = np.bincount(number_T, minlength=len(words))
    seen[vocabulary_size] = 0  # the start sign
    counts = NgramCounts(words, seen, np.zeros_like(words), 1, words == vocabulary_size)
    for word_T in history:
        longer, number_T = _extend_ngrams(word_T, number_T, len(counts.keys), vocabulary_size)
        preceded = np.bincount(longer.keys % len(counts.keys), minlength=len(counts.keys))
        yield _smooth(counts, np.where(counts.is_initial, counts.occurrences, preceded))
        counts = longer
    yield _smooth(counts, counts.occurrences)


def _insert_start_signs(tokens: Integers, starts: Integers, vocabulary_size: int) -> npt.NDArray[np.int32]:
    if not len(tokens):
        raise ConfigurationError("kneser_ney: the text is empty; give at least one token")
    if not 0 <= tokens.min() <= tokens.max() < vocabulary_size:
        raise ConfigurationError(
            f"kneser_ney: token ids must be from 0 to {vocabulary_size - 1}, got {tokens.min()} to "
            f"{tokens.max()}; was the text encoded with another vocabulary?"
        )
    if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any() or starts[-1] >= len(tokens):
        raise ConfigurationError(
            f"kneser_ney: starts must ascend from 0 and stay below the {len(tokens)} tokens, got {starts}"
        )
    return np.insert(np.asarray(tokens, dtype=np.int32), starts, vocabulary_size)


def _iterate_shifted_words(text: Integers, order: int, start: int) -> Iterator[Integers]:
    """The text itself, then the word 1, 2, ... order - 1 before each position; ABSENT before a start sign."""
    column_T = text
    yield column_T
    for _ in range(order - 1):
        before_T = np.empty_like(column_T)
        before_T[0], before_T[1:] = ABSENT, column_T[:-1]
        before_T[text == start] = ABSENT
        column_T = before_T
        yield column_T


@dataclass(frozen=True)
class NgramCounts:
    """The counts of the n-grams of one order in the text.

    keys, occurrences and context_indices (N,): the key, the count and the number of the context among
    `context_count`; is_initial (N,): whether the n-gram begins with the start sign, so nothing precedes it.
    """

    keys: npt.NDArray[np.int64]
    occurrences: Integers
    context_indices: Integers
    context_count: int
    is_initial: npt.NDArray[np.bool_]


def _extend_ngrams(
    word_T: Integers, number_T: Integers, size: int, vocabulary_size: int
) -> tuple[NgramCounts, Integers]:
    """The n-grams that are one word longer, and the number of such an n-gram at each position (T,).

    `number_T` is the number, among `size`, of the n-gram that ends at each position; `word_T` is the word
    before that n-gram.
    """
    key_T = np.asarray(np.multiply(word_T, size, dtype=np.int64) + number_T, dtype=np.int64)
    key_T[np.minimum(word_T, number_T) < 0] = ABSENT
    key_T, position_T = sort_with_positions(key_T)
    begins = np.flatnonzero(np.diff(key_T, prepend=ABSENT))
    keys, seen = key_T[begins], np.diff(begins, append=len(key_T))
    longer_T = np.full(len(word_T), ABSENT, dtype=np.int32)
    longer_T[position_T] = np.repeat(np.arange(len(keys), dtype=np.int32), seen)
    context = number_T[position_T[begins] - 1]
    return NgramCounts(keys, seen, context, size, keys >= vocabulary_size * size), longer_T


def sort_with_positions(key_T: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The keys that are not ABSENT, sorted, and the position of each; overwrites `key_T`.

    If key and position fit into one integer, sorting these integers is several times faster than argsort.
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


def _smooth(counts: NgramCounts, adjusted: Integers) -> NgramTable:
    discounts = _estimate_discounts(adjusted)
    taken = np.array((0.0, *discounts)).take(adjusted, mode="clip")
    total = np.bincount(counts.context_indices, weights=adjusted, minlength=counts.context_count)
    lost = np.bincount(counts.context_indices, weights=taken, minlength=counts.context_count)
    used = total > 0
    gain = (adjusted - taken) / np.where(used, total, 1.0)[counts.context_indices]
    backoff = np.where(used, lost / np.where(used, total, 1.0), 1.0)
    return NgramTable(counts.keys, gain, backoff, discounts)


def _estimate_discounts(adjusted: Integers) -> tuple[float, float, float]:
    """D(1), D(2), D(3+) from how many n-grams have each count: Chen and Goodman (1998), equation 26."""
    _, once, twice, thrice, four_times = (
        int(number) for number in np.bincount(np.minimum(adjusted, 5), minlength=6)[:5]
    )
    # The paper does not say what to do where a count is missing. These are the rules of KenLM's lmplz
    # (lm/builder/adjust_counts.cc): n1, n2 and n3 are divisors, so none may be 0; n4 = 0 gives D(3+) = 3; a
    # discount below 0 or above its count replaces all three.
    if not (once and twice and thrice):
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


class KneserNeyConfig(CountingConfig):
    """An n-gram model; contexts end at the start of a text, as the protocol defines it."""

    family: Literal["kneser_ney"] = "kneser_ney"
    order: int = Field(5, ge=1, le=16, description="n: a word is predicted from the n - 1 before it")

    @override
    def build(self, vocabulary_size: int) -> "KneserNey":
        return KneserNey(self, vocabulary_size)

    @override
    def fit(
        self, tokens: npt.NDArray[np.integer], starts: npt.NDArray[np.integer], vocabulary_size: int
    ) -> "KneserNey":
        model = self.build(vocabulary_size)
        model.orders = nn.ModuleList(estimate_kneser_ney(tokens, starts, self.order, vocabulary_size))
        return model

    @override
    def state_size(self) -> int:
        """The words before the present one, of a context of n - 1 words; one at least, for a text that has
        begun has no start sign.
        """
        return max(1, self.order - 2)

    @override
    def describe(self) -> dict[str, str | int | float]:
        return {"order": self.order}


class KneserNey(LanguageModel):
    """Carried state: the last words, (B, P); word V is the start sign of a text.

    Before `fit` all words have the same probability.
    """

    config: KneserNeyConfig

    def __init__(self, config: KneserNeyConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.orders = nn.ModuleList(NgramTable() for _ in range(config.order))

    @property
    def tables(self) -> list[NgramTable]:
        """The tables of the orders from 1 up."""
        return [grams for grams in self.orders if isinstance(grams, NgramTable)]

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        return {"words": make_empty_words(batch_size, next(self.buffers()).device)}

    @override
    def allocate_buffers(self, weights: Mapping[str, Tensor]) -> None:
        for name, table in list(self.named_buffers()):
            owner, _, own = name.rpartition(".")
            setattr(self.get_submodule(owner), own, torch.empty_like(weights.get(name, table)))

    @override
    def negative_log_likelihood(
        self, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        log_BT, state = self.log_probabilities(inputs_BT, targets_BT, state)
        return -(log_BT if mask_BT is None else log_BT[mask_BT]).sum(), state

    @override
    def candidate_nats(
        self, inputs_BT: Tensor, asked_BT: Tensor, candidates_QC: Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        columns, after = [], state
        for candidates_Q in candidates_QC.unbind(1):
            targets_BT = torch.zeros_like(inputs_BT).masked_scatter(asked_BT, candidates_Q)
            log_BT, after = self.log_probabilities(inputs_BT, targets_BT, state)
            columns.append(-log_BT[asked_BT])
        return torch.stack(columns, dim=1), after

    def log_probabilities(
        self, inputs_BT: Tensor, targets_BT: Tensor, state: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """Natural log probability of each target given the inputs up to it, and the state after the last."""
        words_BK = torch.cat([state["words"], inputs_BT], dim=1)
        if not state["words"].shape[1]:  # the boundary before a text becomes its start sign
            first_B = words_BK[:, 0]
            words_BK[:, 0] = first_B.masked_fill(first_B == BOUNDARY_ID, self.vocabulary_size)
        back = list(self._iterate_context_words(words_BK, inputs_BT.shape[1]))
        grams = self._find_indices([targets_BT, *back])
        contexts = chain([torch.zeros_like(targets_BT)], self._find_indices(back))
        p_BT = torch.full_like(targets_BT, 1 / self.vocabulary_size, dtype=torch.float64)
        for order, gram_BT, context_BT in zip(self.tables, grams, contexts, strict=True):
            p_BT = order.gain[gram_BT] + order.backoff[context_BT] * p_BT
        return p_BT.log(), {"words": keep_recent_words(words_BK, self.config.state_size())}

    def _iterate_context_words(self, words_BK: Tensor, steps: int) -> Iterator[Tensor]:
        """The word 1, 2, ... n - 1 places before each target, (B, T); ABSENT before the start of the text."""
        before = self.config.order - 2
        padded_BK = functional.pad(words_BK, (max(0, before + steps - words_BK.shape[1]), 0), value=ABSENT)
        stop = padded_BK.shape[1]
        for back in range(self.config.order - 1):
            yield padded_BK[:, stop - back - steps : stop - back]

    def _find_indices(self, columns: Sequence[Tensor]) -> Iterator[Tensor]:
        """For n = 1, 2, ... the number of the n-gram that ends with each word of the first column."""
        size, number_BT = 1, None
        for word_BT, order in zip(columns, self.tables, strict=False):
            number_BT = order.find_indices(word_BT, number_BT, size)
            size = len(order)
            yield number_BT
