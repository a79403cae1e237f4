"""CoNLL-U: sentences with dependency trees, ten TAB-separated columns a word, a blank line after a sentence.

The words are the syntactic ones: lines of multiword tokens (`4-5`) and empty nodes (`8.1`) are left out.
A tree has one root and no cycle; edges may cross. Whitespace within a form becomes "_".
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT", "Tree", "parsed_sentences", "without_punctuation"]

PUNCTUATION = "punct"

_COLUMNS = 10

Lines = list[tuple[int, str]]
Tree = tuple[tuple[int, ...], tuple[str, ...]]
"""The head of each word, -1 for the root's, and its relation."""


class ConlluOptions(Value):
    """What becomes of punctuation (words with the relation `punct`) and of the subtypes of relations.

    The dependents of a word that is dropped hang on its nearest ancestor that stays.
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
    return parsed_blocks(reader, _sentences(reader), partial(_example, options))


def _sentences(reader: LineReader) -> Iterator[tuple[int, Lines]]:
    """The lines of each sentence, comments left out."""
    lines: Lines = []
    for number, line in reader.lines():
        if line.strip():
            if not line.startswith("#"):
                lines.append((number, line))
        elif lines:
            yield lines[0][0], lines
            lines = []
    if lines:
        yield lines[0][0], lines


def parsed_sentences(reader: LineReader) -> Iterator[Example]:
    """The sentences of a file with their trees as they are; a CorpusError for a bad line."""
    for number, lines in _sentences(reader):
        try:
            yield _example(ConlluOptions(), lines)
        except BadLineError as error:
            raise CorpusError(f"{reader.path}: line {error.line or number}: {error.reason}") from None


def without_punctuation(sentence: Sequence[str], tree: Tree) -> tuple[list[str], Tree]:
    """A sentence and its tree without punctuation."""
    rows = zip(sentence, *tree, strict=True)
    kept = _without([_Word(form, head, relation, 0) for form, head, relation in rows], PUNCTUATION)
    return [word.form for word in kept], _tree(kept)


def _example(options: ConlluOptions, lines: Lines) -> Example:
    words = list(_words(lines))
    _check_tree(words)
    if options.punctuation == "drop":
        words = _without(words, PUNCTUATION)
    if options.subtypes == "strip":
        words = [word._replace(relation=word.relation.split(":")[0]) for word in words]
    return Example([[word.form for word in words]], {"trees": [_tree(words)]})


def _tree(words: Sequence[_Word]) -> Tree:
    return tuple(word.head for word in words), tuple(word.relation for word in words)


def _words(lines: Lines) -> Iterator[_Word]:
    position = 0
    for number, line in lines:
        columns = line.split("\t")
        if len(columns) != _COLUMNS:
            raise BadLineError(f"{len(columns)} TAB-separated columns instead of {_COLUMNS}", number)
        identifier, form, head, relation = columns[0], columns[1], columns[6], columns[7]
        if "-" in identifier or "." in identifier:
            continue
        position += 1
        if identifier != str(position):
            raise BadLineError(f'word "{identifier}" where {position} should be', number)
        if not form.split() or not relation.strip():
            raise BadLineError("a word without a form or a relation", number)
        if not head.isdecimal():
            raise BadLineError(f'the head "{head}" is no number', number)
        yield _Word("_".join(form.split()), int(head) - 1, relation.strip(), number)


def _check_tree(words: Sequence[_Word]) -> None:
    for word in words:
        if word.head >= len(words):
            raise BadLineError(f"head {word.head + 1} in a sentence of {len(words)} words", word.line)
    roots = [word for word in words if word.head < 0]
    if len(roots) != 1:
        raise BadLineError(f"a sentence with {len(roots)} roots", roots[1].line if roots else None)
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


def _without(words: Sequence[_Word], relation: str) -> list[_Word]:
    """The words but those of a relation; the root is never one of them."""
    places = {-1: -1}
    kept: list[_Word] = []
    for position, word in enumerate(words):
        if word.head < 0 or word.relation.split(":")[0] != relation:
            places[position] = len(kept)
            kept.append(word)

    def place(position: int) -> int:
        while position not in places:
            position = words[position].head
        return places[position]

    return [word._replace(head=place(word.head)) for word in kept]


FORMAT = Format(
    _read,
    "CoNLL-U: ten TAB-separated columns a word, with dependency trees; a blank line ends a sentence",
    annotations=("trees",),
    options=ConlluOptions,
)
