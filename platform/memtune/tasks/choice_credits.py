"""Credits for choices between candidates: a correct choice counts 1, a tie among k best candidates 1 / k.

A tie is a question whose lowest cost belongs to several candidates, compared as floating-point numbers
without a tolerance. Equal costs come from equal operations on equal numbers: two words that the model reads
as `<unk>`, or two words with equal counts in an n-gram model. A tolerance would count unequal
probabilities as equal, and the number of such pairs would depend on the scale of the
costs.

1 / k is the expected value of a choice at random among the k candidates, so accuracy does not depend on the
order of the candidates.

Shapes: Q questions, C candidates.
"""

from math import inf

from torch import Tensor


def credit_choices(costs_QC: Tensor, answers_Q: Tensor) -> Tensor:
    """Credit of each question, (Q,) float64: 1 / k where the correct candidate is among the k best, else 0.

    Lower costs are better. A cost that is not a number counts as infinite.
    """
    is_best_QC = _find_best(costs_QC)
    is_answer_best_Q = is_best_QC.gather(1, answers_Q.unsqueeze(1)).squeeze(1)
    return is_answer_best_Q.double() / is_best_QC.sum(1)


def count_best_candidates(costs_QC: Tensor) -> Tensor:
    """Number of candidates that share the lowest cost, (Q,) int64: 1 where there is no tie."""
    return _find_best(costs_QC).sum(1)


def _find_best(costs_QC: Tensor) -> Tensor:
    """Whether each candidate has the lowest cost of its question, (Q, C) bool."""
    comparable_QC = costs_QC.nan_to_num(nan=inf, posinf=inf, neginf=-inf)
    return comparable_QC == comparable_QC.amin(1, keepdim=True)
