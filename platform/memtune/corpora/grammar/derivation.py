"""Deriving sentences of the embedded corpus: drawing, reading and continuing them.

A sentence has at most LONGEST words. `slack` is what is left of that when every symbol still to be
rewritten takes its shortest form; a production costs its shortest form less that of its symbol, and is only
offered where the slack pays for it, the others sharing its probability. So no derivation is ever cut or
rejected, and the probabilities of all sentences sum to one.

Probabilities use only sums, products and quotients, drawing only comparisons: the same words on every
machine. Logarithms are natural.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from math import fsum, inf, log

from memtune.corpora.grammar.lexicon import PARTNERS, Lexicon
from memtune.corpora.grammar.rules import PARTNER, SENTENCE, Production, Symbol, productions

__all__ = ["LONGEST", "SHORTEST", "Choice", "Derivation", "State", "draw", "read", "state_of"]

LONGEST = 40
"""Words of the longest sentence; the sign of the sentence's end is not counted."""


@dataclass(eq=False)
class Frame:
    """A phrase: where its head stands, once known, and how it depends on the phrase around it."""

    around: "Frame | None"
    relation: str
    head: int = -1


@dataclass
class Derivation:
    """The words so far, what is still to be said (last first), and what each word depends on."""

    words: list[str] = field(default_factory=list)
    log_probability: float = 0.0
    slack: int = 0
    pending: list[tuple["State", Frame]] = field(default_factory=list)
    placed: list[tuple[Frame, str]] = field(default_factory=list)

    @classmethod
    def start(cls) -> "Derivation":
        """Nothing said, a whole sentence to say."""
        state = state_of(SENTENCE)
        return cls(slack=LONGEST - state.shortest, pending=[(state, Frame(None, "root"))])

    def step(self, choice: "Choice", word: str, log_probability: float) -> None:
        """Rewrites the last pending symbol by one of its choices."""
        self.log_probability += log_probability
        self.slack -= choice.cost
        _, frame = self.pending.pop()
        if choice.words is None:
            return
        for relation in choice.enter:
            frame = Frame(frame, relation)
        if not choice.relation:
            frame.head = len(self.words)
        self.placed.append((frame, choice.relation))
        self.words.append(word)
        self.pending.extend((state, _climb(frame, up)) for state, up in choice.after(word))

    def end_log_probability(self) -> float:
        """Log probability that nothing more is said, -inf where something must be."""
        total = 0.0
        for state, _ in reversed(self.pending):
            offer = state.offer(self.slack)
            if "" not in offer.by_word:
                return -inf
            total += offer.logs[offer.by_word[""]]
        return total

    def next_words(self) -> dict[str, float]:
        """Probability of each word that may come next; "" is the end of the sentence."""
        words: dict[str, float] = {}
        absent = 1.0
        for state, _ in reversed(self.pending):
            offer = state.offer(self.slack)
            for choice, share in zip(offer.choices, offer.probabilities, strict=True):
                words |= {word: absent * share * p for word, p in choice.word_probabilities()}
            if "" not in offer.by_word:
                return words
            absent *= offer.probabilities[offer.by_word[""]]
        return {**words, "": absent}

    def dependencies(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Position of every word's head (-1 for the root's), and its relation to it."""
        heads, relations = [], []
        for frame, relation in self.placed:
            governor = frame if relation else frame.around
            heads.append(governor.head if governor else -1)
            relations.append(relation or frame.relation)
        return tuple(heads), tuple(relations)


def _climb(frame: Frame, up: int) -> Frame:
    for _ in range(up):
        assert frame.around is not None
        frame = frame.around
    return frame


class Choice:
    """A production made ready: its cost in slack, and the states it leaves, last first."""

    def __init__(self, production: Production, shortest: int) -> None:
        self.words, self.relation, self.enter = production.words, production.relation, production.enter
        self.weight = production.weight
        self.cost = _shortest_production(production) - shortest
        self.then = tuple(symbol for symbol, _ in production.then)
        self._last_first = tuple(reversed(production.then))
        self._partnered = any(symbol.word == PARTNER for symbol in self.then)
        self._after: dict[str, tuple[tuple[State, int], ...]] = {}

    def after(self, word: str) -> tuple[tuple["State", int], ...]:
        """The states left when `word` was said, and how many frames up each belongs."""
        key = word if self._partnered else ""
        if key not in self._after:
            self._after[key] = tuple((state_of(_answer(symbol, word)), up) for symbol, up in self._last_first)
        return self._after[key]

    def word_probabilities(self) -> Iterator[tuple[str, float]]:
        """Every word of the choice and its probability, given the choice."""
        if self.words:
            yield from zip(self.words.words, self.words.probabilities, strict=True)

    @cached_property
    def word_logs(self) -> dict[str, float]:
        """Log probability of every word, given the choice; where there are none, of the empty word."""
        return {word: log(p) for word, p in self.word_probabilities()} or {"": 0.0}


@dataclass(frozen=True)
class Offer:
    """The choices a slack pays for."""

    choices: tuple[Choice, ...]
    probabilities: tuple[float, ...]
    cumulative: tuple[float, ...]
    logs: tuple[float, ...]
    by_word: Mapping[str, int]


class State:
    """A symbol made ready: what it offers at each slack."""

    def __init__(self, symbol: Symbol) -> None:
        self.shortest = _shortest(symbol)
        self.choices = tuple(Choice(production, self.shortest) for production in productions(symbol))
        self._dearest = max(choice.cost for choice in self.choices)
        self._offers: dict[int, Offer] = {}

    def offer(self, slack: int) -> Offer:
        """The choices there are at this slack."""
        slack = min(slack, self._dearest)
        if slack not in self._offers:
            self._offers[slack] = _offer([choice for choice in self.choices if choice.cost <= slack])
        return self._offers[slack]


def _offer(choices: list[Choice]) -> Offer:
    total = fsum(choice.weight for choice in choices)
    probabilities = tuple(choice.weight / total for choice in choices)
    by_word = {word: index for index, choice in enumerate(choices) for word in choice.word_logs}
    cumulative = (*accumulate(probabilities[:-1]), 1.0)
    return Offer(tuple(choices), probabilities, cumulative, tuple(map(log, probabilities)), by_word)


def _answer(symbol: Symbol, word: str) -> Symbol:
    return symbol._replace(word=PARTNERS[word]) if symbol.word == PARTNER else symbol


@cache
def state_of(symbol: Symbol) -> State:
    """The state of a symbol: one object for equal symbols."""
    return State(symbol)


@cache
def _shortest(symbol: Symbol) -> int:
    return min(_shortest_production(production) for production in productions(symbol))


def _shortest_production(production: Production) -> int:
    return (production.words is not None) + sum(_shortest(symbol) for symbol, _ in production.then)


SHORTEST = _shortest(SENTENCE)
"""Words of the shortest sentence."""


def draw(source: random.Random) -> Derivation:
    """One sentence. Only source.random() is called, whose sequence Python keeps stable for a seed."""
    derivation = Derivation.start()
    while derivation.pending:
        offer = derivation.pending[-1][0].offer(derivation.slack)
        index = bisect_right(offer.cumulative, source.random())
        choice = offer.choices[index]
        word = _draw_word(choice.words, source) if choice.words else ""
        derivation.step(choice, word, offer.logs[index] + choice.word_logs[word])
    return derivation


def _draw_word(words: Lexicon, source: random.Random) -> str:
    if len(words.words) == 1:
        return words.words[0]
    return words.words[bisect_right(words.cumulative, source.random())]


def read(words: Sequence[str]) -> Derivation | None:
    """The derivation of the words, which may be a beginning only; None if no sentence begins with them."""
    derivation = Derivation.start()
    for word in words:
        if not _read_word(derivation, word):
            return None
    return derivation


def _read_word(derivation: Derivation, word: str) -> bool:
    while derivation.pending:
        offer = derivation.pending[-1][0].offer(derivation.slack)
        index = offer.by_word.get(word, offer.by_word.get(""))
        if index is None:
            return False
        choice = offer.choices[index]
        said = word if choice.words else ""
        derivation.step(choice, said, offer.logs[index] + choice.word_logs[said])
        if said:
            return True
    return False
