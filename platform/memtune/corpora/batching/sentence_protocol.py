"""The protocol `sentence`: every sentence is read from a zero state.

`variant = "tran2016"` reproduces the lossy reading of the released code of Tran et al. (2016).

Shapes: B batch rows, T time.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from memtune.corpora.batching.batches import BOUNDARY, Batch, Plan, Positions, TaskPlan, shift_targets
from memtune.corpora.store.corpus import Split
from memtune.errors import ConfigurationError
from memtune.number_format import format_count
from memtune.values import Value

LENGTH_FIELDS = frozenset({"min_length", "max_length"})
"""Fields that only `variant = "tran2016"` has."""

EVALUATION_BATCH_TOKENS = 2048
"""Predicted tokens in a batch of an evaluation: enough for matrix products at full speed."""


class SentenceProtocol(Value):
    """Every sentence is read from a zero state.

    Its inputs are the boundary and its words, its targets are its words and the boundary.

    Batches hold sentences of one length, so there is no padding. In training, the sentences of a batch and
    the order of batches are random and change with each epoch; the sentences of one length are divided into
    batches of nearly equal size, at most `batch_size`. Evaluation batches are as large as is fast.

    `tran2016` keeps only sentences with min_length <= words + 1 <= max_length, in every split, and of each
    length only as many as fill batches of exactly `batch_size`: its perplexity is that of a filtered set.
    """

    kind: Literal["sentence"] = "sentence"
    carries_state: ClassVar[bool] = False
    """Whether the state after a sentence is the state before the next one."""
    reads_trees: ClassVar[Literal[False]] = False
    """Whether words are predicted along trees, not in the order of the text."""
    reads_sentences: ClassVar[bool] = True
    """Whether every sentence is read alone, in its order and from its first word to its `<eos>`."""
    batch_size: int = Field(20, ge=1, json_schema_extra={"unit": "sentences, or rows of a stream"})
    """Sentences of a training batch, at most; it changes training, not the perplexity of an evaluation."""
    variant: Literal["complete", "tran2016"] = "complete"
    """Which sentences are kept: all, or with "tran2016" those of Tran et al. (2016), as above."""
    min_length: int = Field(10, ge=2, json_schema_extra={"unit": "tokens"})
    """Words and boundary of the shortest sentence that "tran2016" keeps."""
    max_length: int = Field(80, ge=2, json_schema_extra={"unit": "tokens"})
    """Words and boundary of the longest sentence that "tran2016" keeps."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(
                f"min_length must not be over max_length, got {self.min_length} and {self.max_length}"
            )
        if self.variant == "complete" and (self.min_length, self.max_length) != (10, 80):
            raise ValueError('only variant = "tran2016" has a min_length and a max_length')
        return self

    @property
    def label(self) -> str:
        """The settings that a validation result depends on; results compare only under the same label.

        Batch sizes change training but not the predictions that count, unless sentences are dropped.
        """
        if self.variant == "complete":
            return self.kind
        kept = (f"{name}={getattr(self, name)}" for name in ("batch_size", "max_length", "min_length"))
        return " ".join([self.kind, *kept, f"variant={self.variant}"])

    @property
    def unused_fields(self) -> frozenset[str]:
        """Fields without an effect, which the record of a trial leaves out."""
        return frozenset() if self.variant == "tran2016" else LENGTH_FIELDS

    def require_text(self, purpose: str) -> Self:
        """This protocol, which reads a text in its order; `purpose` would say in the error what needs one."""
        return self

    def count_longest_row(self, longest_sentence: int) -> int:
        """Tokens in the longest row of a training batch, from those of the longest sentence."""
        return longest_sentence if self.variant == "complete" else min(longest_sentence, self.max_length)

    def training_plan(self, split: Split, seed: int, epoch: int) -> Plan:
        """One epoch of training, shuffled by (seed, epoch)."""
        random = np.random.default_rng((seed, epoch))
        sentences = self._select_sentences(split, random.permutation(split.sentence_count))
        return _make_sentence_plan(split, sentences, lambda length: self.batch_size, random)

    def evaluation_plan(self, split: Split, batch_tokens: int = EVALUATION_BATCH_TOKENS) -> Plan:
        """All of a split in batches of about `batch_tokens` predicted tokens, by ascending length."""
        sentences = self._select_sentences(split, np.arange(split.sentence_count))
        return _make_sentence_plan(split, sentences, lambda length: max(1, batch_tokens // length), None)

    def text_plan(self, split: Split) -> Plan:
        """The predictions of `evaluation_plan` in the order of the text; sentences of a batch are padded."""
        sentences = np.sort(self._select_sentences(split, np.arange(split.sentence_count)))
        rows = max(1, EVALUATION_BATCH_TOKENS // int(split.lengths[sentences].max()))
        bounds = np.append(np.arange(0, len(sentences), rows), len(sentences))
        return _cut_sentences(split, sentences, bounds)

    def _select_sentences(self, split: Split, order: Positions) -> Positions:
        """The sentences that are read, by ascending length, in the given order within a length."""
        lengths = split.lengths[order]
        if self.variant == "tran2016":
            inside = (lengths >= self.min_length) & (lengths <= self.max_length)
            order, lengths = order[inside], lengths[inside]
        grouped = order[np.argsort(lengths, kind="stable")]
        return grouped if self.variant == "complete" else self._drop_partial_batches(split, grouped)

    def _drop_partial_batches(self, split: Split, grouped: Positions) -> Positions:
        _, starts, counts = np.unique(split.lengths[grouped], return_index=True, return_counts=True)
        kept = np.arange(len(grouped)) - np.repeat(starts, counts)
        grouped = grouped[kept < np.repeat(counts // self.batch_size * self.batch_size, counts)]
        if not len(grouped):
            raise ConfigurationError(
                f"no length from {self.min_length} to {self.max_length} has "
                f'{format_count(self.batch_size, "sentence")} in "{split.name}"; use a smaller batch_size or '
                'variant = "complete"'
            )
        return grouped


def _make_sentence_plan(
    split: Split,
    sentences: Positions,
    batch_size: Callable[[int], int],
    random: np.random.Generator | None,
) -> Plan:
    """Batches of nearly equal size, at most batch_size(length), by length; `random` shuffles the batches."""
    lengths, counts = np.unique(split.lengths[sentences], return_counts=True)
    sizes: list[int] = []
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        pieces = -(-count // batch_size(length))
        size, longer = divmod(count, pieces)
        sizes += [size + 1] * longer + [size] * (pieces - longer)
    bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    order = None if random is None else random.permutation(len(sizes))
    return _cut_sentences(split, sentences, bounds, order)


def _cut_sentences(
    split: Split, sentences: Positions, bounds: Positions, order: Positions | None = None
) -> Plan:
    token_count = int(split.lengths[sentences].sum(dtype=np.int64))
    return TaskPlan(bounds, token_count, partial(_make_batch, split), sentences, order)


def _make_batch(split: Split, sentences: Positions) -> Batch:
    lengths = split.lengths[sentences]
    text_BT, mask_BT = split.gather_sentences(sentences, lengths)
    targets_BT = np.where(mask_BT, text_BT, BOUNDARY)
    inputs_BT, targets = torch.from_numpy(shift_targets(targets_BT)), torch.from_numpy(targets_BT)
    mask = None if mask_BT.all() else torch.from_numpy(mask_BT)
    return Batch(inputs_BT, targets, mask, False, int(lengths.sum()))
