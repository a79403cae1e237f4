"""Prose becomes sentences of words, which simple rules find; words of treebanks lose their escapes.

Chinese and Japanese are read as they are written: a sentence ends at its sign, without a blank, and a run of
their characters and signs is one word. Characters or subwords are the tokens of such words. Latin letters and
numbers that touch a character are of its word: `用GPU训练`. ASCII signs are words of their own.

Paragraphs are joined, split into sentences, and these into words. In raw prose, such as a web page's text, a
blank line ends a paragraph; with the option `paragraphs=lines` every line is one.

A book of Project Gutenberg is one file, or every file of a folder, without headers and licences. Its text
starts after the line `*END*THE SMALL PRINT!` of old files or `*** START OF` of newer ones, and stops before
`*** END OF` or `End of Project Gutenberg`. Case is kept. Clitics stay with their words unless the option
`clitics` splits them. Emphasis (`_so_`) and rows of signs are removed. A file that is not UTF-8 is read as
Latin-1, and the import notes it.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal
from unicodedata import category

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.text_blocks import Block, Example, Format, FormatOptions, make_blocks
from memtune.errors import CorpusError
from memtune.number_format import format_count

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

_NEAR_WIDE = "\u3001-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f"
_WIDE = _NEAR_WIDE + "\U00020000-\U0003ffff"
"""Characters and signs of Chinese and Japanese, which are written without blanks."""
_SHARED_SIGNS = "\u00b7\u2014\u2018-\u201d\u2026"
"""Signs of Chinese in a sentence without other letters: quotation marks, dashes, dots of omission."""


def _compile_token_pattern(word: str, sign: str, wide_run: str = "") -> re.Pattern[str]:
    """The pattern of words and signs, for a character of a word, a sign, and what is read before others."""
    return re.compile(
        rf"""
        {wide_run}                              # Chinese or Japanese
        <unk>                                   # an unknown word, as corpora write it
        | (?<!\S)['\u2019](?:s|m|d|ll|re|ve)(?!\S)   # a clitic that is split already
        | \b{_ABBREVIATIONS}\.                  # an abbreviation with its full stop
        | {_INITIALS}(?=\W|$)                   # initials: J. or B.C.
        | \d+(?:[.,:]\d+)*{word}*               # numbers: 1,000.5, 10:30 and 3rd
        | {word}+(?:['\u2019\-]{word}+)*         # words, with apostrophes and hyphens within
        | -{{2,}} | \.{{2,}}                    # dashes and dots of omission
        | {sign}                                # any other sign
        """,
        re.VERBOSE,
    )


@cache
def _compile_script_patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What tells texts that need other patterns of words and signs, which take five times as long, and these:
    for Chinese and Japanese without other letters, and for all others.

    Python's `\\w` lacks the marks within words of Hindi, pointed Arabic and decomposed letters, and joiners.
    """
    near = "\u200c\u200d"
    near += "".join(each for each in map(chr, range(0x300, 0x10000)) if category(each).startswith("M"))
    far = "".join(each for each in map(chr, range(0x10000, 0x1F000)) if category(each).startswith("M"))
    far += "\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef"
    word = rf"[\w{near}{far}]"
    sign = rf"[^\w\s](?:[{near}{far}]+(?:(?<=\u200d)[^\w\s])?)*"

    def compile_with_runs(letters: str, signs: str) -> re.Pattern[str]:
        mixed = rf"""
            (?=(?:\d+[.,:])*+[^\W{letters}]*+(?!\W)[{letters}])
            (?:\w++ | {word} | (?<=\d)[.,:](?=\d) | (?<=\w)['\u2019\-](?=\w))+
        """
        return _compile_token_pattern(word, sign, rf"(?:{mixed} | (?=\W)[{signs}])+ |")

    # Python looks up the characters of a class at once where all of them have 16 bits.
    emoji = "\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
    marked = re.compile(rf"[{near}{_NEAR_WIDE}]|[\U00010000-\U000fffff](?<![{emoji}])")
    return marked, compile_with_runs(rf"{_WIDE}\d", _WIDE + _SHARED_SIGNS), compile_with_runs(_WIDE, _WIDE)


_TOKEN_PATTERN = _compile_token_pattern(r"\w", r"[^\w\s]")

_SPACED_SIGNS, _WIDE_SIGNS = ".!?\u061f\u06d4\u0964\u0965", "\u3002\uff01\uff1f\uff61"
"""Signs that end a sentence before a blank, those of Arabic, Urdu and Hindi too, and without one."""
FINAL_SIGNS = (*_SPACED_SIGNS, *_WIDE_SIGNS)
_CLOSING = r"\"'\u201d\u2019)\]\u300d\u300f\uff09\u300b\u3011"
# A quotation in the midst of a sentence is followed by a comma or a particle, which is hiragana.
_SENTENCE_END = re.compile(
    rf"""
    (?<=[{_SPACED_SIGNS}])[{_CLOSING}]*\s+(?=["'\u201c\u2018(\[]*(?P<first>[^\W_]))
    | (?<=[{_WIDE_SIGNS}])(?![{_WIDE_SIGNS}])
      (?:(?![{_CLOSING}])|[{_CLOSING}]+(?![{_CLOSING}{_WIDE_SIGNS}\u3001\uff0c\u3041-\u3096]))
    """,
    re.VERBOSE,
)
_WIDE_CHARACTER = re.compile(rf"([{_WIDE}])")
_UNMIXED = re.compile(rf"(?=[^{_WIDE}]*[{_WIDE}])[\W\d_{_WIDE}]*")
"""A sentence with characters of Chinese or Japanese and without other letters."""
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
    if sentence.isascii():
        return _TOKEN_PATTERN.findall(sentence)
    marked, unmixed, other = _compile_script_patterns()
    if not marked.search(sentence):
        return _TOKEN_PATTERN.findall(sentence)
    return (unmixed if _UNMIXED.fullmatch(sentence) else other).findall(sentence)


def split_characters(sentence: str) -> list[str]:
    """As `tokenise`, but each character of Chinese or Japanese is a word of a labelled text."""
    first, *rest = _WIDE_CHARACTER.split(sentence)
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return tokenise(first) + [word for wide, part in pairs for word in (wide, *tokenise(part))]


def split_sentences(paragraph: str) -> Iterator[str]:
    """Splits a paragraph after its final signs, except after abbreviations and before small letters."""
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        # Only the last characters are searched: from `start` on, "Mr. " * n would take quadratic time.
        tail = max(start, end.start() - _ABBREVIATION_END_CHARACTERS)
        goes_on = (end["first"] or "").islower() or _ABBREVIATION_END.search(paragraph, tail, end.start())
        if not goes_on:
            yield paragraph[start : end.end()].strip()
            start = end.end()
    if paragraph[start:].strip():
        yield paragraph[start:].strip()


_SEPARATOR_LINE = re.compile(r"[\W_]*")
_JOINED_LINE_END = re.compile(rf"(?<=\w-)\n|(?<=[{_WIDE}])\n(?=[{_WIDE}])")
"""After a hyphen, and between two characters of Chinese or Japanese."""
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
    return make_blocks(Example((words,)) for words in sentences if words)


def split_paragraphs(lines: Iterable[str], name: object = "the text") -> Iterator[str]:
    """Paragraphs, each on one line; a line without letters and digits ends a paragraph.

    Raises CorpusError, which calls the text `name`, for a paragraph of more than 16 million characters.
    """
    paragraph: list[str] = []
    characters = 0
    for line in chain(lines, [""]):
        if _SEPARATOR_LINE.fullmatch(line):
            if paragraph:  # a word that is divided at the end of a line becomes one word
                yield _JOINED_LINE_END.sub("", "\n".join(paragraph)).replace("\n", " ")
            paragraph, characters = [], 0
        else:
            paragraph.append(line.strip())
            characters += len(line)
            if characters > _MAX_PARAGRAPH_CHARACTERS:
                raise CorpusError(
                    f"{name}: a paragraph of more than {_MAX_PARAGRAPH_CHARACTERS:,} characters; where each "
                    "line is a paragraph, use --option paragraphs=lines"
                )


def tokenise_sentence(sentence: str, options: ProseOptions) -> list[str]:
    """The words and signs of a sentence, without marks of emphasis."""
    words = [word for word in tokenise(sentence.replace("_", " ")) if word != "*"]
    return finish_sentence(words, options)


def finish_sentence(words: list[str], options: ProseOptions) -> list[str]:
    """Words after the options are applied to them."""
    if options.clitics == "split":
        words = [part for word in words for part in split_clitics(word)]
    if options.final == "drop" and words:
        *words, last = words
        rest = "" if last in FINAL_SIGNS else last.rstrip(_WIDE_SIGNS)
        words += [rest] if rest else []
    return words


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
    paths = [Path(path) for path in reader.source.list_files()] if reader.is_folder else []
    chosen = [path for path in paths if fnmatch(path.name.lower(), options.files.lower())]
    if reader.is_folder and not chosen:
        raise CorpusError(
            f"{reader.name} has no file named {options.files}; name others with --option files=PATTERN"
        )
    whole = []
    for book in map(reader.open_companion, chosen) if reader.is_folder else [reader]:
        lines = _read_book(reader, book)
        body = _strip_header_and_footer(lines)
        if len(body) == len(lines):
            whole.append(Path(book.name).name)
        yield from make_prose_blocks(split_paragraphs(body), options)
    if whole and reader.is_folder:
        have, were = ("has", "was") if len(whole) == 1 else ("have", "were")
        reader.notes.append(
            f"{len(whole)} of {format_count(len(chosen), 'file')} in {reader.name} {have} neither header nor "
            f"end of Project Gutenberg and {were} read completely, such as {whole[0]}; choose by --option "
            "files=PATTERN"
        )


def _read_book(reader: LineReader, file: LineReader) -> list[str]:
    content = file.read_content(
        _MAX_BOOK_BYTES, "give a folder with one file for each book, or import it with --format prose"
    )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        reader.notes.append(f"{file.name} is not UTF-8 and was read as Latin-1")
    return text.splitlines()


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
