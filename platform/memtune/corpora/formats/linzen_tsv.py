"""Number agreement as published by Linzen, Dupoux and Goldberg (2016): a TSV with a header, a verb a row.

Columns are found by their names; `verb_index` counts from 1, `n_diff_intervening` are the attractors. The
file has no other forms of its verbs. They are found in the file itself: a form tagged VBZ and one tagged VBP
anywhere in its sentences are a pair where English spelling makes the one of the other. Rows whose verb has no
such partner are left out and counted. The file is read twice, first for the forms.
"""

import csv
from collections.abc import Iterator
from functools import partial

from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT"]

_NEEDED = ("orig_sentence", "pos_sentence", "verb", "verb_index", "n_diff_intervening")
_SINGULAR, _PLURAL = "VBZ", "VBP"
_IRREGULAR = {"are": "is", "have": "has", "'re": "'s", "'ve": "'s"}
_SIBILANTS = ("s", "x", "z", "ch", "sh")

Row = dict[str, str]


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    names = _header(reader)
    partners = _partners(LineReader(reader.path), names)
    lines = ((number, line) for number, line in reader.lines() if line.strip() and number > 1)
    return parsed_blocks(reader, lines, partial(_example, reader, names, partners))


def _header(reader: LineReader) -> list[str]:
    first = next(LineReader(reader.path).lines(), (1, ""))[1]
    names = first.split("\t")
    missing = set(_NEEDED) - set(names)
    if missing:
        raise CorpusError(f"{reader.path}: line 1: a header without {', '.join(sorted(missing))}")
    return names


def _partners(reader: LineReader, names: list[str]) -> dict[str, str]:
    """Each form, lower-cased, with that of the other number, where the file has both."""
    seen: dict[str, set[str]] = {_SINGULAR: set(), _PLURAL: set()}
    sentence, tags = names.index("orig_sentence"), names.index("pos_sentence")
    for number, line in reader.lines():
        columns = _columns(line)
        if number > 1 and len(columns) == len(names):
            words = columns[sentence].lower().split()
            for word, tag in zip(words, columns[tags].split(), strict=False):
                if tag in seen:
                    seen[tag].add(word)
    partners: dict[str, str] = {}
    for plural in sorted(seen[_PLURAL]):
        for singular in _third_person(plural):
            if singular in seen[_SINGULAR]:
                partners.setdefault(plural, singular)
                partners.setdefault(singular, plural)
    return partners


def _third_person(plural: str) -> Iterator[str]:
    """How English may write the third person singular of a present tense, likeliest first."""
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


def _example(reader: LineReader, names: list[str], partners: dict[str, str], line: str) -> Example | None:
    columns = _columns(line)
    if len(columns) != len(names):
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {len(names)}")
    row = dict(zip(names, columns, strict=True))
    words = row["orig_sentence"].split()
    if not (row["verb_index"].isdecimal() and row["n_diff_intervening"].isdecimal()):
        raise BadLineError("verb_index and n_diff_intervening are numbers")
    verb = int(row["verb_index"]) - 1
    if not 0 <= verb < len(words) or words[verb].lower() != row["verb"].lower():
        raise BadLineError(f'word {verb + 1} of the sentence is not the verb "{row["verb"]}"')
    wrong = partners.get(words[verb].lower())
    if wrong is None:
        reader.skip("rows whose verb's other form is not in the file")
        return None
    if words[verb][0].isupper():
        wrong = wrong.capitalize()
    return Example([words], {"agreement": [(0, verb, words[verb], wrong, int(row["n_diff_intervening"]))]})


def _columns(line: str) -> list[str]:
    return next(csv.reader([line], delimiter="\t"), [])


FORMAT = Format(
    _read,
    "number agreement as published by Linzen et al. (2016): a TSV with a header, a verb a row",
    annotations=("agreement",),
)
