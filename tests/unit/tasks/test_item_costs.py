"""The costs of the sentences of a text are those of the words from one sentence end to the next."""

from typing import Any

import numpy as np
import pytest
import torch

from memtune.corpora import Corpus
from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol, TextProtocol, TreeProtocol
from memtune.models import LSTMConfig, build_model
from memtune.models.architecture import negative_log_likelihood
from memtune.models.families.dependency_rnn import DependencyRNNConfig
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.tasks import ItemCosts, LanguageModellingConfig
from memtune.tasks.item_costs import MIN_ITEMS
from memtune.training import TrialConfig
from memtune.training.trainers import CountingTrainer
from tests.golden.tiny_trees import make_tree_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_tree_corpus(tmp_path_factory.mktemp("trees"))


@pytest.mark.parametrize(
    "protocol",
    [SentenceProtocol(), SentenceProtocol(variant="tran2016", min_length=2, batch_size=2), StreamProtocol()],
    ids=lambda protocol: protocol.label,
)
def test_the_sentences_of_a_text_add_up_to_its_loss(corpus: Corpus, protocol: TextProtocol) -> None:
    model = build_model(LSTMConfig(width=6, initial_range=0.5), len(corpus.vocabulary), seed=1).double()
    task = LanguageModellingConfig().open(corpus, protocol)
    costs, metrics = task.compute_item_costs(model, "valid"), task.evaluate(model, "valid")
    assert costs.cost == pytest.approx(metrics.loss, rel=1e-12)
    assert costs.counts_I.sum() == metrics.tokens


@pytest.mark.parametrize("protocol", [TreeProtocol(), TreeProtocol(count_unknown=False)])
def test_the_sentences_of_trees_add_up_to_their_loss(corpus: Corpus, protocol: TreeProtocol) -> None:
    config = DependencyRNNConfig(width=6, labels=40, initial_range=0.5)
    model = build_model(config, len(corpus.vocabulary), seed=1).double()
    task = LanguageModellingConfig().open(corpus, protocol)
    costs, metrics = task.compute_item_costs(model, "valid"), task.evaluate(model, "valid")
    assert costs.cost == pytest.approx(metrics.loss, rel=1e-12)
    assert costs.counts_I.sum() == metrics.tokens


def test_each_sentence_has_the_nats_of_reading_it_alone(corpus: Corpus) -> None:
    model = build_model(LSTMConfig(width=6, initial_range=0.5), len(corpus.vocabulary), seed=1).double()
    found = LanguageModellingConfig().open(corpus, SentenceProtocol()).compute_item_costs(model, "valid")
    split = corpus["valid"]
    assert len(found.costs_I) == split.sentence_count
    for number in range(0, split.sentence_count, 5):
        start, length = int(split.starts[number]), int(split.lengths[number])
        words = split.read_tokens(start, start + length).tolist()
        targets, inputs = torch.tensor([words]), torch.tensor([[words[-1], *words[:-1]]])
        with torch.no_grad():
            nats, _ = negative_log_likelihood(model, inputs, targets)
        assert found.costs_I[number] == pytest.approx(float(nats), rel=1e-12)
        assert found.counts_I[number] == length


def test_a_model_that_counts_has_costs_too(corpus: Corpus) -> None:
    trial = TrialConfig(model=KneserNeyConfig(order=3))
    trainer = CountingTrainer(trial, corpus)
    trainer.advance()
    task: Any = LanguageModellingConfig().open(corpus, trial.protocol)
    costs = task.compute_item_costs(trainer.model, "valid")
    assert costs.cost == pytest.approx(task.evaluate(trainer.model, "valid").loss, rel=1e-9)


def test_the_interval_holds_the_cost_of_all_texts_in_95_percent() -> None:
    """Sentences of 1 to 30 tokens, whose nats per token differ and rise with the length, 60 to a text.

    The tolerance is four standard errors of 2,000 texts at 95 %.
    """
    random = np.random.default_rng(0)

    def draw_text(sentences: int) -> ItemCosts:
        counts_I = random.integers(1, 31, sentences)
        per_token_I = random.gamma(4.0, 1.0 + counts_I / 60) / 2
        return ItemCosts("sentences", per_token_I * counts_I, counts_I)

    truth = draw_text(4_000_000).cost
    intervals = [draw_text(60).compute_interval() or (0.0, 0.0) for _ in range(2000)]
    covered = np.mean([low <= truth <= high for low, high in intervals])
    assert covered == pytest.approx(0.95, abs=0.02)
    assert draw_text(MIN_ITEMS - 1).compute_interval() is None


@pytest.mark.parametrize("wrong", [0.002, 0.05, 0.2])
def test_the_interval_of_a_high_accuracy_holds_it_in_95_percent(wrong: float) -> None:
    """Also where every answer of most texts is right, for 20, 50 and 200 questions."""
    random = np.random.default_rng(1)
    for questions in (MIN_ITEMS, 50, 200):
        ones_I = np.ones(questions, np.int64)
        costs_TI = (random.random((1000, questions)) < wrong).astype(np.float64)
        intervals = [
            ItemCosts("questions", each_I, ones_I).compute_interval() or (1, 0) for each_I in costs_TI
        ]
        assert np.mean([low <= wrong <= high for low, high in intervals]) >= 0.93
        assert all(low <= cost <= high for (low, high), cost in zip(intervals, costs_TI.mean(1), strict=True))
