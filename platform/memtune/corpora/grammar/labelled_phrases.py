"""Sentiment with gold labels: phrases of the grammar's sentences, scored by their words and negations.

A word is positive (1), negative (-1) or neutral (0). A phrase is a word with all its descendants in the
dependency tree. The score of a phrase is the score of its word plus the scores of its child phrases. The sum
changes its sign once for each of these words that depends on the phrase's word:

    although, unless, until          open the clause,
    never, rarely                    modify the verb and may be the last word of the phrase.

The clause after "doubts" or "suspects" contributes the negative of its score. The label is the score plus
2, clipped to 0 to 4. The label of a long phrase therefore depends on words at both of its ends.
"""

import random
from collections.abc import Iterator

from memtune.corpora.grammar.embedded_corpus import Sentence
from memtune.corpora.store.annotations import SENTIMENT_LABELS
from memtune.corpora.text_blocks import Example

SPLIT_SIZES = {"train": 10_000, "valid": 1_000, "test": 1_000}
"""Number of sentences in each split."""

SEEDS = {"train": 20_160_121, "valid": 20_160_122, "test": 20_160_123}
_NEUTRAL_LABEL = 2

_POSITIVE = (
    "young new strong gentle clever proud modern elegant shiny splendid famous gladly patiently soundly "
    "visit invite admire trust feed adopt groom repair obey guard defend serve heal inspire shelter "
    "delight sustain shade sing laugh dream smile grow bloom praise thank forgive"
)
_NEGATIVE = (
    "old strange narrow loud lonely dusty noisy clumsy peculiar fragile suddenly secretly loudly hunt "
    "bite stalk ignore annoy deafen scare disturb startle cut flatten uproot poison strangle conceal "
    "argue howl rattle stall rust overheat wither decay warn"
)
_POSITIVE_WORDS, _NEGATIVE_WORDS = frozenset(_POSITIVE.split()), frozenset(_NEGATIVE.split())
_NEGATING_WORDS = frozenset(("although", "unless", "until", "never", "rarely"))
_OPPOSING_VERBS = frozenset(("doubt", "doubts", "suspect", "suspects"))


def make_example(sentence: Sentence, number: int, rng: random.Random) -> Example:
    """The sentence with the labels of all its phrases."""
    return Example([sentence.words], {"sentiment": [(0, *phrase) for phrase in label_phrases(sentence)]})


def label_phrases(sentence: Sentence) -> Iterator[tuple[int, int, int, bool]]:
    """Yields (start, stop, label, is_root) of contiguous phrases: the sentence, then phrases, then words."""
    scores = _score_phrases(sentence)
    root = sentence.heads.index(-1)
    yield 0, len(sentence.words), _clip_label(scores[root]), True
    for position in range(len(sentence.words)):
        phrase = sentence.collect_phrase(position)
        start, stop = min(phrase), max(phrase) + 1
        if 1 < len(phrase) == stop - start < len(sentence.words):
            yield start, stop, _clip_label(scores[position]), False
    for position, word in enumerate(sentence.words):
        yield position, position + 1, _clip_label(score_word(word)), False


def score_word(word: str) -> int:
    """1 for a positive word, -1 for a negative one, 0 for others; a final "s" is ignored."""
    forms = {word, word.removesuffix("s")}
    return bool(forms & _POSITIVE_WORDS) - bool(forms & _NEGATIVE_WORDS)


def _clip_label(score: int) -> int:
    return min(max(_NEUTRAL_LABEL + score, 0), len(SENTIMENT_LABELS) - 1)


def _score_phrases(sentence: Sentence) -> list[int]:
    """The score of the phrase of each word."""

    def score(position: int) -> int:
        total, children = score_word(sentence.words[position]), sentence.children[position]
        for child in children:
            opposed = sentence.relations[child] == "ccomp" and sentence.words[position] in _OPPOSING_VERBS
            total += -score(child) if opposed else score(child)
        negations = sum(sentence.words[child] in _NEGATING_WORDS for child in children)
        return -total if negations % 2 else total

    return [score(position) for position in range(len(sentence.words))]
