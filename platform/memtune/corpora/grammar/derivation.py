"""Derivations of the embedded grammar: sample sentences, parse words, and predict the next word.

A sentence has at most LONGEST_SENTENCE_WORDS words. The slack of a derivation is the number of words left
over if every pending symbol takes its shortest form. The cost of a production is the length of its shortest
form minus that of its symbol. A production is available only if its cost is at most the slack; the available
productions are renormalised. No derivation is therefore cut or rejected, and the probabilities of all
sentences sum to one.

Probabilities use only sums, products and quotients, and sampling only comparisons, so every machine gives the
same words. Logarithms are natural.

By the chain rule the entropy of a symbol's expansion is the entropy of its choice plus the expected entropy
of the symbols that the choice leaves (Soule, 1974, "Entropies of probabilistic grammars"). In this grammar
the entropy also depends on the slack (see derivation.py). Each symbol therefore has one entropy for every
slack before it, and a distribution of the slack after it.

Shapes: S slack, from 0 to the longest sentence.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate
from math import fsum, inf, log

import numpy as np
import numpy.typing as npt

from memtune.corpora.grammar.lexicon import PARTNERS, Lexicon
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
        if choice.words is None:
            return
        for relation in choice.enter:
            frame = Frame(frame, relation)
        if not choice.relation:
            frame.head = len(self.words)
        self.placements.append((frame, choice.relation))
        self.words.append(word)
        self.pending.extend((state, _find_ancestor(frame, up)) for state, up in choice.list_next_states(word))

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


def _find_ancestor(frame: Frame, up: int) -> Frame:
    for _ in range(up):
        assert frame.parent is not None
        frame = frame.parent
    return frame


class Choice:
    """A production with its cost in words of slack and the states of the symbols it leaves."""

    def __init__(self, production: Production, shortest: int) -> None:
        self.words, self.relation, self.enter = production.words, production.relation, production.enter
        self.weight = production.weight
        self.cost = _find_shortest_production(production) - shortest
        self.symbols = tuple(symbol for symbol, _ in production.then)
        self._symbols_last_first = tuple(reversed(production.then))
        self._has_partner = any(symbol.word == PARTNER for symbol in self.symbols)
        self._next_states: dict[str, tuple[tuple[SymbolExpansion, int], ...]] = {}

    def list_next_states(self, word: str) -> tuple[tuple["SymbolExpansion", int], ...]:
        """The states after `word`, last first, each with the number of frames it is above the current one."""
        key = word if self._has_partner else ""
        if key not in self._next_states:
            self._next_states[key] = tuple(
                (expand_symbol(_substitute_partner(symbol, word)), up)
                for symbol, up in self._symbols_last_first
            )
        return self._next_states[key]

    def word_probabilities(self) -> Iterator[tuple[str, float]]:
        """Yields every word of the choice and its probability given the choice."""
        if self.words:
            yield from zip(self.words.words, self.words.probabilities, strict=True)

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
            self._distributions[slack] = _build_distribution(
                [choice for choice in self.choices if choice.cost <= slack]
            )
        return self._distributions[slack]


def _build_distribution(choices: list[Choice]) -> ChoiceDistribution:
    total = fsum(choice.weight for choice in choices)
    probabilities = tuple(choice.weight / total for choice in choices)
    by_word = {word: index for index, choice in enumerate(choices) for word in choice.word_logs}
    cumulative = (*accumulate(probabilities[:-1]), 1.0)
    return ChoiceDistribution(
        tuple(choices), probabilities, cumulative, tuple(map(log, probabilities)), by_word
    )


def _substitute_partner(symbol: Symbol, word: str) -> Symbol:
    return symbol._replace(word=PARTNERS[word]) if symbol.word == PARTNER else symbol


@cache
def expand_symbol(symbol: Symbol) -> SymbolExpansion:
    """The expansion of a symbol; equal symbols share one object."""
    return SymbolExpansion(symbol)


@cache
def _find_shortest(symbol: Symbol) -> int:
    return min(_find_shortest_production(production) for production in list_productions(symbol))


def _find_shortest_production(production: Production) -> int:
    return (production.words is not None) + sum(_find_shortest(symbol) for symbol, _ in production.then)


SHORTEST_SENTENCE_WORDS = _find_shortest(SENTENCE)
"""Number of words of the shortest sentence."""


def sample_derivation(rng: random.Random) -> Derivation:
    """Samples the derivation of one sentence.

    It calls only rng.random(), whose sequence for a seed is stable across Python versions.
    """
    derivation = Derivation.start()
    while derivation.pending:
        distribution = derivation.pending[-1][0].get_distribution(derivation.slack)
        index = bisect_right(distribution.cumulative, rng.random())
        choice = distribution.choices[index]
        word = _sample_word(choice.words, rng) if choice.words else ""
        derivation.step(choice, word, distribution.logs[index] + choice.word_logs[word])
    return derivation


def _sample_word(words: Lexicon, rng: random.Random) -> str:
    if len(words.words) == 1:
        return words.words[0]
    return words.words[bisect_right(words.cumulative, rng.random())]


def parse_words(words: Sequence[str]) -> Derivation | None:
    """The derivation of a sentence or of its first words, or None if no sentence begins with the words."""
    derivation = Derivation.start()
    for word in words:
        if not _parse_word(derivation, word):
            return None
    return derivation


def _parse_word(derivation: Derivation, word: str) -> bool:
    """Advances the derivation past the word; returns false if the word cannot come next."""
    while derivation.pending:
        distribution = derivation.pending[-1][0].get_distribution(derivation.slack)
        index = distribution.by_word.get(word, distribution.by_word.get(""))
        if index is None:
            return False
        choice = distribution.choices[index]
        emitted = word if choice.words else ""
        derivation.step(choice, emitted, distribution.logs[index] + choice.word_logs[emitted])
        if emitted:
            return True
    return False


Array = npt.NDArray[np.float64]
_SLACK_COUNT = LONGEST_SENTENCE_WORDS + 1


def entropy() -> float:
    """Expected -log probability of a sentence, its end included: nats per sentence, exact up to rounding."""
    return float(compute_moments(SENTENCE).nats[LONGEST_SENTENCE_WORDS - SHORTEST_SENTENCE_WORDS])


def mean_tokens() -> float:
    """Expected number of tokens of a sentence, its end included."""
    slack_after_S = compute_moments(SENTENCE).slack[LONGEST_SENTENCE_WORDS - SHORTEST_SENTENCE_WORDS]
    return float(LONGEST_SENTENCE_WORDS - slack_after_S @ np.arange(_SLACK_COUNT)) + 1.0


@dataclass(frozen=True)
class Moments:
    """The contribution of one or more symbols to a sentence.

    nats: expected -log probability by slack before the symbols, (S,). slack: distribution of the slack after
    them, (S before, S after).
    """

    nats: Array
    slack: Array

    def chain(self, other: "Moments") -> "Moments":
        """The moments of this expansion followed by the other."""
        return Moments(self.nats + self.slack @ other.nats, self.slack @ other.slack)


@cache
def compute_moments(symbol: Symbol) -> Moments:
    """The moments of the full expansion of a symbol."""
    state = expand_symbol(symbol)
    nats_S, slack_SS = np.zeros(_SLACK_COUNT), np.zeros((_SLACK_COUNT, _SLACK_COUNT))
    for choice, share_S in zip(state.choices, _compute_choice_probabilities(state), strict=True):
        after = _compute_choice_moments(choice)
        surprise_S = -np.log(np.where(share_S > 0, share_S, 1.0))
        nats_S += share_S * (surprise_S + after.nats)
        slack_SS += share_S[:, None] * after.slack
    return Moments(nats_S, slack_SS)


def _compute_choice_probabilities(state: SymbolExpansion) -> list[Array]:
    """For each choice of the state its probability at every slack, 0 where it costs more than the slack."""
    shares = [np.zeros(_SLACK_COUNT) for _ in state.choices]
    for slack in range(_SLACK_COUNT):
        distribution = state.get_distribution(slack)
        probabilities = dict(zip(distribution.choices, distribution.probabilities, strict=True))
        for share_S, choice in zip(shares, state.choices, strict=True):
            share_S[slack] = probabilities.get(choice, 0.0)
    return shares


def _compute_choice_moments(choice: Choice) -> Moments:
    word_nats = -sum(p * log(p) for _, p in choice.word_probabilities())
    after = Moments(np.full(_SLACK_COUNT, word_nats), np.eye(_SLACK_COUNT, k=-choice.cost))
    for symbol in choice.symbols:
        after = after.chain(compute_moments(symbol))
    return after
