"""Overlap of mistakes: the number of questions that each set of models, and no other model, answers wrongly.

Yogatama et al. (2018), figure 2, counts the regions of a Venn diagram of three models' mistakes in number
agreement. This module counts them for any number of models.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from memtune.errors import CorpusError
from memtune.tasks import Answers
from memtune.values import Value


class OverlapRegion(Value):
    """Questions that these models, and no other model of the comparison, answered wrongly."""

    models: tuple[str, ...]
    mistakes: float
    """Expected number of questions; a fraction where models have ties."""


def count_overlap(answers: Mapping[str, Answers]) -> list[OverlapRegion]:
    """The regions with mistakes, largest first, over the questions that count for every model.

    A model with a tie among k candidates, one of them correct, answers wrongly with probability (k - 1) / k,
    independently of the others, so the regions of a model add up to its questions times (1 - accuracy).
    Raises CorpusError when the models have different questions.
    """
    by_model = list(answers.items())
    for model, model_answers in by_model[1:]:
        if model_answers.names != by_model[0][1].names:
            raise CorpusError(
                f'"{model}" and "{by_model[0][0]}" answered different questions; ask all models in one call'
            )
    regions: Counter[tuple[str, ...]] = Counter()
    for question in range(len(by_model[0][1].names)):
        if all(model_answers.asked_Q[question] for _, model_answers in by_model):
            credits = [(model, float(model_answers.credits[question])) for model, model_answers in by_model]
            regions.update(_distribute_question(credits))
    regions.pop((), None)
    ordered = sorted(regions.items(), key=lambda region: (-region[1], region[0]))
    return [OverlapRegion(models=models, mistakes=mistakes) for models, mistakes in ordered]


def _distribute_question(credits: Sequence[tuple[str, float]]) -> dict[tuple[str, ...], float]:
    """Probability of each set of models that answers one question wrongly, by the credit of each model."""
    probabilities: dict[tuple[str, ...], float] = {(): 1.0}
    for model, credit in credits:
        correct = {models: share * credit for models, share in probabilities.items()}
        wrong = {(*models, model): share * (1 - credit) for models, share in probabilities.items()}
        probabilities = {models: share for models, share in (correct | wrong).items() if share}
    return probabilities
