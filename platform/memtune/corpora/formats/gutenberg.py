"""Project Gutenberg's plain texts: one file, or every file of a folder, headers and licences taken off.

A text starts after the line `*END*THE SMALL PRINT!` of old files or `*** START OF` of newer ones, and stops
before `*** END OF` or `End of Project Gutenberg`. Paragraphs are cut into sentences and sentences into words
by `corpora.tokenising`; case is kept, clitics stay with their words unless they are to be split, emphasis
(`_so_`) and rows of signs go. A file that is not UTF-8 is read as Latin-1, and the import says so.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from typing import Literal

from memtune.corpora.examples import Example, example_blocks
from memtune.corpora.sources import Block, Format, LineReader
from memtune.corpora.tokenising import sentences_of, split_clitics, tokens_of
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT"]

_START = re.compile(
    r"\*END\s*\*?\s*THE SMALL PRINT!|\*\*\*\s*START OF TH(?:E|IS) PROJECT GUTENBERG", re.IGNORECASE
)
_STOP = re.compile(
    r"\*\*\*\s*END OF TH(?:E|IS) PROJECT GUTENBERG|\W*End of (?:the |this )?Project Gutenberg"
    r"|\*\*\*START\*\*THE SMALL PRINT!",
    re.IGNORECASE,
)
_RULE = re.compile(r"[\W_]*")
_CUT_WORD = re.compile(r"(?<=\w)-$")
_FINAL = (".", "!", "?")


class GutenbergOptions(Value):
    """`files` is a pattern for the names of a folder's files, in any case; `final` says what becomes of a
    sign that ends a sentence, `clitics` of `'s`, which "split" cuts off as in the Penn Treebank: `girl 's`.
    """

    files: str = "*.txt"
    final: Literal["keep", "drop"] = "keep"
    clitics: Literal["keep", "split"] = "keep"


def _read(reader: LineReader, options: GutenbergOptions) -> Iterator[Block]:
    if not reader.path.is_dir():
        yield from _blocks(_body(_lines(reader, reader)), options)
        return
    paths = [path for path in sorted(reader.path.rglob("*")) if path.is_file()]
    chosen = [path for path in paths if fnmatch(path.name.lower(), options.files.lower())]
    if not chosen:
        raise CorpusError(
            f"{reader.path} has no file named {options.files}; name others with --option files=PATTERN"
        )
    whole = []
    for path in chosen:
        lines = _lines(reader, reader.beside(path))
        body = _body(lines)
        if len(body) == len(lines):
            whole.append(path.name)
        yield from _blocks(body, options)
    if whole:
        reader.notes.append(
            f"{len(whole)} of {len(chosen)} files in {reader.path} have neither header nor end of Project "
            f"Gutenberg and were read whole, such as {whole[0]}; choose by --option files=PATTERN"
        )


def _lines(reader: LineReader, file: LineReader) -> list[str]:
    """The lines of a book."""
    content = file.content()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        reader.notes.append(f"{file.path} is not UTF-8 and was read as Latin-1")
    return text.splitlines()


def _blocks(body: list[str], options: GutenbergOptions) -> Iterator[Block]:
    sentences = (
        _words(sentence, options) for paragraph in _paragraphs(body) for sentence in sentences_of(paragraph)
    )
    return example_blocks(Example([words]) for words in sentences if words)


def _paragraphs(body: list[str]) -> Iterator[str]:
    """The paragraphs of a book, each on one line."""
    lines: list[str] = []
    for line in body:
        if _RULE.fullmatch(line):
            if lines:
                yield _joined(lines)
            lines = []
        else:
            lines.append(line.strip())
    if lines:
        yield _joined(lines)


def _body(lines: list[str]) -> list[str]:
    """The lines between the header and the end, all of them where there is neither."""
    starts = [number for number, line in enumerate(lines) if _START.match(line)]
    stops = [number for number, line in enumerate(lines) if _STOP.match(line)]
    start = max((number for number in starts if 2 * number < len(lines)), default=-1) + 1
    return lines[start : min((number for number in stops if number > start), default=len(lines))]


def _joined(lines: list[str]) -> str:
    """Lines as one; a word cut at its hyphen is one word again."""
    parts = lines[:1]
    for before, line in pairwise(lines):
        parts.append(line if _CUT_WORD.search(before) else f" {line}")
    return "".join(parts)


def _words(sentence: str, options: GutenbergOptions) -> list[str]:
    words = [word for word in tokens_of(sentence.replace("_", " ")) if word != "*"]
    if options.clitics == "split":
        words = [part for word in words for part in split_clitics(word)]
    if options.final == "drop" and words[-1:] and words[-1] in _FINAL:
        words.pop()
    return words


FORMAT = Format(
    _read,
    "Project Gutenberg: a book or a folder of books, headers off, cut into sentences and words",
    options=GutenbergOptions,
    folder=True,
)
