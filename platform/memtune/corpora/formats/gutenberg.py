"""Project Gutenberg's plain texts: one file, or every file of a folder, without headers and licences.

A text starts after the line `*END*THE SMALL PRINT!` of old files or `*** START OF` of newer ones, and stops
before `*** END OF` or `End of Project Gutenberg`. Paragraphs are split into sentences and sentences into
words by `importing.tokenizer`. Case is kept. Clitics stay with their words unless the option `clitics` splits
them. Emphasis (`_so_`) and rows of signs are removed. A file that is not UTF-8 is read as Latin-1, and the
import notes it.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import pairwise
from typing import Literal

from memtune.corpora.importing.example_blocks import Example, make_blocks
from memtune.corpora.importing.line_reader import LineReader
from memtune.corpora.importing.source_file import FileKind, find_kind, list_folder_files
from memtune.corpora.importing.text_blocks import Block, Format
from memtune.corpora.importing.tokenizer import split_clitics, split_sentences, tokenise
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT"]

_HEADER_END = re.compile(
    r"\*END\s*\*?\s*THE SMALL PRINT!|\*\*\*\s*START OF TH(?:E|IS) PROJECT GUTENBERG", re.IGNORECASE
)
_FOOTER_START = re.compile(
    r"\*\*\*\s*END OF TH(?:E|IS) PROJECT GUTENBERG|\W*End of (?:the |this )?Project Gutenberg"
    r"|\*\*\*START\*\*THE SMALL PRINT!",
    re.IGNORECASE,
)
_SEPARATOR_LINE = re.compile(r"[\W_]*")
_HYPHENATED_LINE_END = re.compile(r"(?<=\w)-$")
_FINAL_SIGNS = (".", "!", "?")


class GutenbergOptions(Value):
    """`files` is a pattern for the names of a folder's files, in any case. `final` keeps or drops a sign that
    ends a sentence. `clitics` keeps `'s` with its word or splits it as in the Penn Treebank: `girl 's`.
    """

    files: str = "*.txt"
    final: Literal["keep", "drop"] = "keep"
    clitics: Literal["keep", "split"] = "keep"


def _read(reader: LineReader, options: GutenbergOptions) -> Iterator[Block]:
    if not reader.is_folder:
        yield from _make_blocks(_strip_header_and_footer(_read_lines(reader, reader)), options)
        return
    paths = list_folder_files(reader.path)
    chosen = [path for path in paths if fnmatch(path.name.lower(), options.files.lower())]
    if not chosen:
        raise CorpusError(
            f"{reader.path} has no file named {options.files}; name others with --option files=PATTERN"
        )
    whole = []
    for path in chosen:
        # Reading a pipe in a folder would block until another process writes to it.
        if find_kind(path) is FileKind.PIPE:
            raise CorpusError(f"{path} is a pipe in a folder of books; remove it, or import it by itself")
        lines = _read_lines(reader, reader.open_companion(path))
        body = _strip_header_and_footer(lines)
        if len(body) == len(lines):
            whole.append(path.name)
        yield from _make_blocks(body, options)
    if whole:
        reader.notes.append(
            f"{len(whole)} of {len(chosen)} files in {reader.path} have neither header nor end of Project "
            f"Gutenberg and were read completely, such as {whole[0]}; choose by --option files=PATTERN"
        )


def _read_lines(reader: LineReader, file: LineReader) -> list[str]:
    """The lines of a book."""
    content = file.read_content()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        reader.notes.append(f"{file.path} is not UTF-8 and was read as Latin-1")
    return text.splitlines()


def _make_blocks(body: list[str], options: GutenbergOptions) -> Iterator[Block]:
    sentences = (
        _tokenise_sentence(sentence, options)
        for paragraph in _split_paragraphs(body)
        for sentence in split_sentences(paragraph)
    )
    return make_blocks(Example([words]) for words in sentences if words)


def _split_paragraphs(body: list[str]) -> Iterator[str]:
    """The paragraphs of a book, each on one line."""
    lines: list[str] = []
    for line in body:
        if _SEPARATOR_LINE.fullmatch(line):
            if lines:
                yield _join_lines(lines)
            lines = []
        else:
            lines.append(line.strip())
    if lines:
        yield _join_lines(lines)


def _strip_header_and_footer(lines: list[str]) -> list[str]:
    """The lines between header and footer; all lines where there is neither."""
    starts = [number for number, line in enumerate(lines) if _HEADER_END.match(line)]
    stops = [number for number, line in enumerate(lines) if _FOOTER_START.match(line)]
    start = max((number for number in starts if 2 * number < len(lines)), default=-1) + 1
    return lines[start : min((number for number in stops if number > start), default=len(lines))]


def _join_lines(lines: list[str]) -> str:
    """Lines joined to one; a word that is divided at a hyphen becomes one word."""
    parts = lines[:1]
    for before, line in pairwise(lines):
        parts.append(line if _HYPHENATED_LINE_END.search(before) else f" {line}")
    return "".join(parts)


def _tokenise_sentence(sentence: str, options: GutenbergOptions) -> list[str]:
    words = [word for word in tokenise(sentence.replace("_", " ")) if word != "*"]
    if options.clitics == "split":
        words = [part for word in words for part in split_clitics(word)]
    if options.final == "drop" and words[-1:] and words[-1] in _FINAL_SIGNS:
        words.pop()
    return words


FORMAT = Format(
    _read,
    "Project Gutenberg: a book or a folder of books without headers, split into sentences and words",
    options=GutenbergOptions,
    reads_folders=True,
)
