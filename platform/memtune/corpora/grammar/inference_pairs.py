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
    tree = _MainClause(sentence)
    if {_NEVER, "rarely"} & set(sentence.words) or tree.subject is None:
        return None
    nouns = {"nsubj": tree.subject, "obj": tree.object}
    modified = {role: noun for role, noun in nouns.items() if noun is not None and tree.find_modifiers(noun)}
    if not modified:
        return None
    role, noun = _choose_item(list(modified.items()), rng)
    modifier = sentence.collect_phrase(_choose_item(tree.find_modifiers(noun), rng))
    is_universal = tree.get_number(noun) == "singular" and rng.random() < 0.5
    cases = [
        (longer, negated)
        for longer in (True, False)
        for negated in ((False, False), (False, True), (True, False), (True, True))
        if _derive_label(role, is_universal, longer, negated) == label
    ]
    has_longer_premise, negated = _choose_item(cases, rng)
    words = dict(enumerate(sentence.words))
    if role == "obj":
        words[tree.find_determiner(tree.subject)] = _choose_item(
            _DEFINITE_DETERMINERS[tree.get_number(tree.subject)], rng
        )
    particular = _DEFINITE_DETERMINERS if role == "nsubj" else _EXISTENTIAL_DETERMINERS
    words[tree.find_determiner(noun)] = _choose_item(
        _UNIVERSAL_DETERMINERS if is_universal else particular[tree.get_number(noun)], rng
    )
    premise = _spell_sentence(tree, words, set() if has_longer_premise else modifier, negated[0])
    hypothesis = _spell_sentence(tree, words, modifier if has_longer_premise else set(), negated[1])
    if premise is None or hypothesis is None:
        return None
    return Pair(premise, hypothesis, label, role, is_universal, has_longer_premise, negated)


class _MainClause:
    """The main clause of a sentence: its verb, and the nouns that are its subject and object, if any."""

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence
        self.verb = sentence.heads.index(-1)
        self.subject = self._find_noun("nsubj")
        self.object = self._find_noun("obj")

    def find_children(self, position: int, *relations: str) -> list[int]:
        """Positions of the words that depend on a word by one of the relations."""
        children = self.sentence.children[position]
        return [word for word in children if self.sentence.relations[word] in relations]

    def find_modifiers(self, noun: int) -> list[int]:
        """Positions of the heads of a noun's modifiers."""
        return self.find_children(noun, *_MODIFIERS)

    def find_determiner(self, noun: int) -> int:
        """Position of the noun's determiner."""
        return self.find_children(noun, "det")[0]

    def get_number(self, noun: int) -> str:
        """Grammatical number of the noun."""
        return NUMBER_BY_NOUN[self.sentence.words[noun]]

    def _find_noun(self, relation: str) -> int | None:
        """The only dependent of the verb with this relation if it is a common noun, not a name; else None."""
        dependents = self.find_children(self.verb, relation)
        nouns = [word for word in dependents if self.sentence.words[word] in NUMBER_BY_NOUN]
        return nouns[0] if len(dependents) == 1 and nouns else None


def _spell_sentence(
    clause: _MainClause, words: dict[int, str], dropped: set[int], is_negated: bool
) -> tuple[str, ...] | None:
    """The words without the dropped ones and without side clauses; None if the grammar has no such sentence.

    In a negated sentence "never" replaces the verb's adverb or is added at the end.
    """
    side_words = {
        word
        for side_clause in clause.find_children(clause.verb, *_SIDE_CLAUSES)
        for word in clause.sentence.collect_phrase(side_clause)
    }
    kept = {position: word for position, word in words.items() if position not in dropped | side_words}
    adverbs = clause.find_children(clause.verb, "advmod")
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
