"""What a stack does over a text and at each word of a sentence: Yogatama et al. (2018), figures 3 to 5.

The left plot of figure 3 counts, for each number of pops, the words at which that many pops and then a push
or none is the most probable action. The right one is a histogram of the largest action probability.
"""

from collections import Counter

import numpy as np
import torch

from memtune.results.inspection.sentence_readings import (
    SentenceStack,
    TextChoice,
    read_one,
    read_stack,
    reads_boundary,
)
from memtune.results.loaded_models import TrainedModel
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


def count_stack_actions(model: TrainedModel, choice: TextChoice) -> StackStatistics:
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
        family=model.network.config.family,
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


class ActionProbability(Value):
    """The probability of one action at one word."""

    action: str
    pops: int
    is_push: bool
    probability: float


class StackStep(Value):
    """A word read, and what the stack does with it."""

    word: str
    next_word: str
    """The word that follows, which is predicted."""
    actions: tuple[ActionProbability, ...]
    contribution: float
    """The norm of the stack's term in the prediction of the next word."""
    entropy: float | None
    """Of the prediction of the next word, in nats; None for a classifier, which predicts none."""

    @property
    def likeliest(self) -> ActionProbability:
        """The most probable action, the first of equals."""
        return max(self.actions, key=lambda action: action.probability)


class SentenceStackUse(Value):
    """The use of a stack in one sentence."""

    model: str
    number: int
    """Counted from 0 within its split."""
    steps: tuple[StackStep, ...]


def describe_stack_use(model: TrainedModel, choice: TextChoice, number: int = 0) -> SentenceStackUse:
    """The use of a stack in sentence `number`.

    A model that reads on across sentences reads all sentences before it. Raises CorpusError where the text
    has no such sentence, and the errors of `read_stack`.
    """
    reading = read_one(read_stack, model, choice, number)
    tokens, entropies = model.corpus.vocabulary.tokens, _compute_entropies(model, reading)
    return SentenceStackUse(
        model=model.name,
        number=reading.sentence.number,
        steps=tuple(
            StackStep(
                word=tokens[int(word)],
                next_word=tokens[int(following)],
                actions=tuple(
                    ActionProbability(
                        action=action.name, pops=action.pops, is_push=action.is_push, probability=float(value)
                    )
                    for action, value in zip(reading.actions, reading.probabilities_TA[step], strict=True)
                ),
                contribution=float(reading.contribution_T[step]),
                entropy=entropies[step],
            )
            for step, (word, following) in enumerate(zip(reading.inputs_T, reading.targets_T, strict=True))
        ),
    )


@torch.no_grad()
def _compute_entropies(model: TrainedModel, reading: SentenceStack) -> list[float | None]:
    """The entropy of the next word after each word, in nats."""
    if not reads_boundary(model):  # a classifier
        return [None] * len(reading.inputs_T)
    logarithms_TV = model.network.output(reading.hidden_TH).log_softmax(1)
    entropies: list[float | None] = (-(logarithms_TV.exp() * logarithms_TV).sum(1)).tolist()
    return entropies
