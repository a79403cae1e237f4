"""Number agreement: the right form of a verb against the other number's, after its sentence or the text."""

import csv
import math

import pytest
import torch

from memtune.corpora import Example
from memtune.corpora.protocols import SentenceProtocol
from memtune.errors import CorpusError
from memtune.models import logits
from memtune.tasks import AgreementConfig


def asked(sentence: str, verb: int, wrong: str, attractors: int) -> Example:
    words = sentence.split()
    return Example([words], {"agreement": [(0, verb, words[verb], wrong, attractors)]})


QUESTIONS = [
    asked("the dog barks", 2, "bark", 0),
    asked("a cat near the dogs sleeps", 5, "sleep", 1),
    asked("sleep the cats", 0, "sleeps", 0),
    asked("the cats near a dog near a dog sleep", 8, "sleeps", 2),
]


def log_probability(model, ids, word):
    """Of a word after ids, read one after the other from a zero state."""
    with torch.no_grad():
        found, _ = logits(model, torch.tensor([ids]))
    return float(found[0, -1].double().log_softmax(0)[word])


def test_both_forms_are_judged_after_the_same_words(opened, model):
    corpus = opened(QUESTIONS)
    network = model(corpus)
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(network, "valid")
    for row, question in enumerate(QUESTIONS):
        ((_, verb, right, wrong, _),) = question.rows["agreement"]
        before = [0, *(corpus.vocabulary.id_of(word) for word in question.sentences[0][:verb])]
        for column, form in enumerate((right, wrong)):
            expected = -log_probability(network, before, corpus.vocabulary.id_of(form))
            assert answers.nats_QC[row, column] == pytest.approx(expected, rel=1e-5)
    assert answers.right.tolist() == [right < wrong for right, wrong in answers.nats_QC.tolist()]


def test_through_the_text_the_state_is_carried_from_question_to_question(opened, model):
    questions = QUESTIONS * 30  # more than is read at once
    corpus = opened(questions)
    network = model(corpus)
    task = AgreementConfig(context="text").open(corpus, SentenceProtocol())
    answers = task.answer(network, "valid")
    before = [0]
    for row, question in enumerate(questions):
        ((_, verb, right, _, _),) = question.rows["agreement"]
        ids = [corpus.vocabulary.id_of(word) for word in question.sentences[0]]
        if row in (0, 1, 71, len(questions) - 1):
            expected = -log_probability(network, before + ids[:verb], corpus.vocabulary.id_of(right))
            assert answers.nats_QC[row, 0] == pytest.approx(expected, rel=1e-4)
        before += [*ids, 0]


def test_a_form_outside_the_vocabulary_is_not_asked_and_not_hidden(opened, model):
    strange = asked("the dog zigzags", 2, "zigzag", 0)
    corpus = opened(
        [*QUESTIONS, strange], text=["the dog barks", "cats bark", "seldom"] * 2 + ["once"], min_count=2
    )
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(model(corpus), "valid")
    assert answers.asked_Q.tolist() == [True, False, False, False, False]
    assert (answers.questions, len(answers.names)) == (1, 5)


def test_forms_that_are_alike_ask_nothing(opened, model):
    corpus = opened([*QUESTIONS, asked("the dog barks", 2, "barks", 0)])
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(model(corpus), "valid")
    assert answers.asked_Q.tolist() == [True] * 4 + [False]


def test_answers_are_counted_by_attractors(opened, model):
    corpus = opened(QUESTIONS)
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(model(corpus), "valid")
    assert [answers.group(0, 0).questions, answers.group(1, 1).questions, answers.group(1).questions] == [
        2,
        1,
        2,
    ]
    low, high = answers.interval()
    assert 0 <= low <= answers.accuracy <= high <= 1
    assert math.isnan(answers.group(5).accuracy)


def test_answers_are_written_a_line_a_question(opened, model, tmp_path):
    corpus = opened(QUESTIONS)
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(model(corpus), "valid")
    answers.write(tmp_path / "answers.tsv")
    with (tmp_path / "answers.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["question"] for row in rows] == ["valid:0:2", "valid:1:5", "valid:2:0", "valid:3:8"]
    assert [row["right"] for row in rows] == [str(int(right)) for right in answers.right]
    with pytest.raises(CorpusError, match="cannot write answers"):
        answers.write(tmp_path / "no" / "answers.tsv")


def test_questions_about_strange_verbs_alone_judge_no_model(opened):
    corpus = opened([asked("the dog zigzags", 2, "zigzag", 0)], min_count=3)
    with pytest.raises(CorpusError, match='1 agreement questions for valid, and none can be asked of "text"'):
        AgreementConfig().open(corpus, SentenceProtocol())
