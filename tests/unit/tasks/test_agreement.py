"""Number agreement: the correct form of a verb against the wrong one, after its sentence or the text."""

import csv
import math
from pathlib import Path

import pytest
import torch

from memtune.corpora import Example
from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.errors import ConfigurationError, CorpusError, StorageError
from memtune.models import logits
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.tasks import AgreementConfig


def make_question(sentence: str, verb: int, wrong: str, attractors: int) -> Example:
    words = sentence.split()
    return Example([words], {"agreement": [(0, verb, words[verb], wrong, attractors)]})


QUESTIONS = [
    make_question("the dog barks", 2, "bark", 0),
    make_question("a cat near the dogs sleeps", 5, "sleep", 1),
    make_question("sleep the cats", 0, "sleeps", 0),
    make_question("the cats near a dog near a dog sleep", 8, "sleeps", 2),
]


def compute_log_probability(model, ids, word):
    """Log probability of a word after ids, read from a zero state."""
    with torch.no_grad():
        logits_BTV, _ = logits(model, torch.tensor([ids]))
    return float(logits_BTV[0, -1].double().log_softmax(0)[word])


def test_both_forms_are_scored_after_the_same_words(open_joined, build_network):
    corpus = open_joined(QUESTIONS)
    network = build_network(corpus)
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(network, "valid")
    for row, question in enumerate(QUESTIONS):
        ((_, verb, right, wrong, _),) = question.rows["agreement"]
        before = [0, *(corpus.vocabulary.get_id(word) for word in question.sentences[0][:verb])]
        for column, form in enumerate((right, wrong)):
            expected = -compute_log_probability(network, before, corpus.vocabulary.get_id(form))
            assert answers.nats_QC[row, column] == pytest.approx(expected, rel=1e-5)
    assert answers.credits.tolist() == [right < wrong for right, wrong in answers.nats_QC.tolist()]


def test_the_context_text_carries_the_state_from_question_to_question(open_joined, build_network):
    questions = QUESTIONS * 30  # more tokens than one chunk
    corpus = open_joined(questions)
    network = build_network(corpus)
    task = AgreementConfig(context="text").open(corpus, SentenceProtocol())
    answers = task.answer(network, "valid")
    before = [0]
    for row, question in enumerate(questions):
        ((_, verb, right, _, _),) = question.rows["agreement"]
        ids = [corpus.vocabulary.get_id(word) for word in question.sentences[0]]
        if row in (0, 1, 71, len(questions) - 1):
            expected = -compute_log_probability(network, before + ids[:verb], corpus.vocabulary.get_id(right))
            assert answers.nats_QC[row, 0] == pytest.approx(expected, rel=1e-4)
        before += [*ids, 0]


def test_a_model_that_reads_ahead_does_not_read_a_text_in_pieces(open_joined):
    corpus, task = open_joined(QUESTIONS), AgreementConfig(context="text")
    config = RecurrentMemoryConfig(width=4, memory_size=2, bidirectional=True)
    with pytest.raises(ConfigurationError, match=r"must be whole; set task\.context = \"sent"):
        task.build(config, len(corpus.vocabulary))
    model = config.build(len(corpus.vocabulary))
    with pytest.raises(ConfigurationError, match="reads ahead: sentences must be whole"):
        task.open(corpus, SentenceProtocol()).answer(model, "valid")


def test_a_question_with_an_unknown_form_does_not_count_and_stays_in_the_answers(open_joined, build_network):
    unknown = make_question("the dog zigzags", 2, "zigzag", 0)
    corpus = open_joined(
        [*QUESTIONS, unknown], text=["the dog barks", "cats bark", "seldom"] * 2 + ["once"], min_count=2
    )
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(build_network(corpus), "valid")
    assert answers.asked_Q.tolist() == [True, False, False, False, False]
    assert (answers.question_count, len(answers.names)) == (1, 5)


def test_a_question_with_two_equal_forms_does_not_count(open_joined, build_network):
    corpus = open_joined([*QUESTIONS, make_question("the dog barks", 2, "barks", 0)])
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(build_network(corpus), "valid")
    assert answers.asked_Q.tolist() == [True] * 4 + [False]


def test_answers_are_counted_by_attractors(open_joined, build_network):
    corpus = open_joined(QUESTIONS)
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(build_network(corpus), "valid")
    assert [
        answers.select_groups(0, 0).question_count,
        answers.select_groups(1, 1).question_count,
        answers.select_groups(1).question_count,
    ] == [
        2,
        1,
        2,
    ]
    low, high = answers.compute_confidence_interval()
    assert 0 <= low <= answers.accuracy <= high <= 1
    assert math.isnan(answers.select_groups(5).accuracy)


def test_the_file_of_answers_has_one_line_for_each_question(open_joined, build_network, tmp_path):
    corpus = open_joined(QUESTIONS)
    answers = AgreementConfig().open(corpus, SentenceProtocol()).answer(build_network(corpus), "valid")
    answers.write_tsv(tmp_path / "answers.tsv")
    with (tmp_path / "answers.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["question"] for row in rows] == ["valid:0:2", "valid:1:5", "valid:2:0", "valid:3:8"]
    assert [row["right"] for row in rows] == [f"{credit:g}" for credit in answers.credits]
    with pytest.raises(StorageError, match=r"answers\.tsv cannot be written"):
        answers.write_tsv(Path("/proc/nothing/answers.tsv"))


def test_a_corpus_with_only_unknown_verbs_is_refused(open_joined):
    corpus = open_joined([make_question("the dog zigzags", 2, "zigzag", 0)], min_count=3)
    with pytest.raises(
        CorpusError, match='1 agreement question for valid, and a model of "text" can answer none'
    ):
        AgreementConfig().open(corpus, SentenceProtocol())
