"""Sentence completion with gold answers: a word that only distant words decide, and four impossible ones.

The blank is a name said again, the particle of a separable verb, or a verb three words or more behind its
subject. The other candidates are words of the same kind, of a training frequency within a factor of two, with
which the grammar has no such sentence: other names of the same sex, other particles, verbs of the same build
that want another number or another category of subject. So the sentence's probability decides each question,
and the words beside the blank do not. All candidates have the tree of the right one.
"""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import inf

from memtune.corpora.examples import Example
from memtune.corpora.grammar import Sentence, log_probability, sentences, stream
from memtune.corpora.grammar.lexicon import (
    INTRANSITIVE,
    NAMES,
    OTHER_FORM,
    PARTNERS,
    REPORTING,
    SEPARABLE,
    TRANSITIVE,
    Lexicon,
)

__all__ = ["SPLIT_SIZES", "questions"]

SPLIT_SIZES = {"valid": 1_000, "test": 1_000}
"""Questions of each split."""

CANDIDATES = 5
_SEEDS = {"valid": 20_160_112, "test": 20_160_113}
_COUNTED = 10_000
_SUBJECT_DISTANCE = 4


def questions(split: str, count: int | None = None) -> Iterator[Example]:
    """The first `count` questions of a split; their names say what the blank is: "name 0", "verb 1", ..."""
    source = random.Random(_SEEDS[split])
    wanted = SPLIT_SIZES[split] if count is None else count
    number = 0
    for sentence in stream(_SEEDS[split]):
        if number == wanted:
            return
        if question := _question(sentence, number, source):
            yield question
            number += 1


def _question(sentence: Sentence, number: int, source: random.Random) -> Example | None:
    blanks = list(_blanks(sentence))
    if not blanks:
        return None
    kind, blank, alike = blanks[_below(len(blanks), source)]
    wrong = [word for word in alike if _fits(sentence, blank, word)]
    if len(wrong) < CANDIDATES - 1:
        return None
    chosen = [wrong.pop(_below(len(wrong), source)) for _ in range(CANDIDATES - 1)]
    answer = _below(CANDIDATES, source)
    chosen.insert(answer, sentence.words[blank])
    row = (0, CANDIDATES, blank, answer, f"{kind} {number}")
    trees = [(sentence.heads, sentence.relations)] * CANDIDATES
    candidates = [_replaced(sentence, blank, word) for word in chosen]
    return Example(candidates, {"completion": [row], "trees": trees})


def _blanks(sentence: Sentence) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """What may be left out: its kind, its position and words like it."""
    for position, (word, relation) in enumerate(zip(sentence.words, sentence.relations, strict=True)):
        if relation == "compound:prt":
            yield "particle", position, _PARTICLES
        elif word in _NAMES and word in sentence.words[:position]:
            yield "name", position, _NAMES[word]
        elif word in _VERBS and _subject_distance(sentence, position) >= _SUBJECT_DISTANCE:
            yield "verb", position, _VERBS[word]


def _subject_distance(sentence: Sentence, verb: int) -> int:
    pairs = enumerate(zip(sentence.heads, sentence.relations, strict=True))
    return max((verb - word for word, edge in pairs if edge == (verb, "nsubj")), default=0)


def _fits(sentence: Sentence, blank: int, word: str) -> bool:
    """Whether the word is about as frequent as the one left out, and impossible in its place."""
    counts = _training_counts()
    frequent, rare = sorted((counts[word], counts[sentence.words[blank]]), reverse=True)
    return frequent <= 2 * rare and log_probability(_replaced(sentence, blank, word)) == -inf


@cache
def _training_counts() -> Counter[str]:
    return Counter(word for sentence in sentences("train", _COUNTED) for word in sentence.words)


def _replaced(sentence: Sentence, position: int, word: str) -> tuple[str, ...]:
    return (*sentence.words[:position], word, *sentence.words[position + 1 :])


def _below(count: int, source: random.Random) -> int:
    """A number from 0 to count - 1; only source.random() is called, which Python keeps stable."""
    return int(source.random() * count)


def _words(groups: list[dict[str, Lexicon]]) -> tuple[str, ...]:
    return tuple(word for group in groups for lexicon in group.values() for word in lexicon.words)


def _alike() -> dict[str, tuple[str, ...]]:
    """Each verb form with those of the same build: as transitive with the same object, or as separable."""
    builds = [
        *(
            _words([group for (_, what), group in TRANSITIVE.items() if what == category])
            for category in INTRANSITIVE
        ),
        _words(list(INTRANSITIVE.values())),
        _words(list(SEPARABLE.values())),
        _words([REPORTING]),
    ]
    return {word: build for build in builds for word in build}


_VERBS = _alike()
_NAMES = {name: lexicon.words for lexicon in NAMES.values() for name in lexicon.words}
_PARTICLES = tuple(dict.fromkeys(PARTNERS[verb] for verb in OTHER_FORM if verb in PARTNERS))
