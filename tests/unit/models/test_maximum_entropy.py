import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.models import (
    ClassFactoredConfig,
    LSTMConfig,
    MaximumEntropyConfig,
    RNNConfig,
    build_model,
    logits,
    negative_log_likelihood,
)
from memtune.models.layers.hashed_ngrams import context_hashes
from memtune.values import parse
from tests.oracles.agreement import assert_agreement
from tests.oracles.lstm import lstm_stack
from tests.oracles.output_layers import connected

WORDS = 23
CONFIGS = {
    "softmax": LSTMConfig(width=5, initial_range=0.5, maximum_entropy=MaximumEntropyConfig(size=400)),
    "words alone": LSTMConfig(
        width=5, initial_range=0.5, maximum_entropy=MaximumEntropyConfig(order=1, size=WORDS)
    ),
    "tied words, long n-grams": LSTMConfig(
        width=5, initial_range=0.5, tie_output=True, maximum_entropy=MaximumEntropyConfig(order=5, size=60)
    ),
    "classes": LSTMConfig(
        width=5,
        initial_range=0.5,
        output=ClassFactoredConfig(classes=6),
        maximum_entropy=MaximumEntropyConfig(order=4, size=150),
    ),
    "classes of roots": LSTMConfig(
        width=5,
        layers=2,
        initial_range=0.5,
        tie_output=True,
        output=ClassFactoredConfig(mass="square_root"),
        maximum_entropy=MaximumEntropyConfig(size=97),
    ),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def text(length: int) -> torch.Tensor:
    """Few different words, so that n-grams come again."""
    return torch.randint(5, (3, length + 1), generator=torch.Generator().manual_seed(length))


def model_of(config):
    """Weights of n-grams start at zero: they are given values."""
    model = build_model(config, WORDS, seed=1)
    torch.nn.init.uniform_(model.output.table_S, -0.5, 0.5, torch.Generator().manual_seed(2))
    return model


def oracle(config, parameters, tokens_BT):
    return [_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _sentence(config, parameters, words):
    embeddings = [parameters["body.embedding.weight"][word] for word in words]
    hidden = lstm_stack(parameters, "body.stack.lstm", config.layers, embeddings)
    return [connected(config, parameters, words[: t + 1], h) for t, h in enumerate(hidden)]


@pytest.mark.parametrize("length", [1, 2, 15, 16, 63])
@every_config
def test_agrees_with_its_equation(config, length):
    assert_agreement(model_of(config).double(), oracle, text(length), tolerance=1e-9)


@every_config
def test_agrees_in_single_precision(config):
    assert_agreement(model_of(config), oracle, text(16), tolerance=1e-5)


@pytest.mark.parametrize("carried_from", [1, 2, 7, 15])
@every_config
def test_carried_words_agree_with_reading_the_whole_text(config, carried_from):
    assert_agreement(model_of(config).double(), oracle, text(16), tolerance=1e-9, carried_from=carried_from)


@every_config
def test_the_weights_of_ngrams_start_at_zero_and_leave_the_network_as_it_is(config):
    alone = build_model(config.model_copy(update={"maximum_entropy": None}), WORDS, seed=1)
    connected_model = build_model(config, WORDS, seed=1)
    assert connected_model.output.table_S.eq(0).all()
    torch.testing.assert_close(logits(connected_model, text(9))[0], logits(alone, text(9))[0])


@pytest.mark.parametrize("output", [{}, {"output": ClassFactoredConfig()}], ids=["softmax", "classes"])
def test_what_follows_a_word_is_learnt_without_the_network(output):
    """Two words that take turns, told apart by the last one alone, while the rest of the network is still."""
    model = build_model(
        RNNConfig(width=1, maximum_entropy=MaximumEntropyConfig(order=2, size=5000), **output), WORDS, seed=1
    )
    words_BT = torch.tensor([[3, 8] * 10])
    optimiser = torch.optim.SGD([model.output.table_S], lr=1.0)
    for _ in range(30):
        optimiser.zero_grad()
        nats, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
        nats.backward()
        optimiser.step()
    assert nats / 19 < 0.05


def test_only_slices_that_were_read_get_a_gradient():
    """One context of no word and two of one, each a slice of 23 weights."""
    model = model_of(RNNConfig(width=2, maximum_entropy=MaximumEntropyConfig(order=2, size=100_000)))
    negative_log_likelihood(model, torch.tensor([[4, 9]]), torch.tensor([[9, 4]]))[0].backward()
    assert model.output.table_S.grad.count_nonzero() == 3 * WORDS


def test_contexts_are_the_same_words_wherever_they_stand():
    words_BK = torch.tensor([[1, 2, 3, 1, 2, 3], [9, 2, 3, 8, 1, 2]])
    contexts_BTO = context_hashes(words_BK, 6, order=4)
    assert contexts_BTO[..., 0].unique().numel() == 1
    assert torch.equal(contexts_BTO[0, 2], contexts_BTO[0, 5])
    assert torch.equal(contexts_BTO[0, 2, :3], contexts_BTO[1, 2, :3])
    assert contexts_BTO[0, 2, 3] != contexts_BTO[1, 2, 3]
    texts = [[0, 0, *row] for row in words_BK.tolist()]
    different = {tuple(row[t - n : t]) for row in texts for t in range(3, 9) for n in range(1, 4)}
    assert len(contexts_BTO[..., 1:].unique()) == len(different)


def test_size_by_hand():
    config = LSTMConfig(width=8, maximum_entropy=MaximumEntropyConfig(size=1000))
    assert config.parameter_count(WORDS) == LSTMConfig(width=8).parameter_count(WORDS) + 1000


def test_an_output_layer_that_takes_no_connections_is_refused():
    fields = {"output": {"kind": "adaptive"}, "maximum_entropy": {"order": 2}}
    with pytest.raises(ConfigurationError, match=r"maximum_entropy has no connections to .*adaptive"):
        parse(RNNConfig, fields, "test")


def test_a_table_smaller_than_the_vocabulary_is_refused():
    with pytest.raises(ConfigurationError, match=r"size must be at least the 23 words.*got 22"):
        build_model(LSTMConfig(maximum_entropy=MaximumEntropyConfig(size=22)), WORDS, seed=1)


def test_the_layer_alone_has_no_answer():
    model = model_of(CONFIGS["softmax"])
    with pytest.raises(AssertionError, match="ask the model for its logits"):
        model.output(torch.zeros(5))
