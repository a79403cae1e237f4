"""Sentence completion: the candidate with the most probable sentence, and unknown words."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from memtune.corpora import Example
from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.errors import CorpusError
from memtune.models import negative_log_likelihood
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.objective import Objective
from memtune.tasks import Answers, CompletionConfig, ContinuousCache
from memtune.training import evaluate


def make_question(name: str, sentence: str, candidates: str, answer: int) -> Example:
    """A question whose sentence has "_" in the place of the candidates."""
    words, choices = sentence.split(), candidates.split()
    blank = words.index("_")
    completed = [[*words[:blank], word, *words[blank + 1 :]] for word in choices]
    return Example(completed, {"completion": [(0, len(choices), blank, answer, name)]})


QUESTIONS = [
    make_question("1", "the _ barks", "dog dogs cat sleeps near", 0),
    make_question("2", "_ near the cats bark at a dog near a dog", "cats dogs dog a the", 1),
    make_question("3", "Dogs _", "sleep BARK sleeps cat at", 1),
]


def compute_nats(model, corpus, words):
    """Nats of one sentence, read alone."""
    ids = [corpus.vocabulary.get_id(word) for word in words]
    text = torch.tensor([[0, *ids, 0]])
    with torch.no_grad():
        return float(negative_log_likelihood(model, text[:, :-1], text[:, 1:])[0])


def test_the_cost_of_a_candidate_is_that_of_its_whole_sentence(open_joined, build_network):
    corpus = open_joined(QUESTIONS)
    network = build_network(corpus)
    answers = CompletionConfig().open(corpus, SentenceProtocol()).answer(network, "valid")
    for row, example in enumerate(QUESTIONS[:2]):
        expected = [compute_nats(network, corpus, sentence) for sentence in example.sentences]
        assert answers.nats_QC[row] == pytest.approx(expected, rel=1e-5)
    assert answers.names == ("1", "2", "3")


def test_questions_in_another_case_are_read_in_the_case_of_the_text(open_joined, build_network):
    corpus = open_joined(QUESTIONS)
    network = build_network(corpus)
    answers = CompletionConfig().open(corpus, SentenceProtocol()).answer(network, "valid")
    assert answers.nats_QC[2, 1] == pytest.approx(compute_nats(network, corpus, ["dogs", "bark"]), rel=1e-5)


def test_an_n_gram_model_completes_sentences_too(open_joined):
    corpus = open_joined(QUESTIONS)
    task = CompletionConfig().open(corpus, SentenceProtocol())
    plan = SentenceProtocol().evaluation_plan(corpus["train"], 10**6)
    tokens = np.concatenate([plan.batch(i).targets_BT.numpy().ravel() for i in range(len(plan))])
    starts = np.flatnonzero(np.concatenate(([True], tokens[:-1] == 0)))
    fitted = KneserNeyConfig(order=3).fit(tokens, starts, len(corpus.vocabulary))
    answers = task.answer(fitted, "valid")
    expected = [compute_nats(fitted, corpus, sentence) for sentence in QUESTIONS[0].sentences]
    assert answers.nats_QC[0] == pytest.approx(expected, rel=1e-9)
    assert answers.credits[0] == 1


def test_the_metrics_combine_those_of_the_text_with_the_accuracy_of_the_answers(open_joined, build_network):
    corpus = open_joined(QUESTIONS)
    network, task = build_network(corpus), CompletionConfig().open(corpus, SentenceProtocol())
    metrics, answers = task.evaluate(network, "valid"), task.answer(network, "valid")
    assert metrics.tokens == corpus["valid"].token_count
    assert (metrics.accuracy, metrics.questions) == (answers.accuracy, 3)
    assert metrics.cost(Objective.ACCURACY) == 1 - answers.accuracy


def test_words_outside_the_vocabulary_are_counted_or_left_out(open_joined, build_network):
    questions = [make_question("1", "the zebra _", "barks sleeps", 0)]
    corpus = open_joined(questions, min_count=3, text=[*["the dog barks", "a dog sleeps"] * 3, "unseen"])
    network = build_network(corpus)
    counted, skipped = (
        CompletionConfig(unknown=unknown).open(corpus, SentenceProtocol()).answer(network, "valid")
        for unknown in ("count", "skip")
    )
    whole = compute_nats(network, corpus, ["the", "zebra", "barks"])
    text = torch.tensor([[0, *(corpus.vocabulary.get_id(word) for word in ("the", "zebra", "barks")), 0]])
    mask = torch.tensor([[True, False, True, True]])
    with torch.no_grad():
        rest = float(negative_log_likelihood(network, text[:, :-1], text[:, 1:], mask)[0])
    assert counted.nats_QC[0, 0] == pytest.approx(whole, rel=1e-5)
    assert skipped.nats_QC[0, 0] == pytest.approx(rest, rel=1e-5)


def test_unknown_words_are_refused_by_a_vocabulary_without_unk(open_joined):
    corpus = open_joined([make_question("1", "the zebra _", "barks sleeps", 0)], unknown="refuse")
    with pytest.raises(CorpusError, match=r"zebra.*--unknown map"):
        CompletionConfig().open(corpus, SentenceProtocol())


def test_the_error_for_a_text_without_questions_explains_how_to_join_them(open_joined):
    agreement = [Example([["the", "dog", "barks"]], {"agreement": [(0, 2, "barks", "bark", 0)]})]
    with pytest.raises(CorpusError, match=r"has no completion questions.*text\+QUESTIONS"):
        CompletionConfig().open(open_joined(agreement), SentenceProtocol())


def test_questions_with_unequal_numbers_of_candidates_are_refused_before_a_training(open_joined):
    corpus = open_joined([QUESTIONS[0], make_question("4", "the _", "dog cat", 0)])
    with pytest.raises(CorpusError, match="equal numbers of candidates"):
        CompletionConfig().open(corpus, SentenceProtocol())


@pytest.mark.parametrize(("scores", "accuracy"), [("dep-rnn-4g-h100", 0.5404), ("seq-rnn-h200", 0.3)])
def test_published_scores_give_their_published_accuracy(scores, accuracy):
    """Base-10 log probabilities of all candidates of the 520 questions, as the authors released them."""
    default = Path(__file__).parents[4] / "shared" / "corpora"
    folder = Path(os.environ.get("MEMTUNE_TEST_CORPORA", default)) / "msr_completion"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    logs_QC = np.loadtxt(folder / f"scores.dev.{scores}.txt").reshape(-1, 5)
    labels_Q = np.loadtxt(folder / "dev.labels", dtype=int)
    asked_Q = np.ones(len(labels_Q), bool)
    answers = Answers(
        "completion", ("",) * len(labels_Q), -logs_QC, labels_Q, asked_Q, np.zeros_like(labels_Q)
    )
    assert (round(answers.accuracy, 4), answers.tie_count) == (accuracy, 0)


def test_questions_without_answers_can_be_scored_but_give_no_accuracy(open_joined, build_network):
    unanswered = [make_question(f"{number}", "the _ barks", "dog cat", -1) for number in range(3)]
    corpus = open_joined(unanswered)
    with pytest.raises(
        CorpusError, match=r'"asked" has 3 .* for valid, and a model of "text" can answer none.*--option ans'
    ):
        CompletionConfig(objective=Objective.PERPLEXITY).open(corpus, SentenceProtocol())
    task = CompletionConfig().open_questions(corpus, SentenceProtocol())
    assert task.answer(build_network(corpus), "valid").nats_QC.shape == (3, 2)
    assert task.evaluate(build_network(corpus), "valid").accuracy is None


def test_an_evaluation_with_a_cache_answers_questions_without_it(open_joined, build_network):
    corpus = open_joined(QUESTIONS)
    network, task, protocol = build_network(corpus), CompletionConfig(), SentenceProtocol()
    plain = evaluate(network, corpus, protocol, "valid", task=task)
    cached = evaluate(
        network, corpus, protocol, "valid", cache=ContinuousCache(size=9, weight=0.3), task=task
    )
    assert (cached.accuracy, cached.questions) == (plain.accuracy, 3)
    assert cached.perplexity != plain.perplexity
