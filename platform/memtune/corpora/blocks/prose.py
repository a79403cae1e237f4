"""Prose becomes sentences of words: paragraphs are joined, split into sentences, and these into words."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

from memtune.corpora.blocks.english_words import split_clitics, split_sentences, tokenise
from memtune.corpora.blocks.example_blocks import make_sentence_blocks
from memtune.corpora.blocks.text_blocks import Block, FormatOptions
from memtune.errors import CorpusError

_SEPARATOR_LINE = re.compile(r"[\W_]*")
_HYPHENATED_LINE_END = re.compile(r"(?<=\w)-$")
_FINAL_SIGNS = (".", "!", "?")
_MAX_PARAGRAPH_CHARACTERS = 2**24


class ProseOptions(FormatOptions):
    """`final` keeps or drops a sign that ends a sentence. `clitics` keeps `'s` with its word or splits it as
    in the Penn Treebank: `girl 's`.
    """

    final: Literal["keep", "drop"] = "keep"
    clitics: Literal["keep", "split"] = "keep"


def make_prose_blocks(paragraphs: Iterable[str], options: ProseOptions) -> Iterator[Block]:
    """The sentences of paragraphs."""
    sentences = (
        tokenise_sentence(sentence, options)
        for paragraph in paragraphs
        for sentence in split_sentences(paragraph)
    )
    return make_sentence_blocks(words for words in sentences if words)


def split_paragraphs(lines: Iterable[str], name: object = "the text") -> Iterator[str]:
    """Paragraphs, each on one line; a line without letters and digits ends a paragraph.

    Raises CorpusError, which calls the text `name`, for a paragraph of more than 16 million characters.
    """
    paragraph: list[str] = []
    characters = 0
    for line in lines:
        if _SEPARATOR_LINE.fullmatch(line):
            if paragraph:
                yield _join_lines(paragraph)
            paragraph, characters = [], 0
        else:
            paragraph.append(line.strip())
            characters += len(line)
            if characters > _MAX_PARAGRAPH_CHARACTERS:
                raise CorpusError(
                    f"{name}: a paragraph of more than {_MAX_PARAGRAPH_CHARACTERS:,} characters; where each "
                    "line is a paragraph, use --option paragraphs=lines"
                )
    if paragraph:
        yield _join_lines(paragraph)


def _join_lines(lines: list[str]) -> str:
    """Lines joined to one; a word that is divided at a hyphen becomes one word."""
    parts = lines[:1]
    for before, line in pairwise(lines):
        parts.append(line if _HYPHENATED_LINE_END.search(before) else f" {line}")
    return "".join(parts)


def tokenise_sentence(sentence: str, options: ProseOptions) -> list[str]:
    """The words and signs of a sentence, without marks of emphasis."""
    words = [word for word in tokenise(sentence.replace("_", " ")) if word != "*"]
    return finish_sentence(words, options)


def finish_sentence(words: list[str], options: ProseOptions) -> list[str]:
    """Words after the options are applied to them."""
    if options.clitics == "split":
        words = [part for word in words for part in split_clitics(word)]
    if options.final == "drop" and words[-1:] and words[-1] in _FINAL_SIGNS:
        words.pop()
    return words
