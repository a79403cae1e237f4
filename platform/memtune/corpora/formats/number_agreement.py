"""Number agreement: two files of corresponding lines, or prefixes of sentences.

The format `agreement`: `NAME.text` has one sentence per line, which may end in `<eos>`. `NAME.gold`, or the
file of the option `gold`, has TAB-separated columns of one of two kinds:

- The questions of Linzen et al. (2016) as prepared for Gulordava et al. (2018) have four: the position of the
  verb from 0, its right form, its wrong form and the number of attractors. The sentence has the right form.
- The generated questions of Gulordava et al. (2018), "Colorless green recurrent networks dream
  hierarchically", have eleven or twelve. The position is the fourth, the forms are the seventh and eighth.
  Only the words before the position matter: the word in place may be neither form. The attractors are in
  `NAME.tab`, or in the file of the option `table`: a TSV with a header and two rows per question.

The format `agreement-prefix` has one question per line: label of the number, TAB, words before the verb. This
is the simplified data of Linzen et al. (2016) (`numpred.test`), which StackNN (Hao et al. 2018) reads. The
labels are VBZ or VBP, sing or plur, or singular or plural. The file has no verb, so every question compares
the two forms of one verb, those of the options `singular` and `plural`. The form that the label names is
stored as the last word of the sentence.
"""

import csv
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from memtune.corpora.blocks.text_blocks import (
    BadLineError,
    Block,
    Example,
    Format,
    FormatOptions,
    parse_blocks,
    parse_number,
)
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.vocabulary import EOS
from memtune.errors import CorpusError

UNKNOWN_ATTRACTORS = -1
"""Stored if a source does not have the number of attractors."""

_COLUMN_COUNT = 4
_GENERATED_COLUMN_COUNTS = (11, 12)  # the last one, the context, is missing from some copies
_POSITION, _RIGHT, _WRONG = 3, 6, 7  # columns of generated questions
_TABLE_COLUMNS = ("form", "class", "n_attr")


_Rows = tuple[dict[str, str], dict[str, str]]
"""Columns by name of the two rows of a question."""


class AgreementOptions(FormatOptions):
    """`gold` is the file of the verbs, by default NAME.gold next to NAME.text; `table` has the attractors of
    generated questions, by default NAME.tab.
    """

    gold: Path | None = None
    table: Path | None = None


def _read(reader: LineReader, options: AgreementOptions) -> Iterator[Block]:
    gold = options.gold or reader.path.with_suffix(".gold")
    try:
        verbs = reader.open_companion(gold)
    except CorpusError as error:
        raise CorpusError(
            f"{reader.name}: its verbs are expected in {gold}, but {error}; name their file with "
            "--option gold=FILE"
        ) from None
    table = options.table or reader.path.with_suffix(".tab")
    rows = _read_table(reader, table) if options.table or os.path.isfile(table) else None
    for block in parse_blocks(reader, _pair_lines(reader, verbs), partial(_parse_example, rows)):
        _note_unknown_attractors(reader, block)
        yield block


def _note_unknown_attractors(reader: LineReader, block: Block) -> None:
    note = (
        f"{reader.name}: the number of attractors is not known for some questions, which are counted in no "
        "group by attractors; name their table with --option table=FILE"
    )
    unknown = block.annotations["agreement"]["attractors"].to_numpy() == UNKNOWN_ATTRACTORS
    if unknown.any() and note not in reader.notes:
        reader.notes.append(note)


def _pair_lines(reader: LineReader, verbs: LineReader) -> Iterator[tuple[int, tuple[str, str]]]:
    golds = verbs.read_lines()
    for number, text in reader.read_lines():
        gold = next(golds, None)
        if gold is None:
            raise CorpusError(f"{verbs.path} ends after {number - 1} lines, but {reader.name} has more")
        if text.strip() or gold[1].strip():
            yield number, (text, gold[1])
    if any(line.strip() for _, line in golds):
        raise CorpusError(f"{verbs.path} has more lines than {reader.name}")


def _read_table(text: LineReader, path: Path) -> Iterator[_Rows]:
    """The two rows of each question, right form first; the file is opened for the first question."""
    reader = text.open_companion(path)
    lines = (line for _, line in reader.read_lines())
    names = next(lines, "").split("\t")
    missing = set(_TABLE_COLUMNS) - set(names)
    if missing:
        raise CorpusError(f"{reader.name}: line 1: a header without {', '.join(sorted(missing))}")
    try:
        rows = (dict(zip(names, row, strict=False)) for row in csv.reader(lines, delimiter="\t"))
        yield from zip(rows, rows, strict=False)
    except csv.Error as error:
        raise CorpusError(f"{reader.name}: not TAB-separated columns ({error})") from None


def _parse_example(rows: Iterator[_Rows] | None, lines: tuple[str, str]) -> Example:
    words = lines[0].split()
    if words[-1:] == [EOS]:
        words.pop()
    columns = lines[1].split("\t")
    if len(columns) in _GENERATED_COLUMN_COUNTS:
        return _parse_generated(words, columns, None if rows is None else next(rows, ({}, {})))
    if len(columns) != _COLUMN_COUNT or not (columns[0].isdecimal() and columns[3].strip().isdecimal()):
        raise BadLineError("its gold line is not position, right form, wrong form and attractors")
    verb, attractors = parse_number(columns[0], "position"), parse_number(columns[3], "attractors")
    right, wrong = _parse_forms(columns[1], columns[2])
    if verb >= len(words) or words[verb].lower() != right.lower():
        found = f'"{words[verb]}"' if verb < len(words) else "missing"
        raise BadLineError(f'word {verb} is {found}, its gold line says "{right}"')
    return _make_example(words, verb, right, wrong, attractors)


def _parse_generated(words: list[str], columns: list[str], rows: _Rows | None) -> Example:
    verb = parse_number(columns[_POSITION], "position")
    right, wrong = _parse_forms(columns[_RIGHT], columns[_WRONG])
    if verb >= len(words):
        raise BadLineError(f"position {verb} in a sentence of {len(words)} words")
    if rows is None:
        return _make_example(words, verb, right, wrong, UNKNOWN_ATTRACTORS)
    if [row.get("form", "").strip() for row in rows] != [right, wrong]:
        raise BadLineError(f'the rows of the table at this place are not of "{right}" and "{wrong}"')
    attractors = parse_number(rows[0].get("n_attr", ""), "n_attr")
    return _make_example(words, verb, right, wrong, attractors)


def _parse_forms(right: str, wrong: str) -> tuple[str, str]:
    right, wrong = right.strip(), wrong.strip()
    if len(right.split()) != 1 or len(wrong.split()) != 1:
        raise BadLineError(f'"{right}" and "{wrong}" are not two forms of one word')
    return right, wrong


def _make_example(words: list[str], verb: int, right: str, wrong: str, attractors: int) -> Example:
    if words[verb] != right and words[verb].lower() == right.lower():  # the sentence decides the case
        wrong = wrong.lower() if words[verb].islower() else wrong.capitalize()
        right = words[verb]
    return Example([words], {"agreement": [(0, verb, right, wrong, attractors)]})


AGREEMENT = Format(
    _read,
    "number agreement: sentences in NAME.text, verbs and their other forms in NAME.gold",
    annotations=("agreement",),
    options=AgreementOptions,
)


_SINGULAR_LABELS = ("VBZ", "sing", "singular")
_PLURAL_LABELS = ("VBP", "plur", "plural")


class PrefixOptions(FormatOptions):
    """`singular` and `plural` are the forms to compare; `attractors` is their number for the whole file, as
    in `numpred.test.5`, where it is known.
    """

    singular: str = "is"
    plural: str = "are"
    attractors: int | None = Field(None, ge=0, le=2**31 - 1)

    @model_validator(mode="after")
    def _require_two_words(self) -> Self:
        if len(self.singular.split()) != 1 or len(self.plural.split()) != 1 or self.singular == self.plural:
            raise ValueError("singular and plural must be two different words, such as is and are")
        return self


def _read_prefixes(reader: LineReader, options: PrefixOptions) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    return parse_blocks(reader, lines, partial(_parse_prefix, options))


def _parse_prefix(options: PrefixOptions, line: str) -> Example:
    label, _, prefix = line.partition("\t")
    words = prefix.split()
    forms = options.singular.strip(), options.plural.strip()
    if label.strip() not in (*_SINGULAR_LABELS, *_PLURAL_LABELS):
        raise BadLineError(f'the label "{label}" is none of {", ".join(_SINGULAR_LABELS + _PLURAL_LABELS)}')
    if not words:
        raise BadLineError("no words after the label and a TAB")
    right, wrong = forms if label.strip() in _SINGULAR_LABELS else reversed(forms)
    attractors = UNKNOWN_ATTRACTORS if options.attractors is None else options.attractors
    return Example([[*words, right]], {"agreement": [(0, len(words), right, wrong, attractors)]})


AGREEMENT_PREFIX = Format(
    _read_prefixes,
    "number agreement by prefixes: VBZ or VBP, a TAB and the words before the verb",
    annotations=("agreement",),
    options=PrefixOptions,
)
