"""Sentiment with gold labels: phrases of the grammar's sentences, valued by their words and turned by others.

A word is good (1), bad (-1) or neither. A phrase is a word with all that depends on it, and is worth the sum
of its own word and of the phrases below it; the sum changes its sign once for each

    although, unless, until          that opens its clause,
    never, rarely                    that goes with its verb, which may be its last word,

and what somebody doubts or suspects is worth the opposite. The label is 2 + the value, kept between 0 and 4.
So the label of a long phrase hangs on words at both of its ends.
"""

from collections.abc import Iterator
from itertools import islice

from memtune.corpora.annotations import SENTIMENTS
from memtune.corpora.examples import Example
from memtune.corpora.grammar import Sentence, stream

__all__ = ["SPLIT_SIZES", "labelled", "phrases", "word_value"]

SPLIT_SIZES = {"train": 10_000, "valid": 1_000, "test": 1_000}
"""Sentences of each split."""

_SEEDS = {"train": 20_160_121, "valid": 20_160_122, "test": 20_160_123}
_NEUTRAL = 2

_GOOD = frozenset(
    (
        *("young", "new", "strong", "gentle", "clever", "proud", "modern", "elegant", "shiny", "splendid"),
        *("famous", "gladly", "patiently", "soundly", "visit", "invite", "admire", "trust", "feed", "adopt"),
        *("groom", "repair", "obey", "guard", "defend", "serve", "heal", "inspire", "shelter", "delight"),
        *(
            "sustain",
            "shade",
            "sing",
            "laugh",
            "dream",
            "smile",
            "grow",
            "bloom",
            "praise",
            "thank",
            "forgive",
        ),
    )
)
_BAD = frozenset(
    (
        *("old", "strange", "narrow", "loud", "lonely", "dusty", "noisy", "clumsy", "peculiar"),
        *("fragile", "suddenly", "secretly", "loudly", "hunt", "bite", "stalk", "ignore", "annoy", "deafen"),
        *(
            "scare",
            "disturb",
            "startle",
            "cut",
            "flatten",
            "uproot",
            "poison",
            "strangle",
            "conceal",
            "argue",
        ),
        *("howl", "rattle", "stall", "rust", "overheat", "wither", "decay", "warn"),
    )
)
_TURNING = frozenset(("although", "unless", "until", "never", "rarely"))
_OPPOSING = frozenset(("doubt", "doubts", "suspect", "suspects"))


def labelled(split: str, count: int | None = None) -> Iterator[Example]:
    """The first `count` sentences of a split with the labels of all their phrases."""
    drawn = islice(stream(_SEEDS[split]), SPLIT_SIZES[split] if count is None else count)
    for sentence in drawn:
        yield Example([sentence.words], {"sentiment": [(0, *phrase) for phrase in phrases(sentence)]})


def phrases(sentence: Sentence) -> Iterator[tuple[int, int, int, bool]]:
    """(start, stop, label, is it the sentence) of each phrase without a gap: the sentence, others, words."""
    values = _values(sentence)
    spans = _spans(sentence)
    root = sentence.heads.index(-1)
    yield 0, len(sentence.words), _label(values[root]), True
    for position, (start, stop, size) in enumerate(spans):
        if 1 < size == stop - start < len(sentence.words):
            yield start, stop, _label(values[position]), False
    for position, word in enumerate(sentence.words):
        yield position, position + 1, _label(word_value(word)), False


def word_value(word: str) -> int:
    """1 for a good word, -1 for a bad one, whatever its form, and 0 for others."""
    forms = {word, word.removesuffix("s")}
    return bool(forms & _GOOD) - bool(forms & _BAD)


def _label(value: int) -> int:
    return min(max(_NEUTRAL + value, 0), len(SENTIMENTS) - 1)


def _values(sentence: Sentence) -> list[int]:
    """The value of the phrase of each word."""
    below = _below(sentence)

    def value(position: int) -> int:
        total = word_value(sentence.words[position])
        for child in below[position]:
            opposed = sentence.relations[child] == "ccomp" and sentence.words[position] in _OPPOSING
            total += -value(child) if opposed else value(child)
        turns = sum(sentence.words[child] in _TURNING for child in below[position])
        return -total if turns % 2 else total

    return [value(position) for position in range(len(sentence.words))]


def _spans(sentence: Sentence) -> list[tuple[int, int, int]]:
    """First word, word after the last, and number of words of each word's phrase."""
    below = _below(sentence)

    def members(position: int) -> list[int]:
        return [position, *(word for child in below[position] for word in members(child))]

    phrases = [members(position) for position in range(len(sentence.words))]
    return [(min(phrase), max(phrase) + 1, len(phrase)) for phrase in phrases]


def _below(sentence: Sentence) -> list[list[int]]:
    """The words that depend on each word."""
    below: list[list[int]] = [[] for _ in sentence.words]
    for position, head in enumerate(sentence.heads):
        if head >= 0:
            below[head].append(position)
    return below
