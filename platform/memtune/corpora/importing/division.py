"""The division of a source into splits by a seed.

Sentences that belong together form a group: the candidates of one question, the two sentences of one pair. A
hash of the seed and of the group's first sentence selects the split. Equal sentences, and pairs with the same
premise, therefore get the same split at any position in the file. The split sizes match the shares only in
expectation.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.arguments import check_type, describe_value
from memtune.corpora.importing.data_sets import DataSet
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.manifest import SPLITS
from memtune.corpora.text_blocks import Block, TextFile
from memtune.errors import ArgumentError, CorpusError

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Division:
    """A file or a data set to divide into splits in proportion to `shares`."""

    source: TextFile | DataSet
    shares: Mapping[str, float] = field(default_factory=lambda: dict(zip(SPLITS, (80, 10, 10), strict=True)))
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ArgumentError for values of other types, and CorpusError for wrong shares."""
        if not isinstance(self.source, TextFile | DataSet):
            raise ArgumentError(
                f"source must be a TextFile or a DataSet; got {describe_value(self.source)}"
                f"{suggest_file(self.source)}"
            )
        expected = 'a mapping of splits, such as {"train": 80, "valid": 10, "test": 10}'
        check_type("shares", self.shares, Mapping, expected)
        for split, share in self.shares.items():
            check_type(f'shares["{split}"]', share, Real, "a number, such as 80")
        check_type("seed", self.seed, Integral, "a whole number, such as 0")
        if set(self.shares) != set(SPLITS) or not all(0 < share < inf for share in self.shares.values()):
            raise CorpusError(f"a text is divided into {', '.join(SPLITS)} by shares above 0, as in 80,10,10")


def divide_block(block: Block, division: Division) -> Iterator[tuple[str, Block]]:
    """Yields each split that gets sentences of the block, and a block of these sentences."""
    offsets = np.concatenate([[0], np.cumsum(block.lengths, dtype=np.int32)])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), block.words)
    prefix = f"{division.seed}\0".encode()
    hashes = np.array(
        [
            int.from_bytes(hashlib.blake2b(prefix + sentence, digest_size=_DIGEST_BYTES).digest())
            for sentence in pc.binary_join(lists, " ").cast(pa.binary()).to_pylist()
        ],
        np.float64,
    ) / float(2 ** (8 * _DIGEST_BYTES))
    ends = np.cumsum([division.shares[split] for split in SPLITS], dtype=np.float64)
    choices = np.searchsorted(ends[:-1] / ends[-1], hashes[_find_group_starts(block)], side="right")
    for index, split in enumerate(SPLITS):
        chosen = choices == index
        if chosen.any():
            yield split, _filter_block(block, chosen)


def _find_group_starts(block: Block) -> npt.NDArray[np.int64]:
    """Index of the first sentence of each sentence's group, (sentences,)."""
    starts = np.arange(len(block.lengths))
    if pairs := block.annotations.get("inference"):
        starts[pairs["hypothesis"].to_numpy()] = pairs["premise"].to_numpy()
    if questions := block.annotations.get("completion"):
        for first, candidates in zip(
            questions["first"].to_pylist(), questions["candidates"].to_pylist(), strict=True
        ):
            starts[first : first + candidates] = first
    return starts


def _filter_block(block: Block, chosen: npt.NDArray[np.bool_]) -> Block:
    words = block.words.filter(pa.array(np.repeat(chosen, block.lengths)))
    new_indices = np.cumsum(chosen) - 1
    annotations = {}
    for kind, rows in block.annotations.items():
        names = ANNOTATION_KINDS[kind].sentence_columns
        rows = rows.filter(pa.array(chosen[rows[names[0]].to_numpy()] if names else chosen))
        for name in names:
            column = pa.array(new_indices[rows[name].to_numpy()], pa.int64())
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        annotations[kind] = rows
    return Block(words, block.lengths[chosen], annotations)


def suggest_file(source: object) -> str:
    """For an error, how a path becomes a source; empty for what is none."""
    return f"; a file is TextFile({str(source)!r})" if isinstance(source, str | bytes | Path) else ""
