"""Properties of task configurations: units of predictions, and splits that can be evaluated."""

from typing import Any

import pytest

from memtune.corpora import Example
from memtune.corpora.batching.protocols import SentenceProtocol, TreeProtocol
from memtune.tasks import (
    QUESTION_TASKS,
    AgreementConfig,
    CompletionConfig,
    InferenceConfig,
    LanguageModellingConfig,
    SentimentConfig,
)
from tests.unit.tasks.labelled_corpora import make_sentiment_corpus

QUESTION = Example([["the", "dog", "barks"]], {"agreement": [(0, 2, "barks", "bark", 0)]})


def test_question_tasks_are_those_that_a_language_model_answers():
    expected: dict[str, Any] = {"completion": CompletionConfig, "agreement": AgreementConfig}
    assert dict(QUESTION_TASKS) == expected


@pytest.mark.parametrize(
    ("task", "protocol", "evaluable"),
    [
        (LanguageModellingConfig(), SentenceProtocol(), ["train", "valid", "test"]),
        (LanguageModellingConfig(), TreeProtocol(), []),
        (AgreementConfig(), SentenceProtocol(), ["valid"]),
        (AgreementConfig(), TreeProtocol(), []),
        (CompletionConfig(), SentenceProtocol(), []),
        (SentimentConfig(), SentenceProtocol(), []),
        (InferenceConfig(), SentenceProtocol(), []),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_split_is_evaluable_where_it_has_everything_that_the_task_reads(
    open_joined, task, protocol, evaluable
):
    """A text with three splits and no trees, joined with agreement questions for the validation split."""
    corpus = open_joined([QUESTION])
    splits = ("train", "valid", "test", "other")
    assert [split for split in splits if task.is_evaluable(corpus, protocol, split)] == evaluable


def test_a_labelled_split_is_evaluable_by_a_classifier(tmp_path):
    corpus = make_sentiment_corpus(tmp_path)
    assert SentimentConfig().is_evaluable(corpus, SentenceProtocol(), "test")
    assert not InferenceConfig().is_evaluable(corpus, SentenceProtocol(), "test")
