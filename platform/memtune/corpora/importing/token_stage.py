"""Decide what the tokens of an import are, make them of the counted words, and select the vocabulary.

The words of the text lie in temporary files (`counted_text`). They are read from there, split, and counted
again as tokens, so that vocabulary and shards are made as for words. Trained tokenisers, characters and bytes
split each distinct word once; a tokenizer.json splits whole sentences, because its tokens may depend on more
than one word.

By default only the training split determines the vocabulary, and the other splits are encoded with it.
`vocabulary = "all"` uses all splits.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.importing.counted_text import CountedText, Numbers, SplitCounter
from memtune.corpora.importing.division import Division
from memtune.corpora.importing.import_sources import Source, list_sources
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.content_checks import MAX_TOKENISER_BYTES
from memtune.corpora.store.manifest import ImportOptions, TokenChoice, parse_token_choice
from memtune.corpora.store.vocabulary import EOS, UNK, Vocabulary
from memtune.corpora.text_blocks import SENTENCE_END, Block, TextFile
from memtune.corpora.tokenisation.corpus_text import make_tokeniser
from memtune.corpora.tokenisation.tokeniser import Tokeniser
from memtune.errors import CorpusError
from memtune.number_format import format_count

if TYPE_CHECKING:
    from memtune.corpora.tokenisation.subwords import SubwordTokeniser

RAW_FORMAT = "raw"

_SENTENCES_PER_CALL = 1024
_WORDS_PER_CALL = 2**16


def _make_tokeniser(
    choice: TokenChoice, spelled: pa.Array, counters: Mapping[str, SplitCounter]
) -> Tokeniser:
    """The tokeniser of an import; subwords are trained on the training split."""
    if choice.kind == "characters" or choice.kind == "bytes":
        return make_tokeniser(choice.kind, "")
    if choice.path is not None:
        with closing(LineReader(choice.path)) as reader:
            content = reader.read_content(MAX_TOKENISER_BYTES, "give a smaller tokenizer.json")
        try:
            return make_tokeniser("subwords", content.decode())
        except (CorpusError, UnicodeDecodeError) as error:
            raise CorpusError(f"{choice.path}: {error}") from None
    if "train" not in counters:
        raise CorpusError(
            f"--tokens {choice.kind} is trained on the training split, and this corpus has none"
        )
    # Imported here: only texts of subwords need `tokenizers`.
    from memtune.corpora.tokenisation.subwords import train_subwords

    blocks = counters["train"].read_blocks()
    texts = chain.from_iterable(_join_sentences(words, lengths, spelled) for words, lengths in blocks)
    return train_subwords("bpe" if choice.kind == "bpe" else "unigram", choice.size, texts)


def _join_sentences(numbers: Numbers, lengths: Numbers, spelled: pa.Array) -> list[str]:
    """The sentences of a block as text, without their ends."""
    kept = numbers[numbers != 0]
    offsets = np.concatenate([[0], np.cumsum(lengths - 1)]).astype(np.int32)
    words = pa.ListArray.from_arrays(pa.array(offsets), spelled.take(pa.array(kept)))
    sentences: list[str] = pc.binary_join(words, " ").to_pylist()
    return sentences


def _split_sentences(tokeniser: "SubwordTokeniser", sentences: list[str]) -> Block:
    """The tokens of whole sentences by a tokenizer.json."""
    numbers: list[Numbers] = []
    for start in range(0, len(sentences), _SENTENCES_PER_CALL):
        for ids in tokeniser.encode_texts(sentences[start : start + _SENTENCES_PER_CALL]):
            numbers.append(np.array([*(number + 1 for number in ids), 0], np.int32))
    table = pa.array([SENTENCE_END, *tokeniser.tokens], pa.string())
    tokens = pa.DictionaryArray.from_arrays(pa.array(np.concatenate(numbers)), table)
    return Block(tokens, np.array(list(map(len, numbers)), np.int32))


class _WordPieces:
    """The tokens of every distinct word, so that a block of words is split by looking them up."""

    def __init__(self, tokeniser: Tokeniser, spelled: pa.Array) -> None:
        # All tokens of a tokeniser belong to the vocabulary, so that it can split any text.
        table = {token: number for number, token in enumerate((SENTENCE_END, *tokeniser.tokens))}
        counts, pieces = [1], [0]
        words: list[str] = spelled.to_pylist()
        for start in range(1, len(words), _WORDS_PER_CALL):
            for tokens in tokeniser.split_words(words[start : start + _WORDS_PER_CALL]):
                pieces += [table.setdefault(token, len(table)) for token in tokens]
                counts.append(len(tokens))
        self._counts = np.array(counts, np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])
        self._pieces = np.array(pieces, np.int32)
        self._table = pa.array(list(table), pa.string())
        self._drops_first = tokeniser.kind != "subwords"  # the blank before the first word

    def split(self, words: Numbers, lengths: Numbers) -> Block:
        """The tokens of a block of whole sentences."""
        counts = self._counts[words]
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
        tokens = self._pieces[np.repeat(self._starts[words], counts) + within]
        sentence_starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        token_counts = np.add.reduceat(counts, sentence_starts)
        if self._drops_first:
            first = (ends - counts)[sentence_starts][lengths > 1]
            tokens = np.delete(tokens, first)
            token_counts = token_counts - (lengths > 1)
        return Block(
            pa.DictionaryArray.from_arrays(pa.array(tokens, pa.int32()), self._table),
            token_counts.astype(np.int32),
        )


def prepare_sources(
    sources: Mapping[str, Source] | Division, options: ImportOptions
) -> Mapping[str, Source] | Division:
    """The sources, with the unit of --tokens for raw text.

    Raises CorpusError for raw text in other tokens, and for limits of a tokeniser's vocabulary.
    """
    choice = parse_token_choice(options.tokens)
    has_subwords = choice.kind in ("bpe", "unigram", "file")
    if has_subwords and (options.min_count > 1 or options.max_size is not None):
        raise CorpusError(
            f"--tokens {options.tokens} determines the vocabulary; leave --min-count and --max-size out"
        )
    if not has_raw_text(sources):
        return sources
    if isinstance(sources, Division) or choice.kind not in ("characters", "bytes"):
        raise CorpusError(
            f"format {RAW_FORMAT} needs --tokens characters or --tokens bytes, and a file for each split, "
            "such as --train <(head -c 90000000 text8)"
        )
    if options.lower_case or options.unescape or options.normalise:
        raise CorpusError(
            f"format {RAW_FORMAT} keeps every character; leave --lower-case, --unescape and --normalise out"
        )
    files = {split: source for split, source in sources.items() if isinstance(source, TextFile)}
    if len(files) < len(sources) or any(file.format != RAW_FORMAT for file in files.values()):
        raise CorpusError(f"format {RAW_FORMAT} is for all splits or for none")
    return {
        split: replace(file, options={**file.options, "unit": choice.kind}) for split, file in files.items()
    }


def has_raw_text(sources: Mapping[str, Source] | Division) -> bool:
    """Whether a source is raw text, whose characters or bytes are its tokens."""
    return any(
        isinstance(source, TextFile) and source.format == RAW_FORMAT for source in list_sources(sources)
    )


def count_units(text: CountedText, spelled: pa.Array, tokens: str) -> dict[str, dict[str, int]]:
    """Words and UTF-8 bytes of each split's text: words, one blank between two of them, and line feeds."""
    words = pc.replace_substring(spelled, "\\_", "_") if text.is_raw else spelled
    sizes = pc.binary_length(words).to_numpy().astype(np.int64)
    if text.is_raw and tokens == "bytes":
        sizes[:] = 1
    sizes[0] = 1  # a line feed
    units: dict[str, dict[str, int]] = {}
    for split, counter in text.counters.items():
        blanks = 0 if text.is_raw else counter.word_count - counter.full_sentence_count
        units[split] = {
            "words": counter.text_words if text.is_raw else counter.word_count,
            "bytes": int((sizes * counter.counts).sum()) + blanks,
        }
    return units


def split_words(text: CountedText, spelled: pa.Array, tokens: str, stack: ExitStack) -> CountedText:
    """The words as they are, or split into other tokens and counted again.

    `spelled` is the spelling of each word number. `stack` closes the new text. Raises CorpusError for a
    tokeniser that cannot be made.
    """
    choice = parse_token_choice(tokens)
    if choice.kind == "words":
        return text
    tokeniser = _make_tokeniser(choice, spelled, text.counters)
    if text.is_raw:
        text.tokeniser = tokeniser
        return text
    target = CountedText(text.counters, stack, tokeniser=tokeniser)
    pieces = None if choice.kind == "file" else _WordPieces(tokeniser, spelled)
    for split, counter in text.counters.items():
        for words, lengths in counter.read_blocks():
            if pieces is None:
                sentences = _join_sentences(words, lengths, spelled)
                target.add(split, _split_sentences(cast("SubwordTokeniser", tokeniser), sentences))
            else:
                target.add(split, pieces.split(words, lengths))
    return target


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


def select_tokens(text: CountedText, spelled: pa.Array, options: ImportOptions) -> VocabularySelection:
    """The vocabulary of the tokens, which are spelled so; that of a tokeniser is complete."""
    counts = {split: counter.counts for split, counter in text.counters.items()}
    if text.tokeniser is None:
        return select_vocabulary(spelled, counts, options, text.annotations.question_words)
    keep_all = text.tokeniser.kind == "subwords"
    # Only characters or bytes that training lacks need `<unk>`.
    has_new = "train" in counts and any(
        bool(((count > 0) & (counts["train"] == 0)).any()) for count in counts.values()
    )
    if options.min_count == 1 and options.max_size is None and (keep_all or not has_new):
        options = options.model_copy(update={"unknown": "refuse"})
    return select_vocabulary(text.table.words, counts, options, keep_all=keep_all)


def select_vocabulary(
    words: pa.Array,
    counts: Mapping[str, npt.NDArray[np.int64]],
    options: ImportOptions,
    question_words: npt.NDArray[np.int32] | None = None,
    *,
    keep_all: bool = False,
) -> VocabularySelection:
    """Selects the vocabulary from all words, as they are spelled, and their counts by split.

    words[0] is the sentence end; equal words become one token.
    `question_words` are the word numbers in annotation columns; a vocabulary of all splits keeps each of
    them. `keep_all` keeps words that no split has: those of a tokeniser. With `unknown = "map"` the
    vocabulary always has `<unk>`, otherwise only if the counted text has it. Raises CorpusError if the text
    contains `<eos>`, if no word is frequent enough, or if words are outside the vocabulary and
    `unknown = "refuse"`.
    """
    encoded = words.dictionary_encode()
    tokens, numbers = encoded.dictionary, encoded.indices.to_numpy()
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


def spell_sentence(words: Sequence[str], options: ImportOptions) -> list[str]:
    """The words of a sentence as an import with these options spells them."""
    spelled: list[str] = spell_words(pa.array(words, pa.string()), options).to_pylist()
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
        if options.min_count == 1:
            raise CorpusError(f"the {text} has no word besides {UNK}; give another text")
        raise CorpusError(f"no word occurs at least {options.min_count} times in the {text}; lower min_count")
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
