"""How text becomes batches, what is counted: the protocols `sentence` and `stream`; `tree` beside them.

A perplexity means something only beside its protocol, so a protocol is a value and part of every result.
Both predict every token of a split (words, `<unk>` and the `<eos>` of each sentence) exactly once, in an
epoch of training as in an evaluation, and no evaluation depends on the batch size. `sentence` reads each
sentence from a zero state, `stream` reads on across sentences (Zaremba et al. 2014). `variant = "tran2016"`
is the lossy reading of the released code of Tran et al. (2016). `tree` has a module of its own.

A plan is a function of (split, seed, epoch) and makes its i-th batch directly, so that (epoch, i) is all
there is to remember of a position in the data.

Shapes: B batch rows, T time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from memtune.corpora.store import Split
from memtune.corpora.tree_protocol import TreeProtocol
from memtune.corpora.trees import BOUNDARY, sent
from memtune.errors import ConfigurationError
from memtune.values import Value

__all__ = ["Batch", "Plan", "Protocol", "SentenceProtocol", "StreamProtocol", "TextProtocol", "TreeProtocol"]

EVALUATION_TOKENS = 2048
"""Predicted tokens in a batch of an evaluation by sentence: enough for matrix products at full speed."""

EVALUATION_LENGTH = 256
"""Tokens read at once in an evaluation of a stream, which has one row."""

SHARE_OF_FULL_LENGTHS = 0.95
LENGTH_DEVIATION = 5
SHORTEST_LENGTH = 5
"""Of random lengths: the share drawn about the length, the others are about half of it; the deviation of
both and the shortest, in tokens (Merity et al. 2017, section 4.1, and its released code)."""

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Tokens to read, tokens to predict, and which of those count."""

    inputs_BT: Tensor
    """int64: column t is read before target t is predicted."""
    targets_BT: Tensor
    """int64."""
    mask_BT: Tensor | None
    """bool, True where a target counts; None when all do."""
    carried: bool
    """Whether the model goes on from its state after the batch before, or starts from a zero state."""
    token_count: int
    """Predicted tokens that count."""
    learning_rate_scale: float = 1.0
    """What the learning rate is multiplied by for this batch."""

    @property
    def rows(self) -> int:
        """B: sentences, or pieces of a stream, that are read side by side."""
        return len(self.inputs_BT)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; to a GPU without making the host wait."""
        if device.type == "cpu":
            return self
        inputs_BT, targets_BT = (sent(tensor, device) for tensor in (self.inputs_BT, self.targets_BT))
        mask_BT = None if self.mask_BT is None else sent(self.mask_BT, device)
        return replace(self, inputs_BT=inputs_BT, targets_BT=targets_BT, mask_BT=mask_BT)


class Plan(ABC):
    """The batches of one epoch of training, or of one evaluation, in their order."""

    @property
    @abstractmethod
    def token_count(self) -> int:
        """Predicted tokens of the whole plan."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of batches."""

    @abstractmethod
    def batch(self, index: int) -> Batch:
        """The batch at an index from 0, made without those before it."""


def shifted(targets_BT: Positions) -> Positions:
    """What is read before each target of a sentence: the boundary, then the targets before it."""
    inputs_BT = np.empty_like(targets_BT)
    inputs_BT[:, 0] = BOUNDARY
    inputs_BT[:, 1:] = targets_BT[:, :-1]
    return inputs_BT


class SentenceProtocol(Value):
    """Every sentence is read from a zero state: the boundary and its words in, they and it out.

    Batches hold sentences of one length, so there is no padding. In training, sentences share a batch by
    chance and batches come in random order, both anew in each epoch; the sentences of a length are cut into
    batches as even as can be, none over `batch_size`. In evaluation batches are as large as is fast.

    `tran2016` keeps only sentences with min_length <= words + 1 <= max_length, in every split, and of each
    length only as many as fill batches of exactly `batch_size`: its perplexity is that of a filtered set.
    """

    kind: Literal["sentence"] = "sentence"
    batch_size: int = Field(20, ge=1)
    variant: Literal["complete", "tran2016"] = "complete"
    min_length: int = Field(10, ge=2)
    max_length: int = Field(80, ge=2)

    @model_validator(mode="after")
    def _lengths_make_sense(self) -> Self:
        if self.min_length > self.max_length:
            raise ValueError(
                f"min_length must not be over max_length, got {self.min_length} and {self.max_length}"
            )
        if self.variant == "complete" and (self.min_length, self.max_length) != (10, 80):
            raise ValueError('only variant = "tran2016" has a min_length and a max_length')
        return self

    @property
    def label(self) -> str:
        """What of the protocol a validation figure depends on; figures compare only under the same label.

        Batches change training, not what is predicted and counted, unless sentences are dropped to fill them.
        """
        if self.variant == "complete":
            return self.kind
        kept = (f"{name}={getattr(self, name)}" for name in ("batch_size", "max_length", "min_length"))
        return " ".join([self.kind, *kept, f"variant={self.variant}"])

    def training_plan(self, split: Split, seed: int, epoch: int) -> Plan:
        """One epoch of training, shuffled by (seed, epoch)."""
        random = np.random.default_rng((seed, epoch))
        sentences = self._kept(split, random.permutation(split.sentence_count))
        return _sentence_plan(split, sentences, lambda length: self.batch_size, random)

    def evaluation_plan(self, split: Split, batch_tokens: int = EVALUATION_TOKENS) -> Plan:
        """All of a split in batches of about `batch_tokens` predicted tokens, by ascending length."""
        sentences = self._kept(split, np.arange(split.sentence_count))
        return _sentence_plan(split, sentences, lambda length: max(1, batch_tokens // length), None)

    def text_plan(self, split: Split, batch_tokens: int = EVALUATION_TOKENS) -> Plan:
        """What `evaluation_plan` predicts, in the order of the text; a batch's sentences are padded."""
        sentences = np.sort(self._kept(split, np.arange(split.sentence_count)))
        return _PaddedPlan(split, sentences, max(1, batch_tokens // int(split.lengths[sentences].max())))

    def _kept(self, split: Split, order: Positions) -> Positions:
        """The sentences that take part, by ascending length, in the given order within a length."""
        lengths = split.lengths[order]
        if self.variant == "tran2016":
            inside = (lengths >= self.min_length) & (lengths <= self.max_length)
            order, lengths = order[inside], lengths[inside]
        grouped = order[np.argsort(lengths, kind="stable")]
        return grouped if self.variant == "complete" else self._full_batches(split, grouped)

    def _full_batches(self, split: Split, grouped: Positions) -> Positions:
        _, starts, counts = np.unique(split.lengths[grouped], return_index=True, return_counts=True)
        kept = np.arange(len(grouped)) - np.repeat(starts, counts)
        grouped = grouped[kept < np.repeat(counts // self.batch_size * self.batch_size, counts)]
        if not len(grouped):
            raise ConfigurationError(
                f"no length from {self.min_length} to {self.max_length} has {self.batch_size} sentences in "
                f'"{split.name}"; take a smaller batch_size or variant = "complete"'
            )
        return grouped


class StreamProtocol(Value):
    """The split is one text; the state is carried from batch to batch and gradients stop at the batch's edge.

    In training the text is cut into `batch_size` contiguous rows of equal length (the first ones one token
    longer when it does not divide), read side by side, `length` tokens at a time; the first input of a row is
    the token before it, and its state is zero at the start of an epoch. An evaluation reads one row.

    With `random_lengths` (Merity, Keskar and Socher 2017, section 4.1) each batch of training draws its own
    length, about `length` or now and then about half of it, so that no epoch cuts the text where another did;
    the learning rate of a batch is scaled by its length over `length`.

    With `shuffled_windows` (Benes, Baskar and Burget 2017, section 3) a row of a training batch is the
    `length` words before one word, read from a zero state, and that word alone is predicted; an epoch
    predicts every word once, in random order. A model that looks no further back evaluates alike.
    """

    kind: Literal["stream"] = "stream"
    batch_size: int = Field(20, ge=1)
    length: int = Field(35, ge=1)
    random_lengths: bool = False
    shuffled_windows: bool = False

    @model_validator(mode="after")
    def _one_way_to_cut(self) -> Self:
        if self.random_lengths and self.shuffled_windows:
            raise ValueError("random_lengths and shuffled_windows exclude each other; keep one of them")
        return self

    @property
    def label(self) -> str:
        """What of the protocol a validation figure depends on: every one is of the same predictions."""
        return self.kind

    @property
    def longest(self) -> int:
        """Tokens in a row of the longest batch; of random lengths one in 30,000 is longer."""
        return self.length + 4 * LENGTH_DEVIATION if self.random_lengths else self.length

    def training_plan(self, split: Split, seed: int, epoch: int) -> Plan:
        """One epoch of training: the text in its one order, cut alike in every epoch, or by (seed, epoch)."""
        if self.shuffled_windows:
            return _WindowPlan(split, self.batch_size, self.length, np.random.default_rng((seed, epoch)))
        random = np.random.default_rng((seed, epoch)) if self.random_lengths else None
        return _StreamPlan(split, self.batch_size, self.length, random)

    def evaluation_plan(self, split: Split, batch_tokens: int = EVALUATION_LENGTH) -> Plan:
        """All of a split as one row, `batch_tokens` tokens at a time."""
        return _StreamPlan(split, 1, batch_tokens)

    def text_plan(self, split: Split) -> Plan:
        """What `evaluation_plan` predicts, in the order of the text: the same."""
        return self.evaluation_plan(split)


TextProtocol = SentenceProtocol | StreamProtocol
"""A protocol that reads a text in its order."""
Protocol = Annotated[TextProtocol | TreeProtocol, Field(discriminator="kind")]


def _sentence_plan(
    split: Split,
    sentences: Positions,
    batch_size: Callable[[int], int],
    random: np.random.Generator | None,
) -> Plan:
    """Even batches of at most batch_size(length) out of sentences grouped by length, shuffled by `random`."""
    lengths, counts = np.unique(split.lengths[sentences], return_counts=True)
    sizes = [
        size
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True)
        for size in _even_sizes(count, batch_size(length))
    ]
    bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    order = np.arange(len(sizes)) if random is None else random.permutation(len(sizes))
    return _SentencePlan(split, sentences, bounds, order)


def _even_sizes(count: int, limit: int) -> list[int]:
    pieces = -(-count // limit)
    size, longer = divmod(count, pieces)
    return [size + 1] * longer + [size] * (pieces - longer)


class _SentencePlan(Plan):
    def __init__(self, split: Split, sentences: Positions, bounds: Positions, order: Positions) -> None:
        self._split = split
        self._sentences = sentences
        self._bounds = bounds
        self._order = order
        self._token_count = int(split.lengths[sentences].sum(dtype=np.int64))

    @property
    def token_count(self) -> int:
        return self._token_count

    def __len__(self) -> int:
        return len(self._order)

    def batch(self, index: int) -> Batch:
        place = self._order[index]
        rows = self._sentences[self._bounds[place] : self._bounds[place + 1]]
        columns = np.arange(self._split.lengths[rows[0]])
        targets_BT = self._split.gather(self._split.starts[rows][:, None] + columns)
        inputs_BT = shifted(targets_BT)
        return Batch(torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT), None, False, targets_BT.size)


class _PaddedPlan(Plan):
    """Sentences one after the other, `rows` in a batch."""

    def __init__(self, split: Split, sentences: Positions, rows: int) -> None:
        self._split = split
        self._sentences = sentences
        self._rows = rows

    @property
    def token_count(self) -> int:
        return int(self._split.lengths[self._sentences].sum(dtype=np.int64))

    def __len__(self) -> int:
        return -(-len(self._sentences) // self._rows)

    def batch(self, index: int) -> Batch:
        rows = self._sentences[index * self._rows : (index + 1) * self._rows]
        lengths = self._split.lengths[rows]
        columns = np.arange(lengths.max())
        mask_BT = columns < lengths[:, None]
        text = self._split.gather(self._split.starts[rows][:, None] + np.where(mask_BT, columns, 0))
        targets_BT = np.where(mask_BT, text, BOUNDARY)
        inputs_BT = shifted(targets_BT)
        inputs, targets, mask = (torch.from_numpy(array) for array in (inputs_BT, targets_BT, mask_BT))
        return Batch(inputs, targets, mask, False, int(lengths.sum()))


class _StreamPlan(Plan):
    def __init__(
        self, split: Split, rows: int, length: int, random: np.random.Generator | None = None
    ) -> None:
        self._split = split
        self._length = length
        size, self._longer = divmod(split.token_count, rows)
        self._columns = size + (self._longer > 0)
        index = np.arange(rows)
        self._starts = index * size + np.minimum(index, self._longer)
        self._scaled = random is not None
        ends = np.arange(length, self._columns, length) if random is None else self._random_ends(random)
        self._bounds = [0, *ends.tolist(), self._columns]

    def _random_ends(self, random: np.random.Generator) -> Positions:
        """Where batches end before the last one does."""
        most = self._columns // SHORTEST_LENGTH + 1
        means = np.where(random.random(most) < SHARE_OF_FULL_LENGTHS, self._length, self._length / 2)
        drawn = random.normal(means, LENGTH_DEVIATION).astype(np.int64)
        ends = np.cumsum(np.maximum(SHORTEST_LENGTH, drawn))
        return ends[ends < self._columns]

    @property
    def token_count(self) -> int:
        return self._split.token_count

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def batch(self, index: int) -> Batch:
        first, stop = self._bounds[index : index + 2]
        text = self._read(np.arange(first - 1, stop))
        inputs_BT = torch.from_numpy(text[:, :-1].copy())
        targets_BT = torch.from_numpy(text[:, 1:].copy())
        mask_BT = self._mask(stop - first) if stop == self._columns else None
        count = targets_BT.numel() if mask_BT is None else int(mask_BT.sum())
        scale = (stop - first) / self._length if self._scaled else 1.0
        return Batch(inputs_BT, targets_BT, mask_BT, index > 0, count, scale)

    def _read(self, columns: Positions) -> Positions:
        """The tokens of every row at these columns; -1 of the first row is the boundary before the text."""
        positions = self._starts[:, None] + columns
        text = self._split.gather(positions.clip(0, self._split.token_count - 1))
        text[positions < 0] = BOUNDARY
        return text

    def _mask(self, width: int) -> Tensor | None:
        """Without the last column of the rows that are one token shorter; None when there are none."""
        if not self._longer:
            return None
        mask_BT = torch.ones(len(self._starts), width, dtype=torch.bool)
        mask_BT[self._longer :, -1] = False
        return mask_BT


class _WindowPlan(Plan):
    """Single words, each with the words before it: the mask is true in the last column alone."""

    def __init__(self, split: Split, rows: int, length: int, random: np.random.Generator) -> None:
        self._split = split
        self._rows = rows
        self._order = random.permutation(split.token_count)
        self._window = np.arange(-length, 1)

    @property
    def token_count(self) -> int:
        return self._split.token_count

    def __len__(self) -> int:
        return -(-self._split.token_count // self._rows)

    def batch(self, index: int) -> Batch:
        predicted = self._order[index * self._rows : (index + 1) * self._rows]
        positions = predicted[:, None] + self._window
        text = self._split.gather(positions.clip(0))
        text[positions < 0] = BOUNDARY
        inputs_BT = torch.from_numpy(text[:, :-1].copy())
        targets_BT = torch.from_numpy(text[:, 1:].copy())
        mask_BT = torch.zeros_like(targets_BT, dtype=torch.bool)
        mask_BT[:, -1] = True
        return Batch(inputs_BT, targets_BT, mask_BT, False, len(predicted))
