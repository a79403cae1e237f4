"""Derivations of the embedded grammar: sample sentences, parse words, and predict the next word.

A sentence has at most LONGEST_SENTENCE_WORDS words. The slack of a derivation is the number of words left
over if every pending symbol takes its shortest form. The cost of a production is the length of its shortest
form minus that of its symbol. A production is available only if its cost is at most the slack; the available
productions are renormalised. No derivation is therefore cut or rejected, and the probabilities of all
sentences sum to one.

Probabilities use only sums, products and quotients, and sampling only comparisons, so every machine gives the
same words. Logarithms are natural.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from math import fsum, inf, log

from memtune.corpora.grammar.lexicon import PARTNERS
from memtune.corpora.grammar.productions import PARTNER, SENTENCE, Production, Symbol, list_productions

LONGEST_SENTENCE_WORDS = 40
"""Number of words of the longest sentence, without the sentence end."""


@dataclass(eq=False)
class Frame:
    """A phrase: the position of its head (-1 until known) and its relation to the parent phrase."""

    parent: "Frame | None"
    relation: str
    head: int = -1


@dataclass
class Derivation:
    """A partial derivation: words so far, pending symbols (the next one is last), placement of each word."""

    words: list[str] = field(default_factory=list)
    log_probability: float = 0.0
    slack: int = 0
    pending: list[tuple["SymbolExpansion", Frame]] = field(default_factory=list)
    placements: list[tuple[Frame, str]] = field(default_factory=list)

    @classmethod
    def start(cls) -> "Derivation":
        """The derivation without words and with the sentence symbol pending."""
        state = expand_symbol(SENTENCE)
        return cls(slack=LONGEST_SENTENCE_WORDS - state.shortest, pending=[(state, Frame(None, "root"))])

    def step(self, choice: "Choice", word: str, log_probability: float) -> None:
        """Rewrites the next pending symbol by one of its choices."""
        self.log_probability += log_probability
        self.slack -= choice.cost
        _, frame = self.pending.pop()
        production = choice.production
        if production.words is None:
            return
        for relation in production.enter:
            frame = Frame(frame, relation)
        if not production.relation:
            frame.head = len(self.words)
        self.placements.append((frame, production.relation))
        self.words.append(word)
        for state, up in choice.list_next_states(word):
            ancestor = frame
            for _ in range(up):
                assert ancestor.parent is not None
                ancestor = ancestor.parent
            self.pending.append((state, ancestor))

    def end_log_probability(self) -> float:
        """Log probability that the sentence ends here, -inf if a pending symbol requires a word."""
        total = 0.0
        for state, _ in reversed(self.pending):
            distribution = state.get_distribution(self.slack)
            if "" not in distribution.by_word:
                return -inf
            total += distribution.logs[distribution.by_word[""]]
        return total

    def next_words(self) -> dict[str, float]:
        """Probability of each possible next word; "" is the sentence end."""
        words: dict[str, float] = {}
        skipped = 1.0  # probability that all symbols so far end without a word
        for state, _ in reversed(self.pending):
            distribution = state.get_distribution(self.slack)
            for choice, share in zip(distribution.choices, distribution.probabilities, strict=True):
                words |= {word: skipped * share * p for word, p in choice.word_probabilities()}
            if "" not in distribution.by_word:
                return words
            skipped *= distribution.probabilities[distribution.by_word[""]]
        return {**words, "": skipped}

    def dependencies(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """For each word the position of its head, -1 for the root, and its relation to the head."""
        heads, relations = [], []
        for frame, relation in self.placements:
            governor = frame if relation else frame.parent
            heads.append(governor.head if governor else -1)
            relations.append(relation or frame.relation)
        return tuple(heads), tuple(relations)


class Choice:
    """A production with its cost in words of slack and the states of the symbols it leaves."""

    def __init__(self, production: Production, shortest: int) -> None:
        self.production = production
        self.cost = _find_shortest_production(production) - shortest
        self._next_states: dict[str, tuple[tuple[SymbolExpansion, int], ...]] = {}

    def list_next_states(self, word: str) -> tuple[tuple["SymbolExpansion", int], ...]:
        """The states after `word`, last first, each with the number of frames it is above the current one."""
        if word not in self._next_states:
            then = [
                (symbol._replace(word=PARTNERS[word]) if symbol.word == PARTNER else symbol, up)
                for symbol, up in reversed(self.production.then)
            ]
            self._next_states[word] = tuple((expand_symbol(symbol), up) for symbol, up in then)
        return self._next_states[word]

    def word_probabilities(self) -> Iterator[tuple[str, float]]:
        """Yields every word of the choice and its probability given the choice."""
        if words := self.production.words:
            yield from zip(words.words, words.probabilities, strict=True)

    @cached_property
    def word_logs(self) -> dict[str, float]:
        """Log probability of every word given the choice; a choice without words has the word ""."""
        return {word: log(p) for word, p in self.word_probabilities()} or {"": 0.0}


@dataclass(frozen=True)
class ChoiceDistribution:
    """The choices available at one slack; `by_word` maps each first word to the index of its choice."""

    choices: tuple[Choice, ...]
    probabilities: tuple[float, ...]
    cumulative: tuple[float, ...]
    logs: tuple[float, ...]
    by_word: Mapping[str, int]


class SymbolExpansion:
    """A symbol with its choices and their distribution at each slack."""

    def __init__(self, symbol: Symbol) -> None:
        self.shortest = _find_shortest(symbol)
        self.choices = tuple(Choice(production, self.shortest) for production in list_productions(symbol))
        self._max_cost = max(choice.cost for choice in self.choices)
        self._distributions: dict[int, ChoiceDistribution] = {}

    def get_distribution(self, slack: int) -> ChoiceDistribution:
        """The distribution of the choices whose cost is at most `slack`."""
        slack = min(slack, self._max_cost)
        if slack not in self._distributions:
            choices = tuple(choice for choice in self.choices if choice.cost <= slack)
            total = fsum(choice.production.weight for choice in choices)
            probabilities = tuple(choice.production.weight / total for choice in choices)
            by_word = {word: index for index, choice in enumerate(choices) for word in choice.word_logs}
            cumulative = (*accumulate(probabilities[:-1]), 1.0)
            logs = tuple(map(log, probabilities))
            self._distributions[slack] = ChoiceDistribution(choices, probabilities, cumulative, logs, by_word)
        return self._distributions[slack]


@cache
def expand_symbol(symbol: Symbol) -> SymbolExpansion:
    """The expansion of a symbol; equal symbols share one object."""
    return SymbolExpansion(symbol)


@cache
def _find_shortest(symbol: Symbol) -> int:
    return min(_find_shortest_production(production) for production in list_productions(symbol))


def _find_shortest_production(production: Production) -> int:
    return (production.words is not None) + sum(_find_shortest(symbol) for symbol, _ in production.then)


def draw_below(count: int, rng: random.Random) -> int:
    """A random number from 0 to count - 1, from rng.random() only, which is stable across Python versions."""
    return int(rng.random() * count)


def sample_derivation(rng: random.Random) -> Derivation:
    """A random derivation, from rng.random() only, which is stable across Python versions."""
    derivation = Derivation.start()
    while derivation.pending:
        distribution = derivation.pending[-1][0].get_distribution(derivation.slack)
        index = bisect_right(distribution.cumulative, rng.random())
        choice = distribution.choices[index]
        words, word = choice.production.words, ""
        if words:
            drawn = bisect_right(words.cumulative, rng.random()) if len(words.words) > 1 else 0
            word = words.words[drawn]
        derivation.step(choice, word, distribution.logs[index] + choice.word_logs[word])
    return derivation


def parse_words(words: Sequence[str]) -> Derivation | None:
    """The derivation of a sentence or of its first words, or None if no sentence begins with the words."""
    derivation = Derivation.start()
    for word in words:
        emitted = ""
        while not emitted:
            if not derivation.pending:
                return None
            distribution = derivation.pending[-1][0].get_distribution(derivation.slack)
            index = distribution.by_word.get(word, distribution.by_word.get(""))
            if index is None:
                return None
            choice = distribution.choices[index]
            emitted = word if choice.production.words else ""
            derivation.step(choice, emitted, distribution.logs[index] + choice.word_logs[emitted])
    return derivation
