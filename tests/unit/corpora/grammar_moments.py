"""Exact moments of the embedded grammar: entropy and length of a sentence, from its productions.

By the chain rule the entropy of a symbol's expansion is the entropy of its choice plus the expected entropy
of the symbols that the choice leaves (Soule, 1974, "Entropies of probabilistic grammars"). In this grammar
the entropy also depends on the slack (see derivation.py). Each symbol therefore has one entropy for every
slack before it, and a distribution of the slack after it.

Shapes: S slack, from 0 to the longest sentence.
"""

from dataclasses import dataclass
from functools import cache
from math import exp, log

import numpy as np
import numpy.typing as npt

from memtune.corpora.grammar.derivation import (
    LONGEST_SENTENCE_WORDS,
    Choice,
    Derivation,
    SymbolExpansion,
    expand_symbol,
)
from memtune.corpora.grammar.embedded_corpus import generate_sentences
from memtune.corpora.grammar.productions import SENTENCE, Symbol

__all__ = ["SHORTEST_SENTENCE_WORDS", "compute_moments", "entropy", "ideal_perplexity", "mean_tokens"]

Array = npt.NDArray[np.float64]
_SLACK_COUNT = LONGEST_SENTENCE_WORDS + 1
SHORTEST_SENTENCE_WORDS = LONGEST_SENTENCE_WORDS - Derivation.start().slack


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
    for symbol, _ in choice.production.then:
        after = after.chain(compute_moments(symbol))
    return after


@cache
def ideal_perplexity(split: str) -> float:
    """Perplexity per token of the grammar on a split, sentence ends included."""
    sentences = list(generate_sentences(split))
    nats = -sum(sentence.log_probability for sentence in sentences)
    return exp(nats / sum(len(sentence.words) + 1 for sentence in sentences))
