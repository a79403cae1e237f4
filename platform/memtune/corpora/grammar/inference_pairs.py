"""Inference with gold labels: pairs of sentences of the grammar that differ in a modifier and in "never".

The sentences of a pair are equal except for two differences. One of them has a modifier of the subject or the
object (an adjective, a prepositional phrase or a relative clause) and the other lacks it. Each may have a
"never" at the end. The label follows from the meaning of the words:

- The subject is definite (the, this, these) or universal (every, each). The object is existential (one, some)
  or universal.
- A definite subject keeps its referent without the modifier. A statement about every member of a kind holds
  for the members with a property, and such members exist. A statement about some members with a property
  holds for some members of the kind.
- "never" negates the predicate, the object included, and not the subject.

The label therefore depends on the noun that the modifier belongs to, on the noun's determiner, on which
sentence has the modifier, and on which sentences have the "never".
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from memtune.corpora.grammar.derivation import draw_below, parse_words
from memtune.corpora.grammar.embedded_corpus import Sentence, log_probability
from memtune.corpora.grammar.lexicon import NUMBER_BY_NOUN
from memtune.corpora.store.annotations import INFERENCE_LABELS
from memtune.corpora.text_blocks import Example

SPLIT_SIZES = {"train": 12_000, "valid": 1_200, "test": 1_200}
"""Number of pairs in each split."""

T = TypeVar("T")

SEEDS = {"train": 20_160_131, "valid": 20_160_132, "test": 20_160_133}
_MODIFIERS = ("amod", "nmod", "acl:relcl")
_SIDE_CLAUSES = ("advcl", "parataxis")
_NEVER = "never"
_UNIVERSAL_DETERMINERS = ("every", "each")
_DEFINITE_DETERMINERS = {"singular": ("the", "this"), "plural": ("the", "these")}
_EXISTENTIAL_DETERMINERS = {"singular": ("one",), "plural": ("some",)}


@dataclass(frozen=True)
class Pair:
    """A premise, a hypothesis, their label, and the features that determine it.

    label: one of INFERENCE_LABELS. role: "nsubj" or "obj", the noun that the modifier belongs to.
    is_universal: whether that noun has a universal determiner. has_longer_premise: whether the premise has
    the modifier. negated: whether the premise and whether the hypothesis have "never".
    """

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    label: str
    role: str
    is_universal: bool
    has_longer_premise: bool
    negated: tuple[bool, bool]


def _derive_label(role: str, is_universal: bool, has_longer_premise: bool, negated: tuple[bool, bool]) -> str:
    """The label of a pair with these features (see `Pair`).

    Without negation the longer sentence decides the shorter one for a definite or existential noun, and the
    shorter decides the longer for a universal noun. The opposite direction is neutral.
    """
    premise_negated, hypothesis_negated = negated
    opposed = premise_negated != hypothesis_negated
    decided = has_longer_premise != is_universal
    if role == "obj":
        decided = decided != premise_negated  # negation reverses the direction of entailment
    elif is_universal and opposed:
        decided = True  # members with the property exist, so both directions contradict
    if not decided:
        return "neutral"
    return "contradiction" if opposed else "entailment"


def make_example(sentence: Sentence, number: int, rng: random.Random) -> Example | None:
    """The pair of `make_pair` as an example."""
    pair = make_pair(sentence, number, rng)
    if pair is None:
        return None
    label = INFERENCE_LABELS.index(pair.label)
    return Example([pair.premise, pair.hypothesis], {"inference": [(0, 1, label)]})


def make_pair(sentence: Sentence, number: int, rng: random.Random) -> Pair | None:
    """A pair with the label of its number; None without a modified noun or if the grammar lacks a variant."""
    label = INFERENCE_LABELS[number % len(INFERENCE_LABELS)]
    nouns = {role: _find_noun(sentence, role) for role in ("nsubj", "obj")}
    subject = nouns["nsubj"]
    if {_NEVER, "rarely"} & set(sentence.words) or subject is None:
        return None
    modifiers = {
        (role, noun): heads
        for role, noun in nouns.items()
        if noun is not None and (heads := _find_children(sentence, noun, *_MODIFIERS))
    }
    if not modifiers:
        return None
    role, noun = _choose_item(list(modifiers), rng)
    modifier = sentence.collect_phrase(_choose_item(modifiers[role, noun], rng))
    grammatical_number = NUMBER_BY_NOUN[sentence.words[noun]]
    is_universal = grammatical_number == "singular" and rng.random() < 0.5
    cases = [
        (longer, negated)
        for longer in (True, False)
        for negated in ((False, False), (False, True), (True, False), (True, True))
        if _derive_label(role, is_universal, longer, negated) == label
    ]
    has_longer_premise, negated = _choose_item(cases, rng)
    particular = _DEFINITE_DETERMINERS if role == "nsubj" else _EXISTENTIAL_DETERMINERS
    determiners = [(noun, _UNIVERSAL_DETERMINERS if is_universal else particular[grammatical_number])]
    if role == "obj":
        determiners.insert(0, (subject, _DEFINITE_DETERMINERS[NUMBER_BY_NOUN[sentence.words[subject]]]))
    words = dict(enumerate(sentence.words))
    for place, choices in determiners:
        words[_find_children(sentence, place, "det")[0]] = _choose_item(choices, rng)
    premise = _spell_sentence(sentence, words, set() if has_longer_premise else modifier, negated[0])
    hypothesis = _spell_sentence(sentence, words, modifier if has_longer_premise else set(), negated[1])
    if premise is None or hypothesis is None:
        return None
    return Pair(premise, hypothesis, label, role, is_universal, has_longer_premise, negated)


def _find_children(sentence: Sentence, position: int, *relations: str) -> list[int]:
    """Positions of the words that depend on a word by one of the relations."""
    return [word for word in sentence.children[position] if sentence.relations[word] in relations]


def _find_noun(sentence: Sentence, relation: str) -> int | None:
    """The only dependent of the main verb with this relation; None for several, and for a name."""
    dependents = _find_children(sentence, sentence.heads.index(-1), relation)
    nouns = [word for word in dependents if sentence.words[word] in NUMBER_BY_NOUN]
    return nouns[0] if len(dependents) == 1 and nouns else None


def _spell_sentence(
    sentence: Sentence, words: dict[int, str], dropped: set[int], is_negated: bool
) -> tuple[str, ...] | None:
    """The words without the dropped ones and without side clauses; None if the grammar has no such sentence.

    In a negated sentence "never" replaces the verb's adverb or is added at the end.
    """
    verb = sentence.heads.index(-1)
    side_clauses = _find_children(sentence, verb, *_SIDE_CLAUSES)
    dropped = dropped.union(*map(sentence.collect_phrase, side_clauses))
    kept = {position: word for position, word in words.items() if position not in dropped}
    adverbs = _find_children(sentence, verb, "advmod")
    if is_negated and adverbs:
        kept[adverbs[0]] = _NEVER
    spelled = (*kept.values(), *([_NEVER] if is_negated and not adverbs else []))
    if log_probability(spelled) == -inf:
        return None
    if is_negated:
        derivation = parse_words(spelled)
        assert derivation is not None
        heads, _ = derivation.dependencies()
        if heads[spelled.index(_NEVER)] != heads.index(-1):
            return None  # "never" belongs to another word than the verb
    return spelled


def _choose_item(items: Sequence[T], rng: random.Random) -> T:
    return items[draw_below(len(items), rng)]
