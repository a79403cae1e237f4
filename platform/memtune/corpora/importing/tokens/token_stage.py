"""Decide what the tokens of an import are, and make them of the counted words."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memtune.corpora.blocks.text_blocks import TextFile
from memtune.corpora.importing.annotation_tables import AnnotationTables
from memtune.corpora.importing.source_reader import Source
from memtune.corpora.importing.split_assignment import Division
from memtune.corpora.importing.tokens.token_spools import (
    choose_tokeniser,
    count_text_bytes,
    split_into_tokens,
)
from memtune.corpora.importing.vocabulary_selection import VocabularySelection, select_vocabulary, spell_words
from memtune.corpora.importing.word_counts import SplitCounter, WordTable
from memtune.corpora.store.manifest import ImportOptions
from memtune.corpora.store.word_vectors import VectorFile
from memtune.corpora.tokenisation.token_choice import TokenChoice
from memtune.corpora.tokenisation.tokeniser import Tokeniser
from memtune.errors import CorpusError

__all__ = [
    "CountedTokens",
    "check_choice",
    "check_tokens",
    "count_units",
    "has_raw_text",
    "select_tokens",
    "set_raw_units",
    "split_words",
]

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
