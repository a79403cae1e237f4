"""Answers of trained models to questions, and which models make which mistakes.

Questions are sentence completion and number agreement. Yogatama et al. (2018), figure 2, counts the regions
of a Venn diagram of three models' mistakes in number agreement: the number of questions that each set of
models, and no other model, answers wrongly. This module counts them for any number of models.

McNemar (1947), "Note on the sampling error of the difference between correlated proportions or percentages".
Under the hypothesis that both models are equally good, each question on which two models differ is won by
either with probability 1/2, so the number won by one of them has a binomial distribution. This is the exact
test.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import bdtr

from memtune.corpora import Corpus, open_corpus
from memtune.errors import ConfigurationError, CorpusError, MemtuneError
from memtune.results.loaded_models import open_model
from memtune.seed_statistics import correct_holm
from memtune.settings import Settings
from memtune.tasks import QUESTION_TASKS, Answers, QuestionTaskConfig
from memtune.values import Value, digest, parse


@dataclass(frozen=True)
class ModelAnswers:
    """A trained model and its answers."""

    model_uri: str
    family: str
    answers: Answers
    unknown_rate: float
    """Share of the words of the questions that the model reads as `<unk>`."""
    corpus: str
    """That has the questions."""
    split: str
    configuration: str
    """What was trained on which text, without its seed, as a digest."""
    seed: int


def ask(
    models: Sequence[str],
    questions: str | None = None,
    task: str | None = None,
    split: str = "valid",
    options: dict[str, Any] | None = None,
    *,
    device: str = "cpu",
    settings: Settings | None = None,
    trust_code: bool = False,
) -> list[ModelAnswers]:
    """The answers of language models, each named as in `open_model`: `models:/ptb@champion`, `STUDY#7`.

    `questions` is the name of a corpus with annotations; without it each model answers the questions of its
    own corpus. `task` ("completion" or "agreement") is required only for a corpus with both kinds;
    `options` are the other fields of the task. Raises TrackingError for an unknown model, CorpusError for
    missing questions, ConfigurationError for a classifier, for invalid options and for a repeated model.
    """
    repeated = next((model for index, model in enumerate(models) if model in models[:index]), None)
    if repeated is not None:
        raise ConfigurationError(f"{repeated} is named twice; name each model once")
    settings = Settings.resolve(settings)

    def ask_one(uri: str) -> ModelAnswers:
        source = open_model(uri, settings, device, trust_code=trust_code)
        corpus, protocol = source.corpus, source.config.protocol
        if questions is not None:
            corpus = open_corpus(f"{corpus.name.partition('+')[0]}+{questions}", settings.corpus_store)
        kind = task or _find_question_kind(corpus)
        if kind not in QUESTION_TASKS:
            known = ", ".join(QUESTION_TASKS)
            raise ConfigurationError(f'no task "{kind}" has questions; the tasks with questions are {known}')
        config: QuestionTaskConfig = parse(QUESTION_TASKS[kind], options or {}, f"task {kind}")
        opened = config.open_questions(corpus, protocol)
        language_model = source.model.require_language_model(f"answering questions with {uri}")
        opened.question_table(split)  # refuses a split without questions before its reading is recorded
        source.record_access(split)
        answers = opened.answer(language_model, split, device)
        return ModelAnswers(
            uri,
            source.model.config.family,
            answers,
            opened.unknown_rate(split),
            opened.question_corpus.name,
            split,
            digest(source.config.configuration_identity, source.corpus.digest),
            source.config.seed,
        )

    found = []
    for model in models:
        try:
            found.append(ask_one(model))
        except MemtuneError as error:
            if len(models) == 1:
                raise
            raise type(error)(f"{model}: {error}") from None
    return found


def _find_question_kind(corpus: Corpus) -> str:
    """The kind of questions of a corpus. Raises CorpusError when there are no questions or several kinds."""
    source = corpus.questions or corpus
    kinds = [kind for kind in QUESTION_TASKS if kind in source.annotations]
    if len(kinds) > 1:
        raise CorpusError(f'corpus "{source.name}" has {" and ".join(kinds)}; choose one with --task')
    if not kinds:
        raise CorpusError(
            f'corpus "{source.name}" has {", ".join(source.annotations) or "no annotations"}, so no '
            f"{' or '.join(QUESTION_TASKS)} questions; name others with --questions (see: memtune corpus "
            "list)"
        )
    return kinds[0]


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
    """The test of two models over the questions, the same for both, that count for both."""
    one, other = answers[first], answers[second]
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


class ModelMistakes(Value):
    """The mistakes of one model."""

    name: str
    """Its family, with the model's own name where several models have this family."""
    model: str
    mistakes: float
    """Of the questions that count for every model; a tie counts as the probability of a mistake."""


class SharedMistakes(Value):
    """The mistakes of several models on the same questions."""

    corpus: str
    """That has the questions; of the first model where each has its own."""
    split: str
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
        corpus=answers[0].corpus,
        split=answers[0].split,
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
