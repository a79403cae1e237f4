"""Questions put to registered models, one or several: sentence completion and number agreement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtune.corpora import Corpus, open_corpus
from memtune.errors import ConfigurationError, CorpusError, MemtuneError
from memtune.execution.champions import trained_corpus
from memtune.execution.settings import Settings
from memtune.models.interface import LanguageModel
from memtune.tasks import TASKS, Answers, QuestionTaskConfig
from memtune.tracking import load_registered
from memtune.training import TrialConfig, find_device, load_model
from memtune.values import parse

__all__ = ["Asked", "ask"]


@dataclass(frozen=True)
class Asked:
    """A registered model and its answers."""

    model: str
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
) -> list[Asked]:
    """The answers of registered language models, each `models:/ptb@champion` or `models:/ptb/3`.

    `questions` is a corpus with annotations; without it each model's own corpus is asked for. `task`
    ("completion" or "agreement") may be left out where the questions are of one kind; `options` are its
    other fields. Raises TrackingError for an unknown model, CorpusError for questions that are not there,
    ConfigurationError for a classifier and for options that make no sense.
    """
    settings = settings or Settings.read()
    asked = []
    for model in models:
        try:
            asked.append(_ask(model, questions, task, split, options or {}, device, settings))
        except MemtuneError as error:
            if len(models) == 1:
                raise
            raise type(error)(f"{model}: {error}") from None
    return asked


def _ask(
    uri: str,
    questions: str | None,
    task: str | None,
    split: str,
    options: dict[str, Any],
    device: str,
    settings: Settings,
) -> Asked:
    registered = load_registered(settings.tracking, uri, settings.home / "models")
    corpus = trained_corpus(uri, registered.champion, settings)
    if questions is not None:
        corpus = open_corpus(f"{corpus.name.partition('+')[0]}+{questions}", settings.store)
    config = TrialConfig.model_validate(registered.card.result.configuration)
    opened = _task(task, corpus, options).ask(corpus, config.protocol)
    loaded = load_model(registered.folder, str(find_device(device)))
    if not isinstance(loaded, LanguageModel):
        raise ConfigurationError(f"{uri} is a classifier, and gives words no probability; ask another")
    answers = opened.answer(loaded, split, device)
    return Asked(uri, loaded.config.family, answers, opened.unknown_rate(split))


def _task(task: str | None, corpus: Corpus, options: dict[str, Any]) -> QuestionTaskConfig:
    kinds = {kind: config for kind, config in TASKS.items() if issubclass(config, QuestionTaskConfig)}
    offered = [kind for kind in kinds if corpus.questions and kind in corpus.questions.annotations]
    asked = corpus.questions or corpus
    if task is None and len(offered) > 1:
        raise CorpusError(f'corpus "{asked.name}" has {" and ".join(offered)}; say which with --task')
    if task is None and not offered:
        raise CorpusError(
            f'corpus "{asked.name}" has {", ".join(asked.annotations) or "no annotations"}, so no '
            f"{' or '.join(kinds)} questions; name others with --questions (see: memtune corpus list)"
        )
    kind = task or offered[0]
    if kind not in kinds:
        raise ConfigurationError(f'no questions are of the kind "{kind}"; there are {", ".join(kinds)}')
    checked = kinds[kind].model_validate(parse(kinds[kind], options, f"task {kind}"))
    assert isinstance(checked, QuestionTaskConfig)
    return checked
