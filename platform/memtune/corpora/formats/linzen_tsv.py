"""Number agreement as published by Linzen, Dupoux and Goldberg (2016): a TSV with a header, one verb per row.

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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

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
from memtune.errors import CorpusError

_REQUIRED_COLUMNS = ("orig_sentence", "verb", "verb_index", "n_diff_intervening")
_TAG_COLUMN = "pos_sentence"
_SINGULAR, _PLURAL = "VBZ", "VBP"
_IRREGULAR = {"are": "is", "have": "has", "'re": "'s", "'ve": "'s"}
_SIBILANTS = ("s", "x", "z", "ch", "sh")


class LinzenOptions(FormatOptions):
    """`forms` is a file with the singular and the plural form of each verb, for languages besides English."""

    forms: Path | None = None


def _read(reader: LineReader, options: LinzenOptions) -> Iterator[Block]:
    required = _REQUIRED_COLUMNS if options.forms else (*_REQUIRED_COLUMNS, _TAG_COLUMN)
    names = _read_header(reader, required)
    if options.forms:
        partners, place = _read_verb_forms(reader.open_companion(options.forms)), str(options.forms)
    else:
        partners, place = _find_verb_partners(reader.reopen(), names), "the file"
    skip = partial(reader.count_skipped, f"rows whose verb's other form is not in {place}")
    lines = ((number, line) for number, line in reader.read_lines() if line.strip() and number > 1)
    return parse_blocks(reader, lines, partial(_parse_example, names, partners, skip))


def _read_header(reader: LineReader, required: tuple[str, ...]) -> list[str]:
    _, first = next(reader.reopen().read_lines(), (1, ""))
    names = first.split("\t")
    missing = set(required) - set(names)
    if missing:
        raise CorpusError(f"{reader.name}: line 1: a header without {', '.join(sorted(missing))}")
    return names


def _read_verb_forms(reader: LineReader) -> dict[str, str]:
    """The partner of each form of the file, lower-cased."""
    partners: dict[str, str] = {}
    for number, line in reader.read_lines():
        if not line.strip():
            continue
        forms = line.lower().split()
        if len(forms) != 2:
            raise CorpusError(
                f"{reader.name}: line {number}: {len(forms)} words; give a singular form, a TAB and a plural "
                "form"
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


def _parse_example(
    names: list[str], partners: dict[str, str], skip: Callable[[], None], line: str
) -> Example | None:
    columns = _split_columns(line)
    if columns is None:
        raise BadLineError("not TAB-separated columns: one is too long")
    if len(columns) != len(names):
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {len(names)}")
    row = dict(zip(names, columns, strict=True))
    words = row["orig_sentence"].split()
    if not (row["verb_index"].isdecimal() and row["n_diff_intervening"].isdecimal()):
        raise BadLineError("verb_index and n_diff_intervening are numbers")
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


FORMAT = Format(
    _read,
    "number agreement as published by Linzen et al. (2016): a TSV with a header, one verb per row",
    annotations=("agreement",),
    options=LinzenOptions,
)
