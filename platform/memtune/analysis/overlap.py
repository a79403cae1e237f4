"""The overlap of mistakes: which questions do which models, and only those, get wrong?

Yogatama et al. (2018), figure 2, counts the regions of a Venn diagram of three models' mistakes in number
agreement; here any set of models has its regions.
"""

from collections import Counter
from collections.abc import Mapping

from memtune.errors import CorpusError
from memtune.tasks import Answers
from memtune.values import Value

__all__ = ["Region", "overlap"]


class Region(Value):
    """Questions that these models, and no other of the set, answered wrongly."""

    models: tuple[str, ...]
    mistakes: int


def overlap(answers: Mapping[str, Answers]) -> list[Region]:
    """The regions that hold mistakes, most first, over the questions that every model was asked.

    Raises CorpusError when the models were not asked the same questions.
    """
    named = list(answers.items())
    asked: dict[str, int] = Counter()
    wrong: dict[str, list[str]] = {}
    for model, found in named:
        if found.names != named[0][1].names:
            raise CorpusError(f'"{model}" was not asked what "{named[0][0]}" was; ask all of them together')
        for name, known, right in zip(found.names, found.asked_Q, found.right, strict=True):
            asked[name] += bool(known)
            if known and not right:
                wrong.setdefault(name, []).append(model)
    regions = Counter(tuple(models) for name, models in wrong.items() if asked[name] == len(named))
    ordered = sorted(regions.items(), key=lambda region: (-region[1], region[0]))
    return [Region(models=models, mistakes=count) for models, count in ordered]
