"""Language modelling: its loss and its metrics against the models' plain logits."""

import math

import pytest
import torch

from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol
from memtune.models import LSTMConfig, build_model, logits
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.tasks import LanguageModelling, perplexity
from tests.golden.tiny_corpus import make_tiny_corpus

MODELS = [LSTMConfig(width=8, layers=2, dropout=0.5), RecurrentMemoryConfig(width=8, memory_size=4)]
each_model = pytest.mark.parametrize("config", MODELS, ids=lambda config: config.family)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_tiny_corpus(tmp_path_factory.mktemp("corpus"))


def _make_model(config, corpus):
    return build_model(config, len(corpus.vocabulary), seed=1).double()


def _compute_nats(model, inputs_T, targets_T) -> float:
    """Summed nats of one row read at once, from a zero state, without dropout."""
    model.eval()
    with torch.no_grad():
        logits_BTV, _ = logits(model, torch.tensor([inputs_T]))
    chosen = torch.tensor(targets_T).unsqueeze(1)
    return -logits_BTV[0].log_softmax(-1).gather(1, chosen).sum().item()


@each_model
def test_sentences_are_scored_like_single_sentences(corpus, config):
    model, split = _make_model(config, corpus), corpus["valid"]
    texts = [split.read_tokens(a, a + n).tolist() for a, n in zip(split.starts, split.lengths, strict=True)]
    expected = sum(_compute_nats(model, [0, *text[:-1]], text) for text in texts)
    metrics = LanguageModelling(corpus, SentenceProtocol()).evaluate(model, "valid")
    assert metrics.tokens == split.token_count
    assert metrics.loss == pytest.approx(expected / split.token_count, rel=1e-12)
    assert metrics.perplexity == pytest.approx(math.exp(metrics.loss))


@each_model
@pytest.mark.parametrize("split", ["valid", "train"])
def test_a_stream_is_scored_like_one_text(corpus, config, split):
    model, text = (
        _make_model(config, corpus),
        corpus[split].read_tokens(0, corpus[split].token_count).tolist(),
    )
    expected = _compute_nats(model, [0, *text[:-1]], text) / len(text)
    metrics = LanguageModelling(corpus, StreamProtocol()).evaluate(model, split)
    assert metrics.loss == pytest.approx(expected, rel=1e-12)


@each_model
@pytest.mark.parametrize("kind", [SentenceProtocol, StreamProtocol])
def test_perplexity_does_not_depend_on_the_batch_size(corpus, config, kind):
    model = build_model(config, len(corpus.vocabulary), seed=1)
    values = [
        LanguageModelling(corpus, kind(batch_size=size)).evaluate(model, "valid").loss for size in (1, 20)
    ]
    assert values[0] == values[1]


@each_model
def test_perplexity_does_not_depend_on_the_batches_of_an_evaluation(corpus, config):
    """Batches of one sentence and batches of hundreds differ only by float32 sums in another order."""
    model = build_model(config, len(corpus.vocabulary), seed=1).eval()
    task, plan = LanguageModelling(corpus, SentenceProtocol()), SentenceProtocol().evaluation_plan
    totals = []
    for batch_tokens in (1, 20, 5000):
        cut = plan(corpus["valid"], batch_tokens)
        totals.append(sum(task.loss(model, cut.batch(i), None)[0].item() for i in range(len(cut))))
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)
    assert totals[0] == pytest.approx(totals[2], rel=1e-6)


def test_an_evaluation_does_not_change_training_mode_and_gradients(corpus):
    model = _make_model(MODELS[0], corpus).train()
    LanguageModelling(corpus, SentenceProtocol()).evaluate(model, "valid")
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_carried_state_has_no_graph(corpus):
    task = LanguageModelling(corpus, StreamProtocol(batch_size=2, length=5))
    model, plan = _make_model(MODELS[0], corpus), task.training_plan(0, 0)
    _, state = task.loss(model, plan.batch(0), None)
    assert not any(tensor.requires_grad for tensor in state.values())
    carried, _ = task.loss(model.eval(), plan.batch(1), state)
    fresh, _ = task.loss(model.eval(), plan.batch(1), None)
    assert carried.item() != fresh.item()


def test_sentences_start_without_the_state_of_the_previous_batch(corpus):
    task = LanguageModelling(corpus, SentenceProtocol(batch_size=2))
    model, batch = _make_model(MODELS[0], corpus).eval(), task.training_plan(0, 0).batch(0)
    loss, state = task.loss(model, batch, None)
    assert task.loss(model, batch, state)[0].item() == loss.item()


def test_a_perplexity_too_large_for_a_float_is_infinite():
    assert perplexity(1e4) == math.inf
    assert perplexity(math.log(7.0)) == pytest.approx(7.0)
