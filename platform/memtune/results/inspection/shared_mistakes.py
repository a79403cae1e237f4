"""Which models make which mistakes: Yogatama et al. (2018), figure 2, with McNemar's tests."""

from collections import Counter
from collections.abc import Sequence

from memtune.results.error_overlap import OverlapRegion, count_overlap
from memtune.results.inspection.mcnemar_test import McNemarTest, compare_pairs
from memtune.results.question_answers import ModelAnswers
from memtune.values import Value

__all__ = ["ModelMistakes", "SharedMistakes", "find_shared_mistakes"]


class ModelMistakes(Value):
    """The mistakes of one model."""

    name: str
    """Its family, with the model's own name where several models have this family."""
    model: str
    mistakes: float
    """Of the questions that count for every model; a tie counts as the probability of a mistake."""


class SharedMistakes(Value):
    """The mistakes of several models on the same questions."""

    questions: int
    """Questions that count for every model."""
    correct_for_all: float
    """Expected number of questions that every model answers correctly."""
    models: tuple[ModelMistakes, ...]
    regions: tuple[OverlapRegion, ...]
    """The sets of models, by their names here, with the questions that they and no others get wrong."""
    tests: tuple[McNemarTest, ...]


def find_shared_mistakes(answers: Sequence[ModelAnswers]) -> SharedMistakes:
    """The overlap of mistakes of models that answered the same questions.

    Raises CorpusError when the questions differ.
    """
    families = Counter(model.family for model in answers)
    names = [
        model.family if families[model.family] == 1 else f"{model.family} ({model.model_uri})"
        for model in answers
    ]
    by_name = {name: model.answers for name, model in zip(names, answers, strict=True)}
    regions = count_overlap(by_name)
    asked_by_all = sum(
        all(asked) for asked in zip(*(found.asked_Q for found in by_name.values()), strict=True)
    )
    wrong = sum(region.mistakes for region in regions)
    return SharedMistakes(
        questions=asked_by_all,
        correct_for_all=asked_by_all - wrong,
        models=tuple(
            ModelMistakes(
                name=name,
                model=model.model_uri,
                mistakes=sum(region.mistakes for region in regions if name in region.models),
            )
            for name, model in zip(names, answers, strict=True)
        ),
        regions=tuple(regions),
        tests=tuple(compare_pairs(by_name)),
    )
