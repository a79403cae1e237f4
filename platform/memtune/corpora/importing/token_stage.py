"""Decide what the tokens of an import are, and make them of the counted words.

The words of the text lie in temporary files (`word_counts`). They are read from there, split, and counted
again as tokens, so that vocabulary and shards are made as for words. Trained tokenisers, characters and bytes
split each distinct word once; a tokenizer.json splits whole sentences, because its tokens may depend on more
than one word.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.blocks.text_blocks import SENTENCE_END, Block, TextFile
from memtune.corpora.importing.annotation_tables import AnnotationTables
from memtune.corpora.importing.source_reader import Source
from memtune.corpora.importing.split_assignment import Division
from memtune.corpora.importing.vocabulary_selection import VocabularySelection, select_vocabulary, spell_words
from memtune.corpora.importing.word_counts import SplitCounter, WordTable
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.store.word_vectors import VectorFile
from memtune.corpora.tokenisation.tokeniser import ByteTokeniser, CharacterTokeniser, TokenChoice, Tokeniser
from memtune.errors import CorpusError

if TYPE_CHECKING:
    from memtune.corpora.tokenisation.subwords import SubwordTokeniser

Numbers = npt.NDArray[np.int32]

_SENTENCES_PER_CALL = 1024
_WORDS_PER_CALL = 2**16
_MAX_FILE_BYTES = 2**26


def choose_tokeniser(
    choice: TokenChoice, spelled: pa.Array, counters: Mapping[str, SplitCounter]
) -> Tokeniser | None:
    """The tokeniser of an import, None for words; subwords are trained on the training split.

    `spelled` is the spelling of each word number. Raises CorpusError for a corpus without a training split
    and for a file that is not a tokenizer.json.
    """
    if choice.kind == "words":
        return None
    if choice.kind == "characters":
        return CharacterTokeniser()
    if choice.kind == "bytes":
        return ByteTokeniser()
    # Imported here: only texts of subwords need `tokenizers`.
    from memtune.corpora.tokenisation.subwords import SubwordTokeniser, train_subwords

    if choice.kind == "file":
        assert choice.path is not None
        document = _read_document(choice.path)
        try:
            return SubwordTokeniser(document)
        except CorpusError as error:
            raise CorpusError(f"{choice.path}: {error}") from None
    if "train" not in counters:
        raise CorpusError(
            f"--tokens {choice.kind} is trained on the training split, and this corpus has none"
        )
    return train_subwords(choice.kind, choice.size, _read_sentences(counters["train"], spelled))


def _read_document(path: Path) -> str:
    with closing(LineReader(path)) as reader:
        try:
            return reader.read_content(_MAX_FILE_BYTES, "give a smaller tokenizer.json").decode()
        except UnicodeDecodeError:
            raise CorpusError(f"the tokeniser {path} is not UTF-8; give a tokenizer.json") from None


def _read_sentences(counter: SplitCounter, spelled: pa.Array) -> Iterator[str]:
    for codes, numbers, lengths in counter.read_blocks():
        yield from _join_sentences(numbers[codes], lengths, spelled)


def _join_sentences(numbers: Numbers, lengths: Numbers, spelled: pa.Array) -> list[str]:
    """The sentences of a block as text, without their ends."""
    kept = numbers[numbers != 0]
    offsets = np.concatenate([[0], np.cumsum(lengths - 1)]).astype(np.int32)
    words = pa.ListArray.from_arrays(pa.array(offsets), spelled.take(pa.array(kept)))
    sentences: list[str] = pc.binary_join(words, " ").to_pylist()
    return sentences


def split_into_tokens(
    tokeniser: Tokeniser,
    choice: TokenChoice,
    counters: Mapping[str, SplitCounter],
    spelled: pa.Array,
    targets: Mapping[str, SplitCounter],
) -> None:
    """Adds the tokens of each counted split to the counters `targets`."""
    split = _SentenceSplitter(tokeniser) if choice.kind == "file" else None
    pieces = _WordPieces(tokeniser, spelled) if split is None else None
    for name, counter in counters.items():
        for codes, numbers, lengths in counter.read_blocks():
            words = numbers[codes]
            block = pieces.split(words, lengths) if pieces else None
            if split is not None:
                block = split.split(_join_sentences(words, lengths, spelled))
            assert block is not None
            targets[name].add(block)
        targets[name].merge()


class _WordPieces:
    """The tokens of every distinct word, so that a block of words is split by looking them up."""

    def __init__(self, tokeniser: Tokeniser, spelled: pa.Array) -> None:
        # All tokens of a tokeniser belong to the vocabulary, so that it can split any text.
        known = _as_subwords(tokeniser).tokens if tokeniser.kind == "subwords" else []
        table = {token: number for number, token in enumerate((SENTENCE_END, *known))}
        counts, pieces = [1], [0]
        words: list[str] = spelled.to_pylist()
        has_blanks = tokeniser.kind != "subwords"
        for start in range(1, len(words), _WORDS_PER_CALL):
            for tokens in _split_words(tokeniser, words[start : start + _WORDS_PER_CALL]):
                pieces += [table.setdefault(token, len(table)) for token in tokens]
                counts.append(len(tokens))
        self._counts = np.array(counts, np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])
        self._pieces = np.array(pieces, np.int32)
        self._table = pa.array(list(table), pa.string())
        self._drops_first = has_blanks

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


def _split_words(tokeniser: Tokeniser, words: list[str]) -> Iterator[list[str]]:
    """The tokens of each word, with the blank before it."""
    if tokeniser.kind == "subwords":
        yield from _encode(tokeniser, words)
        return
    for word in words:
        yield tokeniser.split(["", word])


def _encode(tokeniser: Tokeniser, texts: Sequence[str]) -> Iterator[list[str]]:
    subwords = _as_subwords(tokeniser)
    names = subwords.tokens
    for ids in subwords.encode_texts(texts):
        yield [names[number] for number in ids]


class _SentenceSplitter:
    """Splits whole sentences by a tokenizer.json."""

    def __init__(self, tokeniser: Tokeniser) -> None:
        self._tokeniser = _as_subwords(tokeniser)
        self._table = pa.array([SENTENCE_END, *self._tokeniser.tokens], pa.string())

    def split(self, sentences: list[str]) -> Block:
        """The tokens of sentences."""
        numbers: list[npt.NDArray[np.int32]] = []
        lengths = []
        for start in range(0, len(sentences), _SENTENCES_PER_CALL):
            for ids in self._tokeniser.encode_texts(sentences[start : start + _SENTENCES_PER_CALL]):
                numbers.append(np.array([*(number + 1 for number in ids), 0], np.int32))
                lengths.append(len(ids) + 1)
        tokens = pa.DictionaryArray.from_arrays(pa.array(np.concatenate(numbers)), self._table)
        return Block(tokens, np.array(lengths, np.int32))


def _as_subwords(tokeniser: Tokeniser) -> "SubwordTokeniser":
    from memtune.corpora.tokenisation.subwords import SubwordTokeniser

    assert isinstance(tokeniser, SubwordTokeniser)
    return tokeniser


def count_text_bytes(counter: SplitCounter, spelled: pa.Array) -> int:
    """UTF-8 bytes of a split: its words, one blank between two of them, and a line feed for each sentence."""
    sizes = pc.binary_length(spelled).to_numpy().astype(np.int64)
    sizes[0] = 0
    counts = counter.counts
    blanks = counter.word_count - counter.full_sentence_count
    return int((sizes[: len(counts)] * counts).sum()) + blanks + counter.sentence_count


RAW_FORMAT = "raw"


@dataclass(frozen=True)
class CountedTokens:
    """The units that become ids: words, or the tokens that a tokeniser makes of them."""

    table: WordTable
    counters: Mapping[str, SplitCounter]
    tokeniser: Tokeniser | None


def check_choice(choice: TokenChoice, options: ImportOptions) -> None:
    """Raises CorpusError for limits of a vocabulary that a tokeniser determines."""
    if choice.has_subwords and (options.min_count > 1 or options.max_size is not None):
        raise CorpusError(
            f"--tokens {options.tokens} determines the vocabulary; leave --min-count and --max-size out"
        )


def check_tokens(
    name: str, choice: TokenChoice, tables: AnnotationTables, vectors: VectorFile | None
) -> None:
    """Raises CorpusError for annotations or vectors of words that are split."""
    if choice.kind != "words" and (tables or vectors):
        raise CorpusError(
            f"{name}: annotations and vectors belong to words; import the text with --tokens words"
        )


def has_raw_text(sources: Mapping[str, Source] | Division) -> bool:
    """Whether a source is raw text, whose characters or bytes are its tokens."""
    each = [sources.source] if isinstance(sources, Division) else sources.values()
    return any(isinstance(source, TextFile) and source.format == RAW_FORMAT for source in each)


def set_raw_units(
    sources: Mapping[str, Source] | Division, choice: TokenChoice
) -> Mapping[str, Source] | Division:
    """The sources, with the unit of --tokens for raw text.

    Raises CorpusError for raw text in other tokens.
    """
    if not has_raw_text(sources):
        return sources
    if isinstance(sources, Division) or choice.kind not in ("characters", "bytes"):
        raise CorpusError(
            f"format {RAW_FORMAT} needs --tokens characters or --tokens bytes, and a file for each split, "
            "such as --train <(head -c 90000000 text8)"
        )
    files = {split: source for split, source in sources.items() if isinstance(source, TextFile)}
    if len(files) < len(sources) or any(file.format != RAW_FORMAT for file in files.values()):
        raise CorpusError(f"format {RAW_FORMAT} is for all splits or for none")
    return {
        split: replace(file, options={**file.options, "unit": choice.kind}) for split, file in files.items()
    }


def count_units(
    counters: Mapping[str, SplitCounter], table: WordTable, options: ImportOptions, is_raw: bool
) -> dict[str, tuple[int, int]]:
    """Words and bytes of each split's text."""
    if is_raw:
        return {split: (counter.text_words, counter.text_bytes) for split, counter in counters.items()}
    spelled = spell_words(table.words, options)
    return {
        split: (counter.word_count, count_text_bytes(counter, spelled)) for split, counter in counters.items()
    }


def split_words(
    table: WordTable,
    counters: Mapping[str, SplitCounter],
    options: ImportOptions,
    choice: TokenChoice,
    is_raw: bool,
    stack: ExitStack,
) -> CountedTokens:
    """The words as they are, or split into other tokens and counted again.

    `stack` closes the new counters. Raises CorpusError for a tokeniser that cannot be made.
    """
    spelled = spell_words(table.words, options)
    tokeniser = choose_tokeniser(choice, spelled, counters)
    if tokeniser is None or is_raw:
        return CountedTokens(table, counters, tokeniser)
    new_table = WordTable()
    targets = {split: SplitCounter(new_table) for split in counters}
    for counter in targets.values():
        stack.callback(counter.close)
    split_into_tokens(tokeniser, choice, counters, spelled, targets)
    return CountedTokens(new_table, targets, tokeniser)


def select_tokens(
    tokens: CountedTokens, options: ImportOptions, choice: TokenChoice, tables: AnnotationTables
) -> VocabularySelection:
    """The vocabulary of the tokens; that of a tokeniser is complete."""
    counts = {split: counter.counts for split, counter in tokens.counters.items()}
    if choice.kind == "words":
        return select_vocabulary(tokens.table.words, counts, options, tables.question_words)
    # The spelling was changed before words became tokens.
    plain = options.model_copy(update={"lower_case": False, "unescape": False, "normalise": None})
    if options.min_count == 1 and options.max_size is None and not _has_new_tokens(counts, choice):
        plain = plain.model_copy(update={"unknown": "refuse"})
    return select_vocabulary(tokens.table.words, counts, plain, keep_all=choice.has_subwords)


def _has_new_tokens(counts: Mapping[str, npt.NDArray[np.int64]], choice: TokenChoice) -> bool:
    """Whether a split has characters or bytes that training lacks; only then `<unk>` is needed."""
    if choice.has_subwords or "train" not in counts:
        return False
    return any(bool(((count > 0) & (counts["train"] == 0)).any()) for count in counts.values())
