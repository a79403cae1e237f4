"""Inference with gold labels: pairs of sentences of the grammar that differ in a modifier and in "never".

Both sentences of a pair say the same of the same subject, but for one modifier of the subject or the object
(an adjective, a prepositional phrase or a relative clause), which one of them has and the other lacks, and
for a "never" at the end, which each may have. The label follows from what the words mean:

- The subject is one that is known (the, this, these), or it is every one of a kind (every, each); the object
  is any one or some of a kind (one, some), or every one.
- A known subject stays the same one when less is said of it. What is said of every one holds for those of
  whom more is said, and there are some. What is done to some with a property is done to some of the kind.
- "never" denies what the sentence says of its subject, the object included, and leaves the subject alone.

So the label depends on which noun the modifier belongs to, on that noun's determiner, on who has the modifier
and on who has the "never".
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from memtune.corpora.annotations import INFERENCES
from memtune.corpora.examples import Example
from memtune.corpora.grammar import Sentence, log_probability, stream
from memtune.corpora.grammar.derivation import read
from memtune.corpora.grammar.lexicon import NOUNS

__all__ = ["SPLIT_SIZES", "Pair", "examples", "pairs"]

SPLIT_SIZES = {"train": 12_000, "valid": 1_200, "test": 1_200}
"""Pairs of each split."""

T = TypeVar("T")

_SEEDS = {"train": 20_160_131, "valid": 20_160_132, "test": 20_160_133}
_MODIFIERS = ("amod", "nmod", "acl:relcl")
_SIDE_CLAUSES = ("advcl", "parataxis")
_NEVER = "never"
_EVERY = ("every", "each")
_KNOWN = {"singular": ("the", "this"), "plural": ("the", "these")}
_SOME = {"singular": ("one",), "plural": ("some",)}
_NUMBERS = {
    noun: number for forms in NOUNS.values() for number, lexicon in forms.items() for noun in lexicon.words
}


@dataclass(frozen=True)
class Pair:
    """Premise, hypothesis and label, and what the label follows from.

    role: whether the modifier is the subject's or the object's; every: whether that noun is every one of its
    kind; longer: whether the premise has the modifier; denied: whether premise and hypothesis have "never".
    """

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    role: str
    every: bool
    longer: bool
    denied: tuple[bool, bool]

    @property
    def label(self) -> str:
        """What the premise says of the hypothesis."""
        return _label(self.role, self.every, self.longer, self.denied)


def _label(role: str, every: bool, longer: bool, denied: tuple[bool, bool]) -> str:
    """Of a longer and a shorter sentence one decides about the other, the other leaves it open."""
    premise_denied, hypothesis_denied = denied
    opposed = premise_denied != hypothesis_denied
    decided = longer != every
    if role == "obj":
        decided = decided != premise_denied  # what is denied says more the less its words say
    elif every and opposed:
        decided = True
    if not decided:
        return "neutral"
    return "contradiction" if opposed else "entailment"


def pairs(split: str, count: int | None = None) -> Iterator[Pair]:
    """The first `count` pairs of a split, labels in turn."""
    source = random.Random(_SEEDS[split])
    wanted = SPLIT_SIZES[split] if count is None else count
    found = 0
    for sentence in stream(_SEEDS[split]):
        if found == wanted:
            return
        if pair := _pair(sentence, INFERENCES[found % len(INFERENCES)], source):
            yield pair
            found += 1


def examples(split: str, count: int | None = None) -> Iterator[Example]:
    """The pairs of a split as examples."""
    for pair in pairs(split, count):
        label = INFERENCES.index(pair.label)
        yield Example([pair.premise, pair.hypothesis], {"inference": [(0, 1, label)]})


def _pair(sentence: Sentence, label: str, source: random.Random) -> Pair | None:
    """A pair with the label, or None where the sentence has no such noun or gives no such sentences."""
    tree = _Tree(sentence)
    if {_NEVER, "rarely"} & set(sentence.words) or tree.subject is None:
        return None
    nouns = {"nsubj": tree.subject, "obj": tree.object}
    modified = {role: noun for role, noun in nouns.items() if noun is not None and tree.modifiers(noun)}
    if not modified:
        return None
    role, noun = _one_of(list(modified.items()), source)
    modifier = tree.below(_one_of(tree.modifiers(noun), source))
    every = tree.number(noun) == "singular" and source.random() < 0.5
    cases = [
        (longer, denied)
        for longer in (True, False)
        for denied in ((False, False), (False, True), (True, False), (True, True))
        if _label(role, every, longer, denied) == label
    ]
    longer, denied = _one_of(cases, source)
    words = dict(enumerate(sentence.words))
    if role == "obj":
        words[tree.determiner(tree.subject)] = _one_of(_KNOWN[tree.number(tree.subject)], source)
    known = _KNOWN if role == "nsubj" else _SOME
    words[tree.determiner(noun)] = _one_of(_EVERY if every else known[tree.number(noun)], source)
    premise = _spelled(tree, words, set() if longer else modifier, denied[0])
    hypothesis = _spelled(tree, words, modifier if longer else set(), denied[1])
    if premise is None or hypothesis is None:
        return None
    return Pair(premise, hypothesis, role, every, longer, denied)


class _Tree:
    """A sentence's main clause: its verb, and the nouns that are its subject and object."""

    def __init__(self, sentence: Sentence) -> None:
        self._sentence = sentence
        self.verb = sentence.heads.index(-1)
        self.subject = self._noun("nsubj")
        self.object = self._noun("obj")

    def children(self, position: int, *relations: str) -> list[int]:
        """Words that depend on a word by one of the relations."""
        edges = enumerate(zip(self._sentence.heads, self._sentence.relations, strict=True))
        return [word for word, (head, relation) in edges if head == position and relation in relations]

    def modifiers(self, noun: int) -> list[int]:
        """Heads of what modifies a noun."""
        return self.children(noun, *_MODIFIERS)

    def determiner(self, noun: int) -> int:
        """The noun's determiner."""
        return self.children(noun, "det")[0]

    def number(self, noun: int) -> str:
        """The noun's number."""
        return _NUMBERS[self._sentence.words[noun]]

    def below(self, position: int) -> set[int]:
        """A word and all that depends on it, near and far."""
        heads = self._sentence.heads
        found = {position}
        while new := {word for word, head in enumerate(heads) if head in found} - found:
            found |= new
        return found

    def _noun(self, relation: str) -> int | None:
        """The one noun, not a name, that depends on the verb so."""
        nouns = self.children(self.verb, relation)
        known = [noun for noun in nouns if self._sentence.words[noun] in _NUMBERS]
        return known[0] if len(nouns) == 1 and known else None


def _spelled(tree: _Tree, words: dict[int, str], dropped: set[int], denied: bool) -> tuple[str, ...] | None:
    """The words but those dropped and side clauses, with "never" for the verb's adverb if denied; or None."""
    aside = {word for clause in tree.children(tree.verb, *_SIDE_CLAUSES) for word in tree.below(clause)}
    kept = {position: word for position, word in words.items() if position not in dropped | aside}
    adverbs = tree.children(tree.verb, "advmod")
    if denied and adverbs:
        kept[adverbs[0]] = _NEVER
    spelled = (*kept.values(), *([_NEVER] if denied and not adverbs else []))
    if log_probability(spelled) == -inf or (denied and not _denies_the_verb(spelled)):
        return None
    return spelled


def _denies_the_verb(words: tuple[str, ...]) -> bool:
    derivation = read(words)
    assert derivation is not None
    heads, _ = derivation.dependencies()
    return heads[words.index(_NEVER)] == heads.index(-1)


def _one_of(items: Sequence[T], source: random.Random) -> T:
    """One of the items; only source.random() is called, which Python keeps stable."""
    return items[int(source.random() * len(items))]
