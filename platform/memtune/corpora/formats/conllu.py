"""CoNLL-U: sentences with dependency trees, ten TAB-separated columns per word, a blank line at the end.

Lines of multiword tokens (`4-5`) and empty nodes (`8.1`) are left out, so the words are the syntactic ones.
A tree has one root and no cycle; edges may cross. Whitespace within a form becomes "_".
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.text_blocks import (
    BadLineError,
    Block,
    Example,
    Format,
    FormatOptions,
    parse_blocks,
    parse_number,
    split_columns,
)
from memtune.errors import CorpusError
from memtune.number_format import format_count

_PUNCTUATION = "punct"
"""The relation of punctuation."""
_COLUMN_COUNT = 10
_REMOVED = "_"
"""The form of words in treebanks whose text has another licence."""

NumberedLines = list[tuple[int, str]]
DependencyTree = tuple[tuple[int, ...], tuple[str, ...]]
"""The head of each word, -1 for the root's, and its relation."""


class ConlluOptions(FormatOptions):
    """`punctuation` keeps or drops words with the relation `punct`; `subtypes` keeps or strips the part of a
    relation after its colon. The dependents of a dropped word get its nearest kept ancestor as head.
    """

    punctuation: Literal["keep", "drop"] = "keep"
    subtypes: Literal["keep", "strip"] = "keep"


class _Word(NamedTuple):
    """A word's form, the position of its head (-1 for the root), its relation and the line it is on."""

    form: str
    head: int
    relation: str
    line: int


def _read(reader: LineReader, options: ConlluOptions) -> Iterator[Block]:
    def parse(lines: NumberedLines) -> Example | None:
        example = _parse_example(options, lines)
        if set(example.sentences[0]) == {_REMOVED}:
            reader.count_skipped(f"sentences of which each form is {_REMOVED}: their text was removed")
            return None
        return example

    return parse_blocks(reader, _group_sentences(reader), parse)


def _group_sentences(reader: LineReader) -> Iterator[tuple[int, NumberedLines]]:
    """The lines of each sentence, comments left out."""
    for is_blank, group in groupby(reader.read_lines(), lambda numbered: not numbered[1].strip()):
        lines = [(number, line) for number, line in group if not line.startswith("#")]
        if lines and not is_blank:
            yield lines[0][0], lines


def read_parsed_sentences(reader: LineReader) -> Iterator[Example]:
    """The sentences of a file with their complete trees; raises CorpusError for a bad line."""
    for number, lines in _group_sentences(reader):
        try:
            yield _parse_example(ConlluOptions(), lines)
        except BadLineError as error:
            raise CorpusError(f"{reader.name}: line {error.line or number}: {error.reason}") from None


def drop_punctuation(sentence: Sequence[str], tree: DependencyTree) -> tuple[list[str], DependencyTree]:
    """A sentence and its tree without punctuation."""
    rows = zip(sentence, *tree, strict=True)
    kept = _drop_punctuation([_Word(form, head, relation, 0) for form, head, relation in rows])
    return [word.form for word in kept], _make_tree(kept)


def _parse_example(options: ConlluOptions, lines: NumberedLines) -> Example:
    words = list(_parse_words(lines))
    _check_tree(words)
    if options.punctuation == "drop":
        words = _drop_punctuation(words)
    if options.subtypes == "strip":
        words = [word._replace(relation=word.relation.split(":")[0]) for word in words]
    return Example([[word.form for word in words]], {"trees": [_make_tree(words)]})


def _make_tree(words: Sequence[_Word]) -> DependencyTree:
    return tuple(word.head for word in words), tuple(word.relation for word in words)


def _parse_words(lines: NumberedLines) -> Iterator[_Word]:
    position = 0
    for number, line in lines:
        columns = split_columns(line, _COLUMN_COUNT, number)
        identifier, form, head, relation = columns[0], columns[1], columns[6], columns[7]
        if "-" in identifier or "." in identifier:
            continue
        position += 1
        if identifier != str(position):
            raise BadLineError(f'word "{identifier}" where {position} should be', number)
        if not form.split() or not relation.strip():
            raise BadLineError("a word without a form or a relation", number)
        place = parse_number(head, "the head", number) - 1
        yield _Word("_".join(form.split()), place, relation.strip(), number)


def _check_tree(words: Sequence[_Word]) -> None:
    for word in words:
        if word.head >= len(words):
            size = format_count(len(words), "word")
            raise BadLineError(f"head {word.head + 1} in a sentence of {size}", word.line)
    roots = [word for word in words if word.head < 0]
    if len(roots) != 1:
        line = roots[1].line if roots else None
        raise BadLineError(f"a sentence with {format_count(len(roots), 'root')}", line)
    safe: set[int] = set()  # positions known to lead to the root
    for start, word in enumerate(words):
        path = {start: None}
        position = word.head
        while position >= 0 and position not in safe:
            if position in path:
                raise BadLineError(f'a cycle through "{words[position].form}"', words[position].line)
            path[position] = None
            position = words[position].head
        safe.update(path)


def _drop_punctuation(words: Sequence[_Word]) -> list[_Word]:
    """The words without punctuation; the root is always kept."""
    places = {-1: -1}
    kept: list[_Word] = []
    for position, word in enumerate(words):
        if word.head < 0 or word.relation.split(":")[0] != _PUNCTUATION:
            places[position] = len(kept)
            kept.append(word)

    def place(position: int) -> int:
        path = []
        while position not in places:
            path.append(position)
            position = words[position].head
        # Each dropped word is passed once; otherwise a long chain of them would take quadratic time.
        places.update(dict.fromkeys(path, places[position]))
        return places[position]

    return [word._replace(head=place(word.head)) for word in kept]


FORMAT = Format(
    _read,
    "CoNLL-U: ten TAB-separated columns per word, with dependency trees; a blank line ends a sentence",
    annotations=("trees",),
    options=ConlluOptions,
)
