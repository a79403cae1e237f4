"""Warnings of an import about its text and its corpus, each with its numbers and a remedy.

They read the distinct words and a hash of each sentence, so that they take no noticeable time.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.importing.counted_text import CountedText, SplitCounter
from memtune.corpora.importing.token_stage import spell_words
from memtune.corpora.store.manifest import ImportOptions, Manifest
from memtune.corpora.store.vocabulary import UNK
from memtune.number_format import format_count

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
OOV_WARNING_RATE = 0.2
"""Share of a valid or test split's words outside the vocabulary above which an import warns."""
RECORD_NAME = re.compile(r"\.(jsonl|csv)(\.(gz|bz2|zst|xz))?$", re.IGNORECASE)
"""Files of records, which are text too, by name; the format that reads their fields."""

_MIN_SUGGESTED, _MAX_SUGGESTED = 500, 8000
_GUTENBERG_WORDS = (
    ["GUTENBERG", "Gutenberg", "Gutenberg's", "Gutenberg-tm"],
    ["EBOOK", "eBook", "eBooks", "Ebook", "ETEXT", "Etext", "etext", "Etexts", "etexts"],
)
"""The header and the licence of Project Gutenberg have one word of each list."""
_SIGN_END = '[\\p{L}\\p{N}][.,;:!?")\u2019\u201d]+$'


def find_text_warnings(
    text: CountedText, options: ImportOptions, *, is_generated: bool, needs_words: bool
) -> Iterator[str]:
    """Warnings about a text of words; sentences that a program generates may repeat themselves.

    A text with annotations or vectors `needs_words` as its tokens.
    """
    if text.is_raw:
        return
    words, counters = text.table.words, text.counters
    if options.normalise is None:
        yield from _check_spelling(words, counters)
    if all(pc.any(pc.is_in(words, pa.array(names))).as_py() for names in _GUTENBERG_WORDS):
        yield (
            "the text names Project Gutenberg and its e-texts; if it has their header and licence, import it "
            "with --format gutenberg, which leaves them out"
        )
    if options.tokens == "words" and "train" in counters:
        yield from _check_vocabulary(words, counters["train"], options, needs_words)
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
    others = np.flatnonzero(~pc.string_is_ascii(words).to_numpy(zero_copy_only=False))
    written = words.take(pa.array(others))
    changed = pc.not_equal(written, spell_words(written, ImportOptions(normalise="NFC")))
    if pc.any(changed).as_py():
        numbers = others[changed.to_numpy(zero_copy_only=False)]
        count = sum(int(counter.counts[numbers].sum()) for counter in counters.values())
        yield (
            f"{format_count(count, 'word')} of {format_count(len(numbers), 'type')} with zero-width "
            "characters, soft hyphens or letters that are not in Unicode's composed form, such as "
            f"{words[int(numbers[0])].as_py()!a}, so equal words may have several types; --normalise NFC "
            "makes them one"
        )


def _check_vocabulary(
    words: pa.Array, counter: SplitCounter, options: ImportOptions, needs_words: bool
) -> Iterator[str]:
    counts = counter.counts[1:]
    found = words[1:].filter(pa.array(counts >= options.min_count))
    types = min(len(found), options.max_size or len(found))
    is_large = types > max(MIN_WARNED_TYPES, MAX_TYPE_SHARE * counter.word_count)
    signed = found.filter(pc.match_substring_regex(found, _SIGN_END))
    most = MAX_SIGN_SHARE if is_large else MAX_SIGN_SHARE_ALONE
    subwords = _advise_subwords(types, needs_words)
    if len(found) >= MIN_SIGN_TYPES and len(signed) > most * len(found):
        yield (
            f"{len(signed):,} of {len(found):,} types end in a sign of punctuation, such as "
            f"{signed[0].as_py()!a}; --format prose splits words and signs, and joins lines unless --option "
            f"paragraphs=lines is given{subwords}"
        )
    if is_large:
        more = np.count_nonzero(counts > options.min_count)
        yield (
            f"{types:,} types for {counter.word_count:,} words of training "
            f"({types / counter.word_count:.1%}) leave few examples of each; --min-count "
            f"{options.min_count + 1} keeps {more:,} of them{subwords}"
        )


def _advise_subwords(types: int, needs_words: bool) -> str:
    """The end of a sentence on the vocabulary; empty where the import would refuse subwords."""
    # A quarter of the types, because each type would be a subword else.
    size = min(_MAX_SUGGESTED, max(_MIN_SUGGESTED, types // 400 * 100))
    return "" if needs_words else f"; --tokens bpe:{size} has no unknown words"


def _check_shared_sentences(counters: Mapping[str, SplitCounter]) -> Iterator[str]:
    others = {
        split: list(_iterate_hashes(counter)) for split, counter in counters.items() if split != "train"
    }
    shared = set().union(*others.values()).intersection(_iterate_hashes(counters["train"]))
    for split, hashes in others.items():
        count = sum(each in shared for each in hashes)
        if count > MAX_SHARED * len(hashes):
            of_all, verb = format_count(len(hashes), f"{split} sentence"), "is" if count == 1 else "are"
            yield (
                f"{count:,} of the {of_all} of at least {MIN_SHARED_WORDS} words ({count / len(hashes):.1%}) "
                f"{verb} in training too, so that its figures flatter a model that remembers; --split gives "
                "equal sentences to one split"
            )


def _iterate_hashes(counter: SplitCounter) -> Iterator[int]:
    """A hash of the words of each sentence that is not short."""
    for numbers, lengths in counter.read_blocks():
        ends = np.cumsum(lengths).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            if end - start > MIN_SHARED_WORDS:
                yield hash(numbers[start:end].tobytes())


def find_corpus_warnings(manifest: Manifest) -> Iterator[str]:
    """Warnings about what an import stored."""
    yield from manifest.remarks
    for file in sorted({record.name for record in manifest.sources.values() if record.format == "text"}):
        if found := RECORD_NAME.search(file):
            yield (
                f"{file} was read as text, with the names and signs of its records; --format "
                f"{found[1].lower()} reads one field of them"
            )
    if vectors := manifest.vectors:
        missing = manifest.vocabulary.size - vectors.known
        tokens, have = format_count(manifest.vocabulary.size, "token"), "has" if missing == 1 else "have"
        yield f"{missing:,} of {tokens} {have} no vector in {vectors.source.name}"
    needs_words = bool(manifest.annotations or manifest.vectors)
    subwords = _advise_subwords(manifest.vocabulary.size, needs_words)
    for split in ("valid", "test"):
        if split not in manifest.splits:
            continue
        rate = manifest.splits[split].oov_rate
        if rate > OOV_WARNING_RATE:
            yield (
                f"{rate:.1%} of the {split} words are outside the vocabulary and became {UNK}; "
                f"check that language, tokenisation and case are those of the training text{subwords}"
            )
        training = manifest.sources.get("train")
        if training and not training.division and manifest.sources[split].sha256 == training.sha256:
            yield f"the {split} split is the training text: its perplexity does not measure generalisation"
