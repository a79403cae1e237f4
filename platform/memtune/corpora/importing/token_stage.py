"""Decide what the tokens of an import are, and make them of the counted words.

The words of the text lie in temporary files (`counted_text`). They are read from there, split, and counted
again as tokens, so that vocabulary and shards are made as for words. Trained tokenisers, characters and bytes
split each distinct word once; a tokenizer.json splits whole sentences, because its tokens may depend on more
than one word.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.importing.counted_text import AnnotationTables, Numbers, SplitCounter, WordTable
from memtune.corpora.importing.import_sources import Division
from memtune.corpora.importing.source_reader import Source
from memtune.corpora.importing.vocabulary_selection import VocabularySelection, select_vocabulary, spell_words
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.store.vocabulary import VectorFile
from memtune.corpora.text_blocks import SENTENCE_END, Block, TextFile
from memtune.corpora.tokenisation.corpus_text import make_tokeniser
from memtune.corpora.tokenisation.tokeniser import TokenChoice, Tokeniser
from memtune.errors import CorpusError

if TYPE_CHECKING:
    from memtune.corpora.tokenisation.subwords import SubwordTokeniser

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
    if choice.kind == "characters" or choice.kind == "bytes":
        return make_tokeniser(choice.kind, "")
    if choice.kind == "file":
        assert choice.path is not None
        with closing(LineReader(choice.path)) as reader:
            content = reader.read_content(_MAX_FILE_BYTES, "give a smaller tokenizer.json")
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
    return train_subwords(choice.kind, choice.size, texts)


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
    counters: Mapping[str, SplitCounter],
    table: WordTable,
    options: ImportOptions,
    choice: TokenChoice,
    is_raw: bool,
) -> dict[str, tuple[int, int]]:
    """Words and UTF-8 bytes of each split's text: words, one blank between two of them, and line feeds."""
    words = pc.replace_substring(table.words, "\\_", "_") if is_raw else spell_words(table.words, options)
    sizes = pc.binary_length(words).to_numpy().astype(np.int64)
    if is_raw and choice.kind == "bytes":
        sizes[:] = 1
    sizes[0] = 1  # a line feed
    units: dict[str, tuple[int, int]] = {}
    for split, counter in counters.items():
        content = int((sizes * counter.counts).sum())
        blanks = counter.word_count - counter.full_sentence_count
        units[split] = (counter.text_words, content) if is_raw else (counter.word_count, content + blanks)
    return units


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
    for target in targets.values():
        stack.callback(target.close)
    pieces = None if choice.kind == "file" else _WordPieces(tokeniser, spelled)
    for split, counter in counters.items():
        for words, lengths in counter.read_blocks():
            if pieces is None:
                sentences = _join_sentences(words, lengths, spelled)
                targets[split].add(_split_sentences(cast("SubwordTokeniser", tokeniser), sentences))
            else:
                targets[split].add(pieces.split(words, lengths))
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
    # Only characters or bytes that training lacks need `<unk>`.
    has_new = "train" in counts and any(
        bool(((count > 0) & (counts["train"] == 0)).any()) for count in counts.values()
    )
    is_complete = choice.has_subwords or not has_new
    if options.min_count == 1 and options.max_size is None and is_complete:
        plain = plain.model_copy(update={"unknown": "refuse"})
    return select_vocabulary(tokens.table.words, counts, plain, keep_all=choice.has_subwords)
