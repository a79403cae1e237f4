"""Words out of running text: a plain tokenisation of English prose, and the spellings of treebanks undone."""

import re
from collections.abc import Iterator

__all__ = ["sentences_of", "split_clitics", "tokens_of", "without_escapes"]

_ESCAPES = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "\\/": "/",
    "\\*": "*",
}
_ESCAPED = re.compile("|".join(map(re.escape, _ESCAPES)))

_ABBREVIATIONS = (
    r"(?:Mr|Mrs|Messrs|Dr|St|Mt|Rev|Hon|Prof|Capt|Col|Gen|Lieut|Lt|Maj|Sergt|Sgt|Gov|Sen|Esq|Jr|Sr|Mme|Mlle|"
    r"vs|viz|etc|Vol|vol|Ch|cf|pp|ll)"
)
_INITIALS = r"(?<![\w'\u2019])(?:(?:[A-Za-z]\.){2,}|[A-HJ-Z]\.)"  # a single I is the pronoun
_TOKEN = re.compile(
    rf"""
    \b{_ABBREVIATIONS}\.                    # an abbreviation with its full stop
    | {_INITIALS}(?=\W|$)                   # initials: J. or B.C.
    | \d+(?:[.,:]\d+)*                      # numbers: 1,000.5 and 10:30
    | \w+(?:['\u2019\-]\w+)*                     # words, with apostrophes and hyphens within
    | -{{2,}} | \.{{2,}}                    # dashes and dots of omission
    | [^\w\s]                               # any other sign
    """,
    re.VERBOSE,
)
_END = re.compile(r"(?<=[.!?])([\"'\u201d\u2019)\]]*)\s+(?=[\"'\u201c\u2018(\[]*[A-Z0-9])")
_NO_END = re.compile(rf"(?:\b{_ABBREVIATIONS}\.|{_INITIALS})$")

_CLITIC = re.compile(r"(?i)(.*\w)(n['\u2019]t|['\u2019](?:s|m|d|ll|re|ve)?)")


def without_escapes(word: str) -> str:
    """A word of a treebank as it was printed: `-LRB-` is a bracket, `\\/` a slash."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], word)


def split_clitics(word: str) -> list[str]:
    """A word cut as in the Penn Treebank: `girl's` is `girl 's`, `don't` `do n't` and `years'` `years '`."""
    found = _CLITIC.fullmatch(word)
    return [found[1], found[2]] if found else [word]


def tokens_of(sentence: str) -> list[str]:
    """Words and signs of a sentence of prose; clitics stay with their words."""
    return _TOKEN.findall(sentence)


def sentences_of(paragraph: str) -> Iterator[str]:
    """A paragraph cut after `.`, `!` and `?` where a capital or a figure follows; not after abbreviations."""
    start = 0
    for end in _END.finditer(paragraph):
        if not _NO_END.search(paragraph, start, end.start()):
            yield paragraph[start : end.end()].strip()
            start = end.end()
    if paragraph[start:].strip():
        yield paragraph[start:].strip()
