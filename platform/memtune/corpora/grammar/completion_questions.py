"""Sentence completion with gold answers that depend on distant words only.

The blank is a repeated name, the particle of a separable verb, or a verb at least four positions after its
subject. The four distractors are words of the same kind whose training frequency differs by a factor of at
most two, and with which the sentence has probability zero: other names of the same sex, other particles,
verbs with the same complements that require another number or category of subject. The sentence's probability
therefore decides each question, and the words next to the blank do not. All candidates have the dependency
tree of the right one.
"""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import inf

from memtune.corpora.grammar import lexicon
from memtune.corpora.grammar.derivation import draw_below
from memtune.corpora.grammar.embedded_corpus import Sentence, generate_sentences, log_probability
from memtune.corpora.text_blocks import Example

SPLIT_SIZES = {"valid": 1_000, "test": 1_000}
"""Number of questions in each split."""

CANDIDATE_COUNT = 5
SEEDS = {"valid": 20_160_112, "test": 20_160_113}
_COUNTED_SENTENCES = 10_000
_MIN_SUBJECT_DISTANCE_WORDS = 4


def make_example(sentence: Sentence, number: int, rng: random.Random) -> Example | None:
    """A question about the sentence, or None if it has no blank or too few distractors.

    The name of a question is the kind of its blank and its number: "name 0", "verb 1", ...
    """
    blanks = list(_find_blanks(sentence))
    if not blanks:
        return None
    kind, blank, similar = blanks[draw_below(len(blanks), rng)]
    distractors = [word for word in similar if _is_distractor(sentence, blank, word)]
    if len(distractors) < CANDIDATE_COUNT - 1:
        return None
    chosen = [distractors.pop(draw_below(len(distractors), rng)) for _ in range(CANDIDATE_COUNT - 1)]
    answer = draw_below(CANDIDATE_COUNT, rng)
    chosen.insert(answer, sentence.words[blank])
    row = (0, CANDIDATE_COUNT, blank, answer, f"{kind} {number}")
    trees = [(sentence.heads, sentence.relations)] * CANDIDATE_COUNT
    candidates = [_replace_word(sentence, blank, word) for word in chosen]
    return Example(candidates, {"completion": [row], "trees": trees})


def _find_blanks(sentence: Sentence) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Yields the kind of each possible blank, its position, and the words that may replace its word."""
    for position, (word, relation) in enumerate(zip(sentence.words, sentence.relations, strict=True)):
        if relation == "compound:prt":
            yield "particle", position, _PARTICLES
        elif word in _SIMILAR_NAMES and word in sentence.words[:position]:
            yield "name", position, _SIMILAR_NAMES[word]
        elif word in _SIMILAR_VERBS and _is_far_from_subject(sentence, position):
            yield "verb", position, _SIMILAR_VERBS[word]


def _is_far_from_subject(sentence: Sentence, verb: int) -> bool:
    """Whether a verb has a subject, and at least four words before it."""
    edges = enumerate(zip(sentence.heads, sentence.relations, strict=True))
    return any(verb - word >= _MIN_SUBJECT_DISTANCE_WORDS for word, edge in edges if edge == (verb, "nsubj"))


def _is_distractor(sentence: Sentence, blank: int, word: str) -> bool:
    """Whether the word is about as frequent as the answer and makes the sentence impossible."""
    counts = _count_training_words()
    higher, lower = sorted((counts[word], counts[sentence.words[blank]]), reverse=True)
    return higher <= 2 * lower and log_probability(_replace_word(sentence, blank, word)) == -inf


@cache
def _count_training_words() -> Counter[str]:
    return Counter(
        word for sentence in generate_sentences("train", _COUNTED_SENTENCES) for word in sentence.words
    )


def _replace_word(sentence: Sentence, position: int, word: str) -> tuple[str, ...]:
    return (*sentence.words[:position], word, *sentence.words[position + 1 :])


def _group_verbs() -> dict[str, tuple[str, ...]]:
    """Maps each verb form to all forms with the same complements."""
    transitive = [
        [forms for (_, object_), forms in lexicon.TRANSITIVE.items() if object_ == category]
        for category in lexicon.CATEGORIES
    ]
    groups = [*transitive, lexicon.INTRANSITIVE.values(), lexicon.SEPARABLE.values(), [lexicon.REPORTING]]
    similar: dict[str, tuple[str, ...]] = {}
    for group in groups:
        words = tuple(word for forms in group for each in forms.values() for word in each.words)
        similar |= dict.fromkeys(words, words)
    return similar


_SIMILAR_VERBS = _group_verbs()
_SIMILAR_NAMES = {name: each.words for each in lexicon.NAMES.values() for name in each.words}
_PARTICLES = tuple(
    dict.fromkeys(lexicon.PARTNERS[verb] for verb in lexicon.OTHER_FORM if verb in lexicon.PARTNERS)
)
