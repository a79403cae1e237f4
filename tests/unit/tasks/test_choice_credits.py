"""Ties in questions: k best candidates with exactly equal scores count 1 / k in every accuracy."""

import csv
from math import inf, nan

import numpy as np
import pytest
import torch

from memtune.corpora import Example
from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.objective import Objective
from memtune.tasks import AgreementConfig, Answers, CompletionConfig
from memtune.tasks.item_costs import count_best_candidates, credit_choices

TEXT = ["the dog barks", "the dog barks", "the dogs bark", "a cat sleeps", "a bird sleeps", "cats sleep"]


def make_answers(nats, correct):
    nats_QC = np.array(nats, float)
    names = tuple(map(str, range(len(nats_QC))))
    asked_Q = np.array(correct) >= 0
    return Answers("completion", names, nats_QC, np.array(correct), asked_Q, np.zeros(len(names), np.int64))


def make_agreement_question(sentence, verb, wrong):
    words = sentence.split()
    return Example([words], {"agreement": [(0, verb, words[verb], wrong, 0)]})


def make_completion_question(sentence, candidates, correct):
    words = sentence.split()
    blank = words.index("_")
    sentences = [[*words[:blank], word, *words[blank + 1 :]] for word in candidates.split()]
    return Example(sentences, {"completion": [(0, len(sentences), blank, correct, "1")]})


def fit_bigrams(corpus):
    """A Kneser-Ney bigram model of the corpus' training text."""
    plan = SentenceProtocol().evaluation_plan(corpus["train"], 10**6)
    tokens = np.concatenate([plan.batch(i).targets_BT.numpy().ravel() for i in range(len(plan))])
    starts = np.flatnonzero(np.concatenate(([True], tokens[:-1] == 0)))
    return KneserNeyConfig(order=2).fit(tokens, starts, len(corpus.vocabulary))


@pytest.mark.parametrize(
    ("costs", "correct", "credit"),
    [
        ([1.0, 2.0, 3.0], 0, 1),
        ([1.0, 2.0, 3.0], 1, 0),
        ([1.0, 1.0, 3.0], 0, 1 / 2),
        ([3.0, 1.0, 1.0], 2, 1 / 2),
        ([1.0, 1.0, 3.0], 2, 0),
        ([1.0, 1.0, 1.0], 1, 1 / 3),
        ([1.0, np.nextafter(1.0, 2.0), 3.0], 0, 1),
        ([inf, inf, 2.0], 0, 0),
        ([nan, nan, nan], 0, 1 / 3),
        ([nan, 5.0, 6.0], 0, 0),
    ],
)
def test_a_tie_among_k_best_candidates_counts_one_kth(costs, correct, credit):
    assert credit_choices(torch.tensor([costs]), torch.tensor([correct])).tolist() == [credit]


def test_only_exactly_equal_costs_are_ties():
    costs_QC = torch.tensor([[1.0, 1.0], [1.0, np.nextafter(1.0, 2.0)]], dtype=torch.float64)
    assert count_best_candidates(costs_QC).tolist() == [2, 1]


def test_accuracy_and_number_of_ties_leave_out_questions_that_do_not_count():
    found = make_answers([[1, 2], [1, 1], [2, 1], [1, 1]], [0, 0, 0, -1])
    assert (found.accuracy, found.tie_count, found.question_count) == (0.5, 1, 3)


def test_accuracy_does_not_depend_on_the_order_of_the_candidates():
    nats, correct = [[1, 1, 2], [3, 1, 1], [0, 0, 0]], [0, 0, 0]
    swapped = make_answers([row[::-1] for row in nats], [2, 2, 2])
    assert make_answers(nats, correct).accuracy == swapped.accuracy == pytest.approx((1 / 2 + 0 + 1 / 3) / 3)


def test_the_interval_of_an_accuracy_is_exact():
    """Clopper and Pearson: with 20 of 20 right, the lower bound is the 20th root of 0.025."""
    found = make_answers([[1, 2]] * 20, [0] * 20).compute_confidence_interval()
    assert found == pytest.approx((0.025 ** (1 / 20), 1.0))
    low, high = make_answers([[1, 2]] * 20, [1] * 20).compute_confidence_interval()
    assert (low, high) == pytest.approx((0.0, 1 - 0.025 ** (1 / 20)))


def test_ties_count_in_the_interval_as_the_same_accuracy_without_ties():
    """Ties vary less than right and wrong answers, so that the interval is wide enough."""
    without = make_answers([[1, 2], [2, 1]] * 50, [0] * 100).compute_confidence_interval()
    with_ties = make_answers([[1, 2], [2, 1], [1, 1], [1, 1]] * 25, [0] * 100).compute_confidence_interval()
    assert without == with_ties == pytest.approx((0.3983, 0.6017), abs=1e-4)


def test_written_answers_name_the_number_of_best_candidates_and_the_credit(tmp_path):
    make_answers([[1, 2, 3], [1, 1, 1], [1, 1, 2]], [0, 0, -1]).write_tsv(tmp_path / "answers.tsv")
    with (tmp_path / "answers.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [(row["tied"], row["right"]) for row in rows] == [("1", "1"), ("3", "0.333333"), ("2", "")]


def test_verbs_with_equal_counts_in_an_n_gram_model_tie(open_joined):
    """After "birds", a context without continuations, "barks" and "bark" have equal continuation counts."""
    questions = [
        make_agreement_question("the dog barks", 2, "bark"),
        make_agreement_question("birds bark", 1, "barks"),
    ]
    corpus = open_joined(questions, text=[*TEXT, "birds"])
    found = AgreementConfig().open(corpus, SentenceProtocol()).answer(fit_bigrams(corpus), "valid")
    assert found.credits.tolist() == [1, 0.5]
    assert (found.accuracy, found.tie_count) == (0.75, 1)


def test_metrics_hold_accuracy_cost_and_number_of_ties(open_joined):
    """The cost that compares champions counts the tie as half a mistake."""
    questions = [
        make_agreement_question("the dog barks", 2, "bark"),
        make_agreement_question("birds bark", 1, "barks"),
    ]
    corpus = open_joined(questions, text=[*TEXT, "birds"])
    metrics = AgreementConfig().open(corpus, SentenceProtocol()).evaluate(fit_bigrams(corpus), "valid")
    assert (metrics.accuracy, metrics.ties, metrics.cost(Objective.ACCURACY)) == (0.75, 1, 0.25)


def test_an_n_gram_model_ties_candidates_outside_its_vocabulary(open_joined):
    question = make_completion_question("the dog _", "zebra gnu yak cats", 1)
    corpus = open_joined([question], text=[*TEXT * 2, "once"], min_count=2)
    found = (
        CompletionConfig(unknown="skip").open(corpus, SentenceProtocol()).answer(fit_bigrams(corpus), "valid")
    )
    assert found.best_counts.tolist() == [3]
    assert found.accuracy == pytest.approx(1 / 3)


def test_a_network_reads_equal_sentences_once(open_joined, build_network, monkeypatch):
    """Rounding in a batched matrix product may depend on the row, so equal sentences must share one score."""
    questions = [
        make_completion_question("the dog barks near a _", "zebra gnu yak dog", 0) for _ in range(60)
    ]
    corpus = open_joined(questions, text=[*TEXT, "near near near", *TEXT, "once"], min_count=2)
    network = build_network(corpus)
    rows_read: list[int] = []
    read = network.candidate_nats

    def count_rows(inputs, *rest):
        rows_read.append(len(inputs))
        return read(inputs, *rest)

    monkeypatch.setattr(network, "candidate_nats", count_rows)
    found = CompletionConfig().open(corpus, SentenceProtocol()).answer(network, "valid")
    assert (rows_read, found.nats_QC.shape) == ([2], (60, 4))
    assert np.ptp(found.nats_QC[:, :3]) == 0 < np.ptp(found.nats_QC)
