"""Choosing the vocabulary: from all words of the text and their training counts to tokens with ids.

Only the training split has a say, unless all splits are asked for; the others are read with what it chose.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.manifest import ImportOptions
from memtune.corpora.vocabulary import EOS, UNK, Vocabulary
from memtune.errors import CorpusError

__all__ = ["Selection", "select"]

_ASKED = "questions'"
"""Stands among the splits for the words that questions ask for."""

# What Moses' tokeniser writes for the signs its files reserve, older spellings too; the ampersand is last.
_MOSES_ESCAPES = {
    "&#124;": "|",
    "&bar;": "|",
    "&lt;": "<",
    "&gt;": ">",
    "&apos;": "'",
    "&quot;": '"',
    "&#91;": "[",
    "&bra;": "[",
    "&#93;": "]",
    "&ket;": "]",
    "&amp;": "&",
}


@dataclass(frozen=True)
class Selection:
    """A vocabulary, the id of each word of the text (words,) int32, and which of them it does not have."""

    vocabulary: Vocabulary
    ids: npt.NDArray[np.int32]
    outside: npt.NDArray[np.bool_]


def select(
    words: pa.Array,
    counts: Mapping[str, npt.NDArray[np.int64]],
    options: ImportOptions,
    asked: npt.NDArray[np.int32] | None = None,
) -> Selection:
    """The vocabulary of the words, END first, given their counts per split.

    `asked` numbers the words that questions ask for; a vocabulary of all words keeps each. With
    `unknown = "map"` it always has `<unk>`, otherwise only if the text that makes it has. A CorpusError if
    the text holds `<eos>`, if nothing is left to keep, or for words outside that may not become `<unk>`.
    """
    tokens, numbers = _spelled(words, options)
    totals = {
        split: np.bincount(numbers, count, len(tokens)).astype(np.int64) for split, count in counts.items()
    }
    if asked is not None and len(asked):
        totals[_ASKED] = np.bincount(numbers[asked], minlength=len(tokens)).astype(np.int64)
    _refuse_boundary(tokens, totals)
    makers = ["train"] if options.vocabulary == "train" else list(counts)
    counted = np.stack([totals[split] for split in makers]).sum(axis=0)
    wanted = counted >= options.min_count
    if options.vocabulary == "all" and _ASKED in totals:
        wanted |= totals[_ASKED] > 0
    kept, has_unknown = _kept(tokens, counted, wanted, options)
    ids = np.full(len(tokens), -1, np.int32)
    ids[0] = 0
    ids[kept] = np.arange(len(kept), dtype=np.int32) + 1 + has_unknown
    unknown_word = pc.index(tokens, UNK).as_py()
    if has_unknown and unknown_word >= 0:
        ids[unknown_word] = 1
    outside = ids < 0
    if options.unknown == "refuse":
        _refuse_outside(tokens, totals, outside)
    ids[outside] = 1
    vocabulary = _vocabulary(tokens, counted, ids, kept, has_unknown)
    return Selection(vocabulary, ids[numbers], outside[numbers])


def _spelled(words: pa.Array, options: ImportOptions) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Tokens as the options spell the words, each once, and the token of each word."""
    if not (options.unescape or options.lower_case):
        return words, np.arange(len(words), dtype=np.int32)
    if options.unescape:
        for escape, sign in _MOSES_ESCAPES.items():
            words = pc.replace_substring(words, escape, sign)
    spelled = (pc.utf8_lower(words) if options.lower_case else words).dictionary_encode()
    return spelled.dictionary, spelled.indices.to_numpy()


def _kept(
    tokens: pa.Array, counts: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_], options: ImportOptions
) -> tuple[npt.NDArray[np.int64], bool]:
    """Wanted words besides `<unk>`, by descending count, then by token; and whether there is an `<unk>`."""
    unknown = pc.index(tokens, UNK).as_py()
    has_unknown = options.unknown == "map" or (unknown >= 0 and bool(counts[unknown]))
    order = pc.sort_indices(
        pa.table({"count": counts, "token": tokens}),
        sort_keys=[("count", "descending"), ("token", "ascending")],
    ).to_numpy()
    order = order[wanted[order] & (order != 0) & (order != unknown)].astype(np.int64)
    if not len(order):
        text = "training text" if options.vocabulary == "train" else "text"
        raise CorpusError(f"the {text} has no word at least {options.min_count} times; lower min_count")
    if options.max_size is not None:
        order = order[: options.max_size - 1 - has_unknown]
    return order, has_unknown


def _vocabulary(
    tokens: pa.Array,
    counts: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int32],
    kept: npt.NDArray[np.int64],
    has_unknown: bool,
) -> Vocabulary:
    special = pa.array([EOS, UNK][: 1 + has_unknown], pa.string())
    totals = np.bincount(ids, counts, minlength=len(special) + len(kept)).astype(np.int64)
    return Vocabulary(pa.concat_arrays([special, tokens.take(pa.array(kept))]), pa.array(totals))


def _refuse_boundary(tokens: pa.Array, totals: Mapping[str, npt.NDArray[np.int64]]) -> None:
    boundary = pc.index(tokens, EOS).as_py()
    for split, total in totals.items():
        if boundary >= 0 and total[boundary]:
            raise CorpusError(
                f"the {split} text has {EOS} {total[boundary]} times; memtune closes every sentence with it, "
                "so take it out of the text"
            )


def _refuse_outside(
    tokens: pa.Array, totals: Mapping[str, npt.NDArray[np.int64]], outside: npt.NDArray[np.bool_]
) -> None:
    for split, total in totals.items():
        found = np.flatnonzero(outside & (total > 0))
        if len(found):
            examples = ", ".join(f'"{tokens[int(word)].as_py()}"' for word in found[:5])
            raise CorpusError(
                f"the {split} text has {len(found)} words outside the vocabulary: {examples}"
                f'{", ..." if len(found) > 5 else ""}; with unknown = "map" they become {UNK}'
            )
