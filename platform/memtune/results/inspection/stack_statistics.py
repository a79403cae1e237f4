"""What a stack does over a text: Yogatama et al. (2018), figure 3.

The left plot of the figure counts, for each number of pops, the words at which that many pops and then a push
or none is the most probable action. The right one is a histogram of the largest action probability.
"""

from collections import Counter

import numpy as np

from memtune.results.inspection.inspected_model import InspectedModel
from memtune.results.inspection.inspected_text import TextChoice
from memtune.results.inspection.sentence_readings import read_stack
from memtune.values import Value

PEAK_BINS = 20


class ActionCount(Value):
    """One action of a stack."""

    action: str
    pops: int
    is_push: bool
    words: int
    """Words at which it is the most probable action."""
    mean_probability: float
    """Over all words."""


class PeakBin(Value):
    """Words whose most probable action has a probability from `low` to `high`."""

    low: float
    high: float
    words: int


class StackStatistics(Value):
    """The use of a stack over a text."""

    model: str
    family: str
    words: int
    actions: tuple[ActionCount, ...]
    mean_peak: float
    """The mean of the largest action probability: 1 for a stack that is always certain."""
    peaks: tuple[PeakBin, ...]
    mean_contribution: float
    """The mean norm of the stack's term in the predictions."""


def count_stack_actions(model: InspectedModel, choice: TextChoice) -> StackStatistics:
    """The most probable actions of a stack over a text; each word read counts once, `<eos>` too.

    The first of equally probable actions counts. Raises the errors of `read_stack`.
    """
    readings = list(read_stack(model, choice))
    probabilities_NA = np.concatenate([reading.probabilities_TA for reading in readings])
    taken, sums_A = Counter(probabilities_NA.argmax(1).tolist()), probabilities_NA.sum(0)
    peaks_N, words = probabilities_NA.max(1), len(probabilities_NA)
    counts, edges = np.histogram(peaks_N, PEAK_BINS, (0.0, 1.0))
    return StackStatistics(
        model=model.name,
        family=model.family,
        words=words,
        actions=tuple(
            ActionCount(
                action=action.name,
                pops=action.pops,
                is_push=action.is_push,
                words=taken[index],
                mean_probability=float(sums_A[index] / words),
            )
            for index, action in enumerate(readings[0].actions)
        ),
        mean_peak=float(peaks_N.mean()),
        peaks=tuple(
            PeakBin(low=float(low), high=float(high), words=int(count))
            for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ),
        mean_contribution=float(np.concatenate([reading.contribution_T for reading in readings]).mean()),
    )
