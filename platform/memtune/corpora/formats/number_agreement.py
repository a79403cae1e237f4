"""Number agreement: two files of corresponding lines, prefixes of sentences, or a table of verbs.

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

The format `linzen-tsv` is that of Linzen et al. (2016) as published: a TSV with a header, one verb per row.
Columns are found by their names; `verb_index` counts from 1 and `n_diff_intervening` is the number of
attractors. The table has one form of each verb, and the other is found in one of two ways:

- By default in the table itself, for English: a form tagged VBZ and one tagged VBP anywhere in its sentences
  are a pair if English spelling makes one from the other.
- For other languages, or to choose the forms, the option `forms` names a file with a singular form, a TAB
  and a plural form per line. The column `pos_sentence` is then not needed. A form with several partners,
  such as a Russian plural, gets that of its first line.

Rows whose verb has no partner are left out and counted. The file is read several times, first for the forms.
"""

import csv
import os
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.vocabulary import EOS
from memtune.corpora.text_blocks import (
    BadLineError,
    Block,
    Example,
    Format,
    FormatOptions,
    parse_blocks,
    parse_number,
)
from memtune.errors import CorpusError
from memtune.number_format import format_count

UNKNOWN_ATTRACTORS = -1
"""Stored if a source does not have the number of attractors."""

_COLUMN_COUNT = 4
_GENERATED_COLUMN_COUNTS = (11, 12)  # the last one, the context, is missing from some copies
_POSITION, _RIGHT, _WRONG = 3, 6, 7  # columns of generated questions
_TABLE_COLUMNS = ("form", "class", "n_attr")

_Rows = tuple[dict[str, str], ...]
"""Columns by name of the two rows of a question; none after the last row."""


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
    is_unknown = False
    for block in parse_blocks(reader, _pair_lines(reader, verbs), partial(_parse_example, rows)):
        attractors = block.annotations["agreement"]["attractors"].to_numpy()
        is_unknown = is_unknown or bool((attractors == UNKNOWN_ATTRACTORS).any())
        yield block
    if is_unknown:
        reader.notes.append(
            f"{reader.name}: the number of attractors is not known for some questions, which are counted in "
            "no group by attractors; name their table with --option table=FILE"
        )


def _pair_lines(reader: LineReader, verbs: LineReader) -> Iterator[tuple[int, tuple[str, str]]]:
    golds = verbs.read_lines()
    for number, text in reader.read_lines():
        gold = next(golds, None)
        if gold is None:
            end = format_count(number - 1, "line")
            raise CorpusError(f"{verbs.path} ends after {end}, but {reader.name} has more")
        if text.strip() or gold[1].strip():
            yield number, (text, gold[1])
    if any(line.strip() for _, line in golds):
        raise CorpusError(f"{verbs.path} has more lines than {reader.name}")


def _read_table(text: LineReader, path: Path) -> Iterator[_Rows]:
    """The two rows of each question, right form first; the file is opened for the first question."""
    reader = text.open_companion(path)
    try:
        rows = csv.DictReader((line for _, line in reader.read_lines()), delimiter="\t", restval="")
        _check_header(reader, rows.fieldnames or (), _TABLE_COLUMNS)
        yield from zip(rows, rows, strict=False)
    except csv.Error as error:
        raise CorpusError(f"{reader.name}: not TAB-separated columns ({error})") from None


def _check_header(reader: LineReader, names: Collection[str], required: tuple[str, ...]) -> None:
    """Raises CorpusError where a required column is missing."""
    if missing := set(required).difference(names):
        raise CorpusError(f"{reader.name}: line 1: a header without {', '.join(sorted(missing))}")


def _parse_example(rows: Iterator[_Rows] | None, lines: tuple[str, str]) -> Example:
    words = lines[0].split()
    if words[-1:] == [EOS]:
        words.pop()
    columns = lines[1].split("\t")
    if len(columns) in _GENERATED_COLUMN_COUNTS:
        return _parse_generated(words, columns, None if rows is None else next(rows, ()))
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
        raise BadLineError(f"position {verb} in a sentence of {format_count(len(words), 'word')}")
    if rows is None:
        return _make_example(words, verb, right, wrong, UNKNOWN_ATTRACTORS)
    if [row["form"].strip() for row in rows] != [right, wrong]:
        raise BadLineError(f'the rows of the table at this place are not of "{right}" and "{wrong}"')
    attractors = parse_number(rows[0]["n_attr"], "n_attr")
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
    lambda reader, options: parse_blocks(reader, reader.read_full_lines(), partial(_parse_prefix, options)),
    "number agreement by prefixes: VBZ or VBP, a TAB and the words before the verb",
    annotations=("agreement",),
    options=PrefixOptions,
)

_REQUIRED_COLUMNS = ("orig_sentence", "verb", "verb_index", "n_diff_intervening")
_TAG_COLUMN = "pos_sentence"
_SINGULAR, _PLURAL = "VBZ", "VBP"
_IRREGULAR = {"are": "is", "have": "has", "'re": "'s", "'ve": "'s"}
_SIBILANTS = ("s", "x", "z", "ch", "sh")


class LinzenOptions(FormatOptions):
    """`forms` is a file with the singular and the plural form of each verb, for languages besides English."""

    forms: Path | None = None


def _read_linzen(reader: LineReader, options: LinzenOptions) -> Iterator[Block]:
    required = _REQUIRED_COLUMNS if options.forms else (*_REQUIRED_COLUMNS, _TAG_COLUMN)
    names = next(reader.reopen().read_lines(), (1, ""))[1].split("\t")
    _check_header(reader, names, required)
    if options.forms:
        partners, place = _read_verb_forms(reader.open_companion(options.forms)), str(options.forms)
    else:
        partners, place = _find_verb_partners(reader.reopen(), names), "the file"
    skip = partial(reader.count_skipped, f"rows whose verb's other form is not in {place}")
    lines = ((number, line) for number, line in reader.read_full_lines() if number > 1)
    return parse_blocks(reader, lines, partial(_parse_linzen_row, names, partners, skip))


def _read_verb_forms(reader: LineReader) -> dict[str, str]:
    """The partner of each form of the file, lower-cased."""
    partners: dict[str, str] = {}
    for number, line in reader.read_full_lines():
        forms = line.lower().split()
        if len(forms) != 2:
            raise CorpusError(
                f"{reader.name}: line {number}: {format_count(len(forms), 'word')}; give a singular form, a "
                "TAB and a plural form"
            )
        singular, plural = forms
        partners.setdefault(singular, plural)
        partners.setdefault(plural, singular)
    return partners


def _find_verb_partners(reader: LineReader, names: list[str]) -> dict[str, str]:
    """The partner of each English form, lower-cased, of which the table has both."""
    seen: dict[str, set[str]] = {_SINGULAR: set(), _PLURAL: set()}
    sentence, tags = names.index("orig_sentence"), names.index(_TAG_COLUMN)
    for number, line in reader.read_lines():
        columns = _split_columns(line) or []
        if number > 1 and len(columns) == len(names):
            words = columns[sentence].lower().split()
            for word, tag in zip(words, columns[tags].split(), strict=False):
                if tag in seen:
                    seen[tag].add(word)
    partners: dict[str, str] = {}
    for plural in sorted(seen[_PLURAL]):
        for singular in _spell_third_person(plural):
            if singular in seen[_SINGULAR]:
                partners.setdefault(plural, singular)
                partners.setdefault(singular, plural)
    return partners


def _spell_third_person(plural: str) -> Iterator[str]:
    """English spellings of the third person singular of a present tense, the most probable first."""
    if plural in _IRREGULAR:
        yield _IRREGULAR[plural]
    elif plural.endswith("y") and plural[-2:-1] not in "aeiou":
        yield f"{plural[:-1]}ies"
    elif plural.endswith(_SIBILANTS):
        yield f"{plural}es"
        yield f"{plural}{plural[-1]}es"
    elif plural.endswith("o"):
        yield f"{plural}es"
        yield f"{plural}s"
    else:
        yield f"{plural}s"


def _parse_linzen_row(
    names: list[str], partners: dict[str, str], skip: Callable[[], None], line: str
) -> Example | None:
    columns = _split_columns(line)
    if columns is None:
        raise BadLineError("not TAB-separated columns: one is too long")
    if len(columns) != len(names):
        found = format_count(len(columns), "TAB-separated column")
        raise BadLineError(f"{found} instead of {len(names)}")
    row = dict(zip(names, columns, strict=True))
    words = row["orig_sentence"].split()
    verb = parse_number(row["verb_index"], "verb_index") - 1
    attractors = parse_number(row["n_diff_intervening"], "n_diff_intervening")
    if not 0 <= verb < len(words) or words[verb].lower() != row["verb"].lower():
        raise BadLineError(f'word {verb + 1} of the sentence is not the verb "{row["verb"]}"')
    wrong = partners.get(words[verb].lower())
    if wrong is None:
        skip()
        return None
    if words[verb][0].isupper():
        wrong = wrong.capitalize()
    return Example([words], {"agreement": [(0, verb, words[verb], wrong, attractors)]})


def _split_columns(line: str) -> list[str] | None:
    """The columns of a line; None if csv refuses it, for example a column of more than 131,072 characters."""
    try:
        return next(csv.reader([line], delimiter="\t"), [])
    except csv.Error:
        return None


LINZEN_TSV = Format(
    _read_linzen,
    "number agreement as published by Linzen et al. (2016): a TSV with a header, one verb per row",
    annotations=("agreement",),
    options=LinzenOptions,
)
