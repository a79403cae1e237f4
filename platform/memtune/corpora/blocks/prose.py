"""English prose becomes sentences of words, which simple rules find; words of treebanks lose their escapes.

Paragraphs are joined, split into sentences, and these into words.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

from memtune.corpora.blocks.text_blocks import Block, FormatOptions, make_sentence_blocks
from memtune.errors import CorpusError

_TREEBANK_ESCAPES = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "\\/": "/",
    "\\*": "*",
}
_ESCAPE_PATTERN = re.compile("|".join(map(re.escape, _TREEBANK_ESCAPES)))

_ABBREVIATIONS = (
    r"(?:Mr|Mrs|Messrs|Dr|St|Mt|Rev|Hon|Prof|Capt|Col|Gen|Lieut|Lt|Maj|Sergt|Sgt|Gov|Sen|Esq|Jr|Sr|Mme|Mlle|"
    r"vs|viz|etc|Vol|vol|Ch|cf|pp|ll)"
)
# At most 32 initials: a longer row would be read again from each of its letters, in quadratic time.
_INITIALS = r"(?<![\w'\u2019])(?:(?:[A-Za-z]\.){2,32}|[A-HJ-Z]\.)"  # a single I is the pronoun
_TOKEN_PATTERN = re.compile(
    rf"""
    <unk>                                   # an unknown word, as corpora write it
    | (?<!\S)['\u2019](?:s|m|d|ll|re|ve)(?!\S)   # a clitic that is split already
    | \b{_ABBREVIATIONS}\.                  # an abbreviation with its full stop
    | {_INITIALS}(?=\W|$)                   # initials: J. or B.C.
    | \d+(?:[.,:]\d+)*\w*                   # numbers: 1,000.5, 10:30 and 3rd
    | \w+(?:['\u2019\-]\w+)*                     # words, with apostrophes and hyphens within
    | -{{2,}} | \.{{2,}}                    # dashes and dots of omission
    | [^\w\s]                               # any other sign
    """,
    re.VERBOSE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])([\"'\u201d\u2019)\]]*)\s+(?=[\"'\u201c\u2018(\[]*[A-Z0-9])")
_ABBREVIATION_END_CHARACTERS = 16
"""More characters than the longest abbreviation or than two initials, which decide any longer row of them."""
_ABBREVIATION_END = re.compile(rf"(?:\b{_ABBREVIATIONS}\.|{_INITIALS})$")

_CLITIC = re.compile(r"(?i)(.*\w)(n['\u2019]t|['\u2019](?:s|m|d|ll|re|ve)?)")


def unescape_treebank_word(word: str) -> str:
    """A word of a treebank without escapes: `-LRB-` is a bracket, `\\/` a slash."""
    return _ESCAPE_PATTERN.sub(lambda found: _TREEBANK_ESCAPES[found[0]], word)


def split_clitics(word: str) -> list[str]:
    """Splits a word as the Penn Treebank: `girl's` is `girl 's`, `don't` `do n't` and `years'` `years '`."""
    found = _CLITIC.fullmatch(word)
    return [found[1], found[2]] if found else [word]


def tokenise(sentence: str) -> list[str]:
    """Words and signs of a sentence of prose; clitics stay with their words."""
    return _TOKEN_PATTERN.findall(sentence)


def split_sentences(paragraph: str) -> Iterator[str]:
    """Splits a paragraph after `.`, `!` and `?` before a capital or a digit, except after abbreviations."""
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        # Only the last characters are searched: from `start` on, "Mr. " * n would take quadratic time.
        tail = max(start, end.start() - _ABBREVIATION_END_CHARACTERS)
        if not _ABBREVIATION_END.search(paragraph, tail, end.start()):
            yield paragraph[start : end.end()].strip()
            start = end.end()
    if paragraph[start:].strip():
        yield paragraph[start:].strip()


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
