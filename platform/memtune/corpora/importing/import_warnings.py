"""Warnings of an import about its text, each with its numbers and a remedy.

They read the distinct words and eight words of each sentence, so that they take no noticeable time.
"""

import unicodedata
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.importing.counted_text import SplitCounter
from memtune.corpora.importing.vocabulary_selection import INVISIBLE_PATTERN
from memtune.corpora.store.manifest import ImportOptions
from memtune.number_format import format_count

Hashes = npt.NDArray[np.uint64]

MAX_TYPE_SHARE = 0.04
"""Largest vocabulary as a share of the training words. Penn Treebank has 1 %, WikiText-2 2 %, raw prose of
1.2 million words 9 %."""
MIN_WARNED_TYPES = 10_000
"""A smaller vocabulary is not too large, whatever the length of the text."""
MAX_SIGN_SHARE = 0.05
"""Largest share of types that end in a sign, as words of prose do that nobody split."""
MAX_SIGN_SHARE_ALONE = 0.2
"""The same for a vocabulary that is not too large: raw prose has 40 %, split text 1 %."""
MIN_SIGN_TYPES = 200
"""A smaller vocabulary has too few types for a share."""
MAX_MEAN_WORDS = 500
"""Longest mean sentence."""
MAX_ONLY_WORDS = 100
"""Longest sentence of a split that has no other: more words are a text whose sentences are not on lines."""
MAX_SHARED = 0.05
"""Largest share of validation or test sentences that training has too; Penn Treebank has 2 %."""
MIN_SHARED_WORDS = 5
"""Shorter sentences occur in any text again."""

_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIN_SUGGESTED, _MAX_SUGGESTED = 500, 8000
_PROSE_ADVICE = (
    "--format prose splits words and signs, and joins lines unless --option paragraphs=lines is given"
)
_GUTENBERG_WORDS = (
    ["GUTENBERG", "Gutenberg", "Gutenberg's", "Gutenberg-tm"],
    ["EBOOK", "eBook", "eBooks", "Ebook", "ETEXT", "Etext", "etext", "Etexts", "etexts"],
)
"""The header and the licence of Project Gutenberg have one word of each list."""
_SIGN_END = '[\\p{L}\\p{N}][.,;:!?")\u2019\u201d]+$'


def find_text_warnings(
    words: pa.Array, counters: Mapping[str, SplitCounter], options: ImportOptions, is_generated: bool
) -> Iterator[str]:
    """Warnings about a text of words; sentences that a program generates may repeat themselves."""
    if options.normalise is None:
        yield from _check_spelling(words, counters)
    if all(pc.any(pc.is_in(words, pa.array(names))).as_py() for names in _GUTENBERG_WORDS):
        yield (
            "the text names Project Gutenberg and its e-texts; if it has their header and licence, import it "
            "with --format gutenberg, which leaves them out"
        )
    if options.tokens == "words" and "train" in counters:
        yield from _check_vocabulary(words, counters["train"], options)
    for split, counter in counters.items():
        most = MAX_ONLY_WORDS if counter.sentence_count == 1 else MAX_MEAN_WORDS
        if counter.word_count > most * counter.sentence_count:
            yield (
                f"the {split} split has {format_count(counter.sentence_count, 'sentence')} of "
                f"{counter.word_count / counter.sentence_count:,.0f} words on average; where a line is not "
                "one sentence, import prose with --format prose (--option paragraphs=lines where a line is a "
                "paragraph), or a text of one line with --format raw"
            )
    if "train" in counters and not is_generated:
        yield from _check_shared_sentences(counters)


def _check_spelling(words: pa.Array, counters: Mapping[str, SplitCounter]) -> Iterator[str]:
    plain = pc.string_is_ascii(words)
    if pc.all(plain).as_py():
        return
    totals = np.sum([counter.counts for counter in counters.values()], axis=0)
    numbers = np.flatnonzero(~plain.to_numpy(zero_copy_only=False))
    others = words.take(pa.array(numbers))
    hidden = pc.match_substring_regex(others, INVISIBLE_PATTERN).to_numpy(zero_copy_only=False)
    if hidden.any():
        example, counts = others[int(np.argmax(hidden))].as_py(), totals[numbers[hidden]]
        yield (
            f"{_count_words(counts)} {'holds' if counts.sum() == 1 else 'hold'} zero-width characters or "
            f"soft hyphens, such as {example!a}; --normalise NFC removes them"
        )
    spelled = others.to_pylist()
    decomposed = np.array([not unicodedata.is_normalized("NFC", word) for word in spelled])
    if decomposed.any():
        example, counts = spelled[int(np.argmax(decomposed))], totals[numbers[decomposed]]
        yield (
            f"{_count_words(counts)} {'is' if counts.sum() == 1 else 'are'} not in Unicode's composed form, "
            f"such as {example!a}, so equal words may have several types; --normalise NFC makes them one"
        )


def _count_words(counts: npt.NDArray[np.int64]) -> str:
    return f"{format_count(int(counts.sum()), 'word')} of {format_count(len(counts), 'type')}"


def _check_vocabulary(words: pa.Array, counter: SplitCounter, options: ImportOptions) -> Iterator[str]:
    counts = counter.counts[1:]
    kept = int(np.count_nonzero(counts >= options.min_count))
    types = min(kept, options.max_size or kept)
    found = words[1:].filter(pa.array(counts >= options.min_count))
    signed = pc.match_substring_regex(found, _SIGN_END)
    signs = pc.sum(signed).as_py() or 0
    if types <= max(MIN_WARNED_TYPES, MAX_TYPE_SHARE * counter.word_count):
        if kept >= MIN_SIGN_TYPES and signs > MAX_SIGN_SHARE_ALONE * kept:
            yield (
                f"{signs:,} of {kept:,} types end in a sign of punctuation, such as "
                f"{found.filter(signed)[0].as_py()!a}; {_PROSE_ADVICE}; --tokens "
                f"bpe:{suggest_size(kept)} has no unknown words"
            )
        return
    remedy = (
        f"--min-count {options.min_count + 1} keeps {np.count_nonzero(counts > options.min_count):,} of them"
    )
    if signs > MAX_SIGN_SHARE * kept:
        remedy = f"{signs:,} end in a sign of punctuation: {_PROSE_ADVICE}; {remedy}"
    yield (
        f"{types:,} types for {counter.word_count:,} words of training ({types / counter.word_count:.1%}) "
        f"leave few examples of each; {remedy}, --tokens bpe:{suggest_size(types)} has none that is unknown"
    )


def suggest_size(types: int) -> int:
    """A number of subwords: a quarter of the types, because each type would be a subword else."""
    return min(_MAX_SUGGESTED, max(_MIN_SUGGESTED, types // 400 * 100))


def _check_shared_sentences(counters: Mapping[str, SplitCounter]) -> Iterator[str]:
    others: dict[str, Hashes] = {}
    for split, counter in counters.items():
        hashed = list(_iterate_hashes(counter)) if split != "train" else []
        if sum(map(len, hashed)):
            others[split] = np.concatenate(hashed)
    if not others:
        return
    wanted = np.unique(np.concatenate(list(others.values())))
    found = [block[np.isin(block, wanted)] for block in _iterate_hashes(counters["train"])]
    shared = np.unique(np.concatenate(found)) if found else wanted[:0]
    for split, hashes in others.items():
        count = int(np.isin(hashes, shared).sum())
        if count > MAX_SHARED * len(hashes):
            of_all, verb = format_count(len(hashes), f"{split} sentence"), "is" if count == 1 else "are"
            yield (
                f"{count:,} of the {of_all} of at least {MIN_SHARED_WORDS} words ({count / len(hashes):.1%}) "
                f"{verb} in training too, so that its figures flatter a model that remembers; --split gives "
                "equal sentences to one split"
            )


def _iterate_hashes(counter: SplitCounter) -> Iterator[Hashes]:
    """A hash of the words of each sentence that is not short, block by block: a polynomial modulo 2^64."""
    for numbers, lengths in counter.read_blocks():
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        powers = np.cumprod(np.full(lengths.max(initial=0), _HASH_FACTOR))
        places = np.arange(len(numbers)) - np.repeat(starts, lengths)
        words = (numbers.astype(np.uint64) + np.uint64(1)) * _HASH_FACTOR
        words ^= words >> np.uint64(29)
        yield np.add.reduceat(words * powers[places], starts)[lengths > MIN_SHARED_WORDS]
