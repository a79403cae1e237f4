"""Exact entropy and mean length of the sentences of the embedded corpus.

By the chain rule the entropy of what a symbol becomes is that of its own choice plus the expected entropy
of what the choice leaves (Soule, 1974, "Entropies of probabilistic grammars"). Here it also depends on the
slack, so each symbol has one value for every slack it may start with, and a distribution of the slack it
leaves.

Shapes: S slack, from 0 to the longest sentence.
"""

from dataclasses import dataclass
from functools import cache
from math import log

import numpy as np
import numpy.typing as npt

from memtune.corpora.grammar.derivation import LONGEST, SHORTEST, Choice, State, state_of
from memtune.corpora.grammar.rules import SENTENCE, Symbol

__all__ = ["Moments", "entropy", "mean_tokens", "moments"]

Array = npt.NDArray[np.float64]
_SLACKS = LONGEST + 1


def entropy() -> float:
    """Expected -log probability of a sentence, its end included: nats per sentence, exact up to rounding."""
    return float(moments(SENTENCE).nats[LONGEST - SHORTEST])


def mean_tokens() -> float:
    """Expected number of tokens of a sentence, its end included."""
    slack_after_S = moments(SENTENCE).slack[LONGEST - SHORTEST]
    return float(LONGEST - slack_after_S @ np.arange(_SLACKS)) + 1.0


@dataclass(frozen=True)
class Moments:
    """What a symbol, or several, adds to a sentence.

    nats: expected, (S,) by the slack before; slack: distribution of the slack after, (S, S), rows by the
    slack before.
    """

    nats: Array
    slack: Array

    def then(self, other: "Moments") -> "Moments":
        """Of both, the other after this one."""
        return Moments(self.nats + self.slack @ other.nats, self.slack @ other.slack)


@cache
def moments(symbol: Symbol) -> Moments:
    """The moments of all that a symbol becomes."""
    state = state_of(symbol)
    nats_S, slack_SS = np.zeros(_SLACKS), np.zeros((_SLACKS, _SLACKS))
    for choice, share_S in zip(state.choices, _shares(state), strict=True):
        after = _of_choice(choice)
        surprise_S = -np.log(np.where(share_S > 0, share_S, 1.0))
        nats_S += share_S * (surprise_S + after.nats)
        slack_SS += share_S[:, None] * after.slack
    return Moments(nats_S, slack_SS)


def _shares(state: State) -> list[Array]:
    """For each choice of the state its probability at every slack, 0 where the slack does not pay for it."""
    shares = [np.zeros(_SLACKS) for _ in state.choices]
    for slack in range(_SLACKS):
        offer = state.offer(slack)
        of_choice = dict(zip(offer.choices, offer.probabilities, strict=True))
        for share_S, choice in zip(shares, state.choices, strict=True):
            share_S[slack] = of_choice.get(choice, 0.0)
    return shares


def _of_choice(choice: Choice) -> Moments:
    word_nats = -sum(p * log(p) for _, p in choice.word_probabilities())
    after = Moments(np.full(_SLACKS, word_nats), np.eye(_SLACKS, k=-choice.cost))
    for symbol in choice.then:
        after = after.then(moments(symbol))
    return after
