"""Select the vocabulary: tokens and their ids, from all words of the text and their counts.

By default only the training split determines the vocabulary, and the other splits are encoded with it.
`vocabulary = "all"` uses all splits.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.store.vocabulary import EOS, UNK, Vocabulary
from memtune.corpora.text_blocks import SENTENCE_END
from memtune.errors import CorpusError
from memtune.number_format import format_count

_QUESTION_WORDS = "questions'"
"""Key next to the split names for the counts of the words in annotation columns; error messages show it."""

# Escapes that the Moses tokeniser writes for its reserved characters, older spellings included. The ampersand
# comes last: replaced earlier, "&amp;lt;" would be unescaped twice.
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

_INVISIBLE_PATTERN = "[\u00ad\u200b\u2060\ufeff]"
"""Soft hyphens, zero-width spaces, word joiners and byte order marks."""


@dataclass(frozen=True)
class VocabularySelection:
    """The selected vocabulary and the encoding of the words of the text.

    ids: vocabulary id of each word number, (words,) int32. outside_mask: words outside the vocabulary,
    (words,) bool.
    """

    vocabulary: Vocabulary
    ids: npt.NDArray[np.int32]
    outside_mask: npt.NDArray[np.bool_]


def select_vocabulary(
    words: pa.Array,
    counts: Mapping[str, npt.NDArray[np.int64]],
    options: ImportOptions,
    question_words: npt.NDArray[np.int32] | None = None,
    *,
    keep_all: bool = False,
) -> VocabularySelection:
    """Selects the vocabulary from all words and their counts by split; words[0] is the sentence end.

    `question_words` are the word numbers in annotation columns; a vocabulary of all splits keeps each of
    them. `keep_all` keeps words that no split has: those of a tokeniser. With `unknown = "map"` the
    vocabulary always has `<unk>`, otherwise only if the counted text has it. Raises CorpusError if the text
    contains `<eos>`, if no word is frequent enough, or if words are outside the vocabulary and
    `unknown = "refuse"`.
    """
    tokens, numbers = words, np.arange(len(words), dtype=np.int32)
    if options.unescape or options.lower_case or options.normalise:
        spelled = spell_words(words, options).dictionary_encode()
        tokens, numbers = spelled.dictionary, spelled.indices.to_numpy()
    totals = {
        split: np.bincount(numbers, count, len(tokens)).astype(np.int64) for split, count in counts.items()
    }
    if question_words is not None and len(question_words):
        totals[_QUESTION_WORDS] = np.bincount(numbers[question_words], minlength=len(tokens)).astype(np.int64)
    _refuse_boundary(tokens, totals)
    counted_splits = ["train"] if options.vocabulary == "train" else list(counts)
    counted = np.stack([totals[split] for split in counted_splits]).sum(axis=0)
    wanted = counted >= options.min_count
    if options.vocabulary == "all" and _QUESTION_WORDS in totals:
        wanted |= totals[_QUESTION_WORDS] > 0
    wanted |= keep_all
    kept, has_unknown = _choose_tokens(tokens, counted, wanted, options)
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
    special = pa.array([EOS, UNK][: 1 + has_unknown], pa.string())
    kept_counts = np.bincount(ids, counted, minlength=len(special) + len(kept)).astype(np.int64)
    vocabulary = Vocabulary(pa.concat_arrays([special, tokens.take(pa.array(kept))]), pa.array(kept_counts))
    return VocabularySelection(vocabulary, ids[numbers], outside[numbers])


def spell_words(words: pa.Array, options: ImportOptions) -> pa.Array:
    """The words after unescaping, normalisation and lower-casing."""
    if options.unescape:
        for escape, character in _MOSES_ESCAPES.items():
            words = pc.replace_substring(words, escape, character)
    if options.normalise:
        words = _normalise(words, options.normalise)
    return pc.utf8_lower(words) if options.lower_case else words


def spell_word(word: str, form: Literal["NFC", "NFKC"] | None, unescape: bool = False) -> str:
    """A word as an import with `normalise` and `unescape` spells it."""
    options = ImportOptions(normalise=form, unescape=unescape)
    spelled: str = spell_words(pa.array([word], pa.string()), options)[0].as_py()
    return spelled


def _normalise(words: pa.Array, form: Literal["NFC", "NFKC"]) -> pa.Array:
    """The words in a normal form; a word that would become empty or hold whitespace stays as it is."""
    visible = pc.replace_substring_regex(words, _INVISIBLE_PATTERN, "").to_pylist()
    # pyarrow's utf8_normalize (25.0) decomposes for NFC and does not compose again.
    found = [unicodedata.normalize(form, word) for word in visible]
    spelled = [
        new if new.split() == [new] or old == SENTENCE_END else old
        for old, new in zip(words.to_pylist(), found, strict=True)
    ]
    return pa.array(spelled, pa.string())


def _choose_tokens(
    tokens: pa.Array, counts: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_], options: ImportOptions
) -> tuple[npt.NDArray[np.int64], bool]:
    """Indices of the kept tokens without `<eos>` and `<unk>`, and whether the vocabulary has `<unk>`.

    The order is by descending count, then by token.
    """
    unknown = pc.index(tokens, UNK).as_py()
    has_unknown = options.unknown == "map" or (unknown >= 0 and bool(counts[unknown]))
    order = pc.sort_indices(
        pa.table({"count": counts, "token": tokens}),
        sort_keys=[("count", "descending"), ("token", "ascending")],
    ).to_numpy()
    order = order[wanted[order] & (order != 0) & (order != unknown)].astype(np.int64)
    if not len(order):
        text = "training text" if options.vocabulary == "train" else "text"
        least = format_count(options.min_count, "time")
        raise CorpusError(f"no word occurs at least {least} in the {text}; lower min_count")
    if options.max_size is not None:
        order = order[: options.max_size - 1 - has_unknown]
    return order, has_unknown


def _refuse_boundary(tokens: pa.Array, totals: Mapping[str, npt.NDArray[np.int64]]) -> None:
    boundary = pc.index(tokens, EOS).as_py()
    for split, total in totals.items():
        if boundary >= 0 and total[boundary]:
            times = format_count(total[boundary], "time")
            raise CorpusError(
                f"the {split} text contains {EOS} {times}; memtune ends every sentence with it, so remove it "
                "from the text"
            )


def _refuse_outside(
    tokens: pa.Array, totals: Mapping[str, npt.NDArray[np.int64]], outside_mask: npt.NDArray[np.bool_]
) -> None:
    for split, total in totals.items():
        outside = np.flatnonzero(outside_mask & (total > 0))
        if len(outside):
            examples = ", ".join(f'"{tokens[int(word)].as_py()}"' for word in outside[:5])
            count = format_count(len(outside), "word")
            raise CorpusError(
                f"the {split} text has {count} outside the vocabulary: {examples}"
                f'{", ..." if len(outside) > 5 else ""}; with unknown = "map" they become {UNK}'
            )
