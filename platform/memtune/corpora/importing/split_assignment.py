"""Divide one text into splits by a seed while it is read.

Sentences that belong together form a group: the candidates of one question, the two sentences of one pair. A
hash of the seed and of the group's first sentence selects the split. Equal sentences, and pairs with the same
premise, therefore get the same split at any position in the file. The split sizes match the shares only in
expectation.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.blocks.text_blocks import Block, TextFile
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.manifest import SPLITS
from memtune.errors import CorpusError

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Division:
    """A file to divide into splits in proportion to `shares`."""

    source: TextFile
    shares: Mapping[str, float] = field(default_factory=lambda: dict(zip(SPLITS, (80, 10, 10), strict=True)))
    seed: int = 0

    def __post_init__(self) -> None:
        if set(self.shares) != set(SPLITS) or min(self.shares.values()) <= 0:
            raise CorpusError(f"a text is divided into {', '.join(SPLITS)} by shares above 0, as in 80,10,10")

    @property
    def bounds(self) -> npt.NDArray[np.float64]:
        """Upper bounds of the splits' intervals within 0 to 1, (splits,), in the order of SPLITS."""
        ends = np.cumsum([self.shares[split] for split in SPLITS], dtype=np.float64)
        bounds: npt.NDArray[np.float64] = ends / ends[-1]
        return bounds


def divide_block(block: Block, division: Division) -> Iterator[tuple[str, Block]]:
    """Yields each split that gets sentences of the block, and a block of these sentences."""
    sentences = _join_sentences(block)
    prefix = f"{division.seed}\0".encode()
    hashes = np.array([_hash_to_unit_interval(prefix + sentence) for sentence in sentences])
    choices = np.searchsorted(division.bounds, hashes[_find_group_starts(block)], side="right")
    for index, split in enumerate(SPLITS):
        chosen = choices == index
        if chosen.any():
            yield split, _filter_block(block, chosen)


def _join_sentences(block: Block) -> list[bytes]:
    offsets = np.concatenate([[0], np.cumsum(block.lengths, dtype=np.int32)])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), block.words)
    sentences: list[bytes] = pc.binary_join(lists, " ").cast(pa.binary()).to_pylist()
    return sentences


def _hash_to_unit_interval(content: bytes) -> float:
    hashed = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(hashed) / float(2 ** (8 * _DIGEST_BYTES))


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
