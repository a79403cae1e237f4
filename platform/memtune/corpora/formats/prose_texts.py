"""Prose, of which sentences and words are made by `blocks.prose`: raw text, and books of Project Gutenberg.

In raw prose, such as a web page's text, a blank line ends a paragraph; with the option `paragraphs=lines`
every line is one.

A book of Project Gutenberg is one file, or every file of a folder, without headers and licences. Its text
starts after the line `*END*THE SMALL PRINT!` of old files or `*** START OF` of newer ones, and stops before
`*** END OF` or `End of Project Gutenberg`. Case is kept. Clitics stay with their words unless the option
`clitics` splits them. Emphasis (`_so_`) and rows of signs are removed. A file that is not UTF-8 is read as
Latin-1, and the import notes it.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from memtune.corpora.blocks.prose import ProseOptions, make_prose_blocks, split_paragraphs
from memtune.corpora.blocks.text_blocks import Block, Format
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import list_source_files
from memtune.errors import CorpusError


class PlainProseOptions(ProseOptions):
    """Those of prose; `paragraphs` end at blank lines or at every line."""

    paragraphs: Literal["blank-lines", "lines"] = "blank-lines"


def _read_prose(reader: LineReader, options: PlainProseOptions) -> Iterator[Block]:
    lines = (line for _, line in reader.read_lines())
    paragraphs = lines if options.paragraphs == "lines" else split_paragraphs(lines, reader.name)
    return make_prose_blocks(paragraphs, options)


PROSE = Format(
    _read_prose,
    "raw prose: paragraphs are split into sentences, and sentences into words",
    options=PlainProseOptions,
)


_HEADER_END = re.compile(
    r"\*END\s*\*?\s*THE SMALL PRINT!|\*\*\*\s*START OF TH(?:E|IS) PROJECT GUTENBERG", re.IGNORECASE
)
_FOOTER_START = re.compile(
    r"\*\*\*\s*END OF TH(?:E|IS) PROJECT GUTENBERG|\W*End of (?:the |this )?Project Gutenberg"
    r"|\*\*\*START\*\*THE SMALL PRINT!",
    re.IGNORECASE,
)


_MAX_BOOK_BYTES = 2**25
"""The largest books have about 6 MB. A book is held in memory, and takes up to 20 times its bytes."""


class GutenbergOptions(ProseOptions):
    """Those of prose; `files` is a pattern for the names of a folder's files, in any case."""

    files: str = "*.txt"


def _read_gutenberg(reader: LineReader, options: GutenbergOptions) -> Iterator[Block]:
    if not reader.is_folder:
        yield from _make_blocks(_strip_header_and_footer(_read_book(reader, reader)), options)
        return
    paths = [Path(path) for path in list_source_files(reader.path)]
    chosen = [path for path in paths if fnmatch(path.name.lower(), options.files.lower())]
    if not chosen:
        raise CorpusError(
            f"{reader.name} has no file named {options.files}; name others with --option files=PATTERN"
        )
    whole = []
    for path in chosen:
        lines = _read_book(reader, reader.open_companion(path))
        body = _strip_header_and_footer(lines)
        if len(body) == len(lines):
            whole.append(path.name)
        yield from _make_blocks(body, options)
    if whole:
        reader.notes.append(
            f"{len(whole)} of {len(chosen)} files in {reader.name} have neither header nor end of Project "
            f"Gutenberg and were read completely, such as {whole[0]}; choose by --option files=PATTERN"
        )


def _read_book(reader: LineReader, file: LineReader) -> list[str]:
    """The lines of a book."""
    content = file.read_content(
        _MAX_BOOK_BYTES, "give a folder with one file for each book, or import it with --format prose"
    )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        reader.notes.append(f"{file.name} is not UTF-8 and was read as Latin-1")
    return text.splitlines()


def _make_blocks(body: list[str], options: GutenbergOptions) -> Iterator[Block]:
    return make_prose_blocks(split_paragraphs(body), options)


def _strip_header_and_footer(lines: list[str]) -> list[str]:
    """The lines between header and footer; all lines where there is neither."""
    starts = [number for number, line in enumerate(lines) if _HEADER_END.match(line)]
    stops = [number for number, line in enumerate(lines) if _FOOTER_START.match(line)]
    start = max((number for number in starts if 2 * number < len(lines)), default=-1) + 1
    return lines[start : min((number for number in stops if number > start), default=len(lines))]


GUTENBERG = Format(
    _read_gutenberg,
    "Project Gutenberg: a book or a folder of books without headers, split into sentences and words",
    options=GutenbergOptions,
    reads_folders=True,
)
