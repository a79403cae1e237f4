"""McNemar's test of two models by the questions that only one of them answers correctly.

McNemar (1947), "Note on the sampling error of the difference between correlated proportions or percentages".
Under the hypothesis that both models are equally good, each such question is won by either with probability
1/2, so the number won by one of them has a binomial distribution. This is the exact test.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from scipy.special import bdtr

from memtune.errors import CorpusError
from memtune.seed_tests import correct_holm
from memtune.tasks import Answers
from memtune.values import Value

__all__ = ["McNemarTest", "compare_answers", "compare_pairs"]


class McNemarTest(Value):
    """The questions on which two models differ."""

    first: str
    second: str
    first_only: int
    """Questions that only the first model answers correctly."""
    second_only: int
    ties: int
    """Questions left out because a model gives several candidates the same cost."""
    p: float
    """The two-sided p-value of equally good models; of several pairs, corrected for their number (Holm)."""


def compare_pairs(answers: Mapping[str, Answers]) -> list[McNemarTest]:
    """The test of each pair of models, in their order, with p-values corrected for the number of pairs."""
    tests = [compare_answers(first, second, answers) for first, second in combinations(answers, 2)]
    corrected = correct_holm(test.p for test in tests)
    return [test.model_copy(update={"p": p}) for test, p in zip(tests, corrected, strict=True)]


def compare_answers(first: str, second: str, answers: Mapping[str, Answers]) -> McNemarTest:
    """The test of two models over the questions that count for both.

    Raises CorpusError when they have different questions.
    """
    one, other = answers[first], answers[second]
    if one.names != other.names:
        raise CorpusError(f'"{first}" and "{second}" answered different questions; ask both in one call')
    asked_Q = one.asked_Q & other.asked_Q
    tied_Q = (one.credits % 1 != 0) | (other.credits % 1 != 0)
    counted_Q = asked_Q & ~tied_Q
    first_only = int(np.count_nonzero(counted_Q & (one.credits > other.credits)))
    second_only = int(np.count_nonzero(counted_Q & (one.credits < other.credits)))
    discordant = first_only + second_only
    p = min(1.0, 2 * float(bdtr(min(first_only, second_only), discordant, 0.5))) if discordant else 1.0
    return McNemarTest(
        first=first,
        second=second,
        first_only=first_only,
        second_only=second_only,
        ties=int(np.count_nonzero(asked_Q & tied_Q)),
        p=p,
    )
