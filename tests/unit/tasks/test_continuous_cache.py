"""The continuous cache against its equations word by word, and in cases with a known answer."""

import math

import pytest
import torch

from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol
from memtune.errors import ConfigurationError
from memtune.models import LSTMConfig, build_model
from memtune.models.families.feed_forward import FeedForwardConfig
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.tasks import (
    CacheGrid,
    ContinuousCache,
    LanguageModelling,
    continuous_cache,
    evaluate_with_cache,
    tune_cache,
)
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.oracles.continuous_cache import compute_cached_nats

WIDE = {"width": 8, "initial_range": 0.5}
MODELS = [
    LSTMConfig(**WIDE, layers=2, dropout=0.5),
    RecurrentMemoryConfig(**WIDE, memory_size=4),
    FeedForwardConfig(**WIDE, order=3),
    LSTMConfig(**WIDE, maximum_entropy=MaximumEntropyConfig(order=3, size=64)),
]
each_model = pytest.mark.parametrize(
    "config", MODELS, ids=["lstm", "recurrent_memory", "feed_forward", "maximum_entropy"]
)
SENTENCE, STREAM = SentenceProtocol(), StreamProtocol()
FILTERED = SentenceProtocol(variant="tran2016", batch_size=2, min_length=4, max_length=9)
each_protocol = pytest.mark.parametrize(
    "protocol", [SENTENCE, STREAM, FILTERED], ids=["sentence", "stream", "tran2016"]
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_tiny_corpus(tmp_path_factory.mktemp("corpus"))


def make_model(config, corpus):
    model = build_model(config, len(corpus.vocabulary), seed=1).double().eval()
    for name, parameter in model.named_parameters():
        if name == "output.table_S":  # the weights of n-grams, which start at zero
            torch.nn.init.uniform_(parameter, -0.5, 0.5, torch.Generator().manual_seed(1))
    return model


def list_texts(corpus, protocol) -> list[list[int]]:
    """The texts of the validation split, in order; the state is carried within a text."""
    split = corpus["valid"]
    if protocol is STREAM:
        return [split.read_tokens(0, split.token_count).tolist()]
    texts = [split.read_tokens(a, a + n).tolist() for a, n in zip(split.starts, split.lengths, strict=True)]
    if protocol is SENTENCE:
        return texts
    kept: dict[int, list[int]] = {}
    for place, text in enumerate(texts):
        kept.setdefault(len(text), []).append(place)
    places = [p for n, found in kept.items() if 4 <= n <= 9 for p in found[: len(found) // 2 * 2]]
    return [texts[place] for place in sorted(places)]


@each_model
@each_protocol
@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_the_loss_matches_the_equations(corpus, config, protocol, size):
    model, cache = make_model(config, corpus), ContinuousCache(size=size, flatness=0.7, weight=0.2)
    with torch.no_grad():
        expected = compute_cached_nats(model, list_texts(corpus, protocol), size, 0.7, 0.2)
    found = evaluate_with_cache(model, corpus, protocol, "valid", cache)
    assert found.tokens == len(expected)
    assert found.loss == pytest.approx(sum(expected) / len(expected), rel=1e-12)
    assert found.perplexity == pytest.approx(math.exp(found.loss))


@each_protocol
@pytest.mark.parametrize("block", [1, 100_000])
def test_the_loss_does_not_depend_on_the_block_size(corpus, monkeypatch, protocol, block):
    model, cache = make_model(MODELS[0], corpus), ContinuousCache(size=300, flatness=0.7, weight=0.2)
    expected = evaluate_with_cache(model, corpus, protocol, "train", cache).loss
    monkeypatch.setattr(continuous_cache, "BLOCK_WORDS", block)
    found = evaluate_with_cache(model, corpus, protocol, "train", cache).loss
    assert found == pytest.approx(expected, rel=1e-12)


@each_model
@each_protocol
def test_a_weight_of_zero_gives_the_plain_perplexity(corpus, config, protocol):
    model, cache = make_model(config, corpus), ContinuousCache(size=50, weight=0.0)
    plain = LanguageModelling(corpus, protocol).evaluate(model, "valid")
    found = evaluate_with_cache(model, corpus, protocol, "valid", cache)
    assert found.tokens == plain.tokens
    assert found.loss == pytest.approx(plain.loss, rel=1e-12)


def test_equal_states_give_the_frequencies_of_the_last_words(corpus):
    """With zero weights the model is uniform and the cache gives frequencies among the last ten words."""
    text = list_texts(corpus, STREAM)[0]
    model = make_model(LSTMConfig(width=3, initial_range=0.0), corpus)
    uniform = 1 / len(corpus.vocabulary)
    expected = -math.log(uniform)
    for place in range(1, len(text)):
        last = text[max(0, place - 10) : place]
        expected -= math.log(0.4 * uniform + 0.6 * last.count(text[place]) / len(last))
    cache = ContinuousCache(size=10, flatness=5.0, weight=0.6)
    found = evaluate_with_cache(model, corpus, STREAM, "valid", cache)
    assert found.loss == pytest.approx(expected / len(text), rel=1e-12)


def test_tune_cache_chooses_the_setting_with_the_lowest_loss(corpus):
    model = make_model(MODELS[0], corpus)
    grid = CacheGrid(size=30, flatnesses=(0.0, 0.5, 2.0), weights=(0.0, 0.1, 0.4))
    losses = {
        (flatness, weight): evaluate_with_cache(
            model,
            corpus,
            STREAM,
            "valid",
            ContinuousCache(size=30, flatness=flatness, weight=weight),
        ).loss
        for flatness in grid.flatnesses
        for weight in grid.weights
    }
    chosen = tune_cache(model, corpus, STREAM, grid)
    assert losses[chosen.flatness, chosen.weight] == min(losses.values())
    assert chosen.size == 30


def test_an_evaluation_restores_training_mode(corpus):
    model = make_model(MODELS[0], corpus).train()
    evaluate_with_cache(model, corpus, STREAM, "valid", ContinuousCache())
    assert model.training


def test_a_model_without_hidden_states_is_refused(corpus):
    model = KneserNeyConfig().build(len(corpus.vocabulary))
    with pytest.raises(ConfigurationError, match='a cache needs a network, and family = "kneser_ney"'):
        evaluate_with_cache(model, corpus, STREAM, "valid", ContinuousCache())
    with pytest.raises(ConfigurationError, match='a cache needs a network, and family = "kneser_ney"'):
        tune_cache(model, corpus, STREAM, CacheGrid())


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": 2**63},
        {"flatness": -0.1},
        {"flatness": math.inf},
        {"weight": 1.0},
        {"weight": -0.1},
    ],
)
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        parse(ContinuousCache, wrong, "cache")


def test_the_name_of_a_cache_tells_its_settings_apart():
    assert ContinuousCache(size=20, flatness=1.0, weight=0.1).label == "cache_20_1_0.1"
    assert ContinuousCache(size=20, flatness=1.0000001, weight=0.1).label == "cache_20_1.0000001_0.1"
