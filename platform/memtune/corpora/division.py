"""Dividing one text into splits, by a seed, while it is read.

What belongs together stays together: a question's candidates, a pair's two sentences. A part goes where the
digest of its first sentence and the seed falls, so equal sentences share a split, pairs with one premise too,
wherever they stand; the shares are met up to chance.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.annotations import KINDS
from memtune.corpora.manifest import SPLITS
from memtune.corpora.sources import Block, TextFile
from memtune.errors import CorpusError

__all__ = ["Division", "divided"]

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Division:
    """A file to be divided into splits in proportion to `shares`."""

    source: TextFile
    shares: Mapping[str, float] = field(default_factory=lambda: dict(zip(SPLITS, (80, 10, 10), strict=True)))
    seed: int = 0

    def __post_init__(self) -> None:
        if set(self.shares) != set(SPLITS) or min(self.shares.values()) <= 0:
            raise CorpusError(f"a text is divided into {', '.join(SPLITS)} by shares above 0, as in 80,10,10")

    @property
    def bounds(self) -> npt.NDArray[np.float64]:
        """Where the splits end between 0 and 1, in the order of SPLITS."""
        ends = np.cumsum([self.shares[split] for split in SPLITS], dtype=np.float64)
        bounds: npt.NDArray[np.float64] = ends / ends[-1]
        return bounds


def divided(block: Block, division: Division) -> Iterator[tuple[str, Block]]:
    """The part of a block that each split gets, where it gets any."""
    sentences = _sentences(block)
    prefix = f"{division.seed}\0".encode()
    places = np.array([_place(prefix + sentence) for sentence in sentences])
    choices = np.searchsorted(division.bounds, places[_parts(block)], side="right")
    for index, split in enumerate(SPLITS):
        chosen = choices == index
        if chosen.any():
            yield split, _filtered(block, chosen)


def _sentences(block: Block) -> list[bytes]:
    offsets = np.concatenate([[0], np.cumsum(block.lengths, dtype=np.int32)])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), block.words)
    sentences: list[bytes] = pc.binary_join(lists, " ").cast(pa.binary()).to_pylist()
    return sentences


def _place(content: bytes) -> float:
    found = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(found) / float(2 ** (8 * _DIGEST_BYTES))


def _parts(block: Block) -> npt.NDArray[np.int64]:
    """For each sentence the one it stays with."""
    parts = np.arange(len(block.lengths))
    if pairs := block.annotations.get("inference"):
        parts[pairs["hypothesis"].to_numpy()] = pairs["premise"].to_numpy()
    if questions := block.annotations.get("completion"):
        for first, candidates in zip(
            questions["first"].to_pylist(), questions["candidates"].to_pylist(), strict=True
        ):
            parts[first : first + candidates] = first
    return parts


def _filtered(block: Block, chosen: npt.NDArray[np.bool_]) -> Block:
    words = block.words.filter(pa.array(np.repeat(chosen, block.lengths)))
    numbers = np.cumsum(chosen) - 1
    annotations = {}
    for kind, rows in block.annotations.items():
        names = KINDS[kind].sentences
        rows = rows.filter(pa.array(chosen[rows[names[0]].to_numpy()] if names else chosen))
        for name in names:
            column = pa.array(numbers[rows[name].to_numpy()], pa.int64())
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        annotations[kind] = rows
    return Block(words, block.lengths[chosen], annotations)
