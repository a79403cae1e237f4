"""Answers of trained models to questions: sentence completion and number agreement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtune.corpora import Corpus, open_corpus
from memtune.errors import ConfigurationError, CorpusError, MemtuneError
from memtune.results.model_sources import open_model
from memtune.settings import Settings
from memtune.tasks import QUESTION_TASKS, Answers, QuestionTaskConfig
from memtune.values import parse


@dataclass(frozen=True)
class ModelAnswers:
    """A trained model and its answers."""

    model_uri: str
    family: str
    answers: Answers
    unknown_rate: float
    """Share of the words of the questions that the model reads as `<unk>`."""


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
    model_answers = []
    for model in models:
        try:
            model_answers.append(
                _ask_model(model, questions, task, split, options or {}, device, settings, trust_code)
            )
        except MemtuneError as error:
            if len(models) == 1:
                raise
            raise type(error)(f"{model}: {error}") from None
    return model_answers


def _ask_model(
    uri: str,
    questions: str | None,
    task: str | None,
    split: str,
    options: dict[str, Any],
    device: str,
    settings: Settings,
    trust_code: bool,
) -> ModelAnswers:
    opened_model = open_model(uri, settings, device, trust_code=trust_code)
    corpus, loaded = opened_model.corpus, opened_model.model
    if questions is not None:
        corpus = open_corpus(f"{corpus.name.partition('+')[0]}+{questions}", settings.corpus_store)
    opened = _resolve_task(task, corpus, options).open_questions(corpus, opened_model.config.protocol)
    language_model = loaded.require_language_model(f"answering questions with {uri}")
    opened_model.record_access(split)
    answers = opened.answer(language_model, split, device)
    return ModelAnswers(uri, loaded.config.family, answers, opened.unknown_rate(split))


def _resolve_task(task: str | None, corpus: Corpus, options: dict[str, Any]) -> QuestionTaskConfig:
    kind = task or _find_question_kind(corpus)
    if kind not in QUESTION_TASKS:
        raise ConfigurationError(
            f'no task "{kind}" has questions; the tasks with questions are {", ".join(QUESTION_TASKS)}'
        )
    config = QUESTION_TASKS[kind]
    return config.model_validate(parse(config, options, f"task {kind}"))


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
