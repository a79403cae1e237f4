"""Interpolated modified Kneser-Ney: the n-gram baseline of the networks.

Chen and Goodman (1998), "An Empirical Study of Smoothing Techniques for Language Modeling", sections 3 and 4.
It is fitted by counting, without gradients. The probability of word w after the context c of n - 1 words
mixes order n with order n - 1, whose context c' lacks the first word:

    p(w | c) = (a(c w) - D(a(c w))) / sum_v a(c v)  +  backoff(c) p(w | c'),    order 0 being uniform,

where a is the count at the highest order and, below, the number of different words seen before the n-gram
(the count where nothing can precede it); D(1), D(2), D(3 and more) are one triple for each order; backoff(c)
is the probability that the discounts remove from c.

Shapes: B batch, T time, P earlier words (n - 2, at least one), V vocabulary, N n-grams of one order.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import CountingConfig, LanguageModel, RecurrentState
from memtune.models.memories.recent_words import keep_recent_words, make_empty_words
from memtune.models.ngram_counts import ABSENT, SmoothedNgrams, estimate_kneser_ney

__all__ = ["KneserNey", "KneserNeyConfig"]

BOUNDARY_ID = 0
"""The id of `<eos>`, which is also the input before the first word of a text."""

SENTINEL_KEY = torch.iinfo(torch.int64).max


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
        orders = estimate_kneser_ney(tokens, starts, self.order, vocabulary_size)
        model.orders = nn.ModuleList(NgramTable.from_order(order) for order in orders)
        return model

    @override
    def state_size(self) -> int:
        """The words before the present one."""
        return self.order - 1

    @override
    def describe(self) -> dict[str, str | int | float]:
        return {"order": self.order}


class NgramTable(nn.Module):
    """The n-grams of one order; every table has a last entry more, which the index ABSENT (-1) reads.

    keys (N + 1,) in ascending order; gain (N + 1,): discounted count / sum of the context's counts; backoff
    (number of n-grams of the order below + 1,): the probability that a context leaves to the order below;
    discounts (3,).
    """

    keys: Tensor
    gain: Tensor
    backoff: Tensor
    discounts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.tensor([SENTINEL_KEY]))
        self.register_buffer("gain", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("backoff", torch.ones(1, dtype=torch.float64))
        self.register_buffer("discounts", torch.zeros(3, dtype=torch.float64))

    @classmethod
    def from_order(cls, order: SmoothedNgrams) -> Self:
        """The tables of an estimated order."""
        grams = cls()
        grams.keys = torch.from_numpy(np.append(order.keys, SENTINEL_KEY))
        grams.gain = torch.from_numpy(np.append(order.gain, 0.0))
        grams.backoff = torch.from_numpy(np.append(order.backoff, 1.0))
        grams.discounts = torch.tensor(order.discounts, dtype=torch.float64)
        return grams

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
        words_BK = self._concatenate_words(inputs_BT, state)
        back = list(self._iterate_context_words(words_BK, inputs_BT.shape[1]))
        grams = self._find_indices([targets_BT, *back])
        contexts = chain([torch.zeros_like(targets_BT)], self._find_indices(back))
        p_BT = torch.full_like(targets_BT, 1 / self.vocabulary_size, dtype=torch.float64)
        for order, gram_BT, context_BT in zip(self.tables, grams, contexts, strict=True):
            p_BT = order.gain[gram_BT] + order.backoff[context_BT] * p_BT
        return p_BT.log(), {"words": keep_recent_words(words_BK, max(1, self.config.order - 2))}

    def _concatenate_words(self, inputs_BT: Tensor, state: RecurrentState) -> Tensor:
        """The carried words and the inputs; the boundary before a text becomes its start sign."""
        words_BK = torch.cat([state["words"], inputs_BT], dim=1)
        if not state["words"].shape[1]:
            first_B = words_BK[:, 0]
            words_BK[:, 0] = first_B.masked_fill(first_B == BOUNDARY_ID, self.vocabulary_size)
        return words_BK

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
