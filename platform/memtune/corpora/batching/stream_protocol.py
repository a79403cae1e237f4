"""The protocol `stream`: the split is one text, read on across sentences (Zaremba et al. 2014).

Shapes: B batch rows, T time.
"""

from functools import partial
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from memtune.corpora.batching.batches import BOUNDARY, Batch, Plan, Positions, TaskPlan
from memtune.corpora.store.corpus import Split
from memtune.values import Value

EVALUATION_STREAM_TOKENS = 256
"""Tokens per batch of an evaluation, which has one row."""

FULL_LENGTH_PROBABILITY = 0.95
LENGTH_STANDARD_DEVIATION_TOKENS = 5
MIN_LENGTH_TOKENS = 5
"""Random lengths (Merity et al. 2017, section 4.1, and its code): the share drawn around `length`,
the others being around half of it; the standard deviation of both and the minimum, in tokens."""


class StreamProtocol(Value):
    """The split is one text; batches carry the state on, and gradients are truncated at batch boundaries.

    In training the text is cut into `batch_size` contiguous rows of equal length, read in parallel, `length`
    tokens per batch; when it does not divide, the first rows have one token more. The first input of a row is
    the token before it, and its state is zero at the start of an epoch. An evaluation reads one row.

    With `random_lengths` (Merity, Keskar and Socher 2017, section 4.1) each training batch draws its own
    length, around `length` or sometimes around half of it, so that epochs cut the text at different places;
    the learning rate of a batch is scaled by its length over `length`.

    With `shuffled_windows` (Benes, Baskar and Burget 2017, section 3) a row of a training batch is the
    `length` words before one word, read from a zero state, and only that word is predicted; an epoch
    predicts every word once, in random order. Evaluation is the same with and without it.
    """

    kind: Literal["stream"] = "stream"
    carries_state: ClassVar[bool] = True
    reads_trees: ClassVar[Literal[False]] = False
    reads_sentences: ClassVar[bool] = False
    unused_fields: ClassVar[frozenset[str]] = frozenset()
    batch_size: int = Field(20, ge=1, json_schema_extra={"unit": "sentences, or rows of a stream"})
    """Rows of text that a training batch reads in parallel."""
    length: int = Field(35, ge=1, json_schema_extra={"unit": "tokens"})
    """Tokens per row of a training batch, over which gradients are propagated."""
    random_lengths: bool = False
    """Whether each training batch draws its own length around `length`."""
    shuffled_windows: bool = False
    """Whether a row of a training batch predicts one word from the `length` words before it."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.random_lengths and self.shuffled_windows:
            raise ValueError("random_lengths and shuffled_windows exclude each other; keep one of them")
        return self

    @property
    def label(self) -> str:
        """The settings that a validation result depends on: none, as all streams predict the same tokens."""
        return self.kind

    def require_text(self, purpose: str) -> Self:
        """This protocol, which reads a text in its order; `purpose` would say in the error what needs one."""
        return self

    def count_longest_row(self, longest_sentence: int) -> int:
        """Tokens in the longest row of a training batch; one random length in 30,000 is longer."""
        return self.length + 4 * LENGTH_STANDARD_DEVIATION_TOKENS if self.random_lengths else self.length

    def training_plan(self, split: Split, seed: int, epoch: int) -> Plan:
        """One epoch of training: the text in order, cut at fixed places or as (seed, epoch) determine."""
        if self.shuffled_windows:
            words = np.random.default_rng((seed, epoch)).permutation(split.token_count)
            bounds = np.append(np.arange(0, len(words), self.batch_size), len(words))
            return TaskPlan(bounds, len(words), partial(_make_window_batch, split, self.length), words)
        random = np.random.default_rng((seed, epoch)) if self.random_lengths else None
        return _make_stream_plan(split, self.batch_size, self.length, random)

    def evaluation_plan(self, split: Split, batch_tokens: int = EVALUATION_STREAM_TOKENS) -> Plan:
        """All of a split as one row, `batch_tokens` tokens at a time."""
        return _make_stream_plan(split, 1, batch_tokens)

    def text_plan(self, split: Split) -> Plan:
        """The predictions of `evaluation_plan`, which are in the order of the text already."""
        return self.evaluation_plan(split)


def _read_text(split: Split, positions: Positions) -> tuple[Tensor, Tensor]:
    """The tokens at all positions of each row but the last, and at all but the first; a boundary is at -1."""
    text = split.gather(positions.clip(0, split.token_count - 1))
    text[positions < 0] = BOUNDARY
    return torch.from_numpy(text[:, :-1].copy()), torch.from_numpy(text[:, 1:].copy())


def _make_stream_plan(
    split: Split, rows: int, length: int, random: np.random.Generator | None = None
) -> Plan:
    """The text as rows that are read in parallel, `length` columns per batch or numbers drawn by `random`."""
    size, longer_row_count = divmod(split.token_count, rows)
    columns = size + (longer_row_count > 0)
    index = np.arange(rows)
    starts = index * size + np.minimum(index, longer_row_count)
    ends = np.arange(length, columns, length) if random is None else _draw_batch_ends(columns, length, random)

    def make_batch(columns_T: Positions) -> Batch:
        first, stop = int(columns_T[0]), int(columns_T[-1]) + 1
        inputs_BT, targets_BT = _read_text(split, starts[:, None] + np.arange(first - 1, stop))
        mask_BT = None
        if longer_row_count and stop == columns:  # the other rows are one token shorter
            mask_BT = torch.ones_like(targets_BT, dtype=torch.bool)
            mask_BT[longer_row_count:, -1] = False
        count = targets_BT.numel() if mask_BT is None else int(mask_BT.sum())
        scale = 1.0 if random is None else (stop - first) / length
        return Batch(inputs_BT, targets_BT, mask_BT, first > 0, count, scale)

    return TaskPlan(np.concatenate(([0], ends, [columns])), split.token_count, make_batch)


def _draw_batch_ends(columns: int, length: int, random: np.random.Generator) -> Positions:
    """The columns at which all batches but the last one end."""
    most = columns // MIN_LENGTH_TOKENS + 1
    means = np.where(random.random(most) < FULL_LENGTH_PROBABILITY, length, length / 2)
    drawn = random.normal(means, LENGTH_STANDARD_DEVIATION_TOKENS).astype(np.int64)
    ends = np.cumsum(np.maximum(MIN_LENGTH_TOKENS, drawn))
    return ends[ends < columns]


def _make_window_batch(split: Split, length: int, words: Positions) -> Batch:
    """Single words, each with the words before it; the mask is True only in the last column."""
    inputs_BT, targets_BT = _read_text(split, words[:, None] + np.arange(-length, 1))
    mask_BT = torch.zeros_like(targets_BT, dtype=torch.bool)
    mask_BT[:, -1] = True
    return Batch(inputs_BT, targets_BT, mask_BT, False, len(words))
