from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.models import LSTMConfig, build_model, logits, negative_log_likelihood
from memtune.models.families.rnn import RNNConfig
from memtune.models.maximum_entropy import MaximumEntropyConfig
from memtune.models.outputs.hashed_ngrams import hash_contexts
from memtune.models.outputs.output_config import ClassFactoredConfig
from memtune.values import parse

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


def draw_text(length: int) -> torch.Tensor:
    """Few different words, so that n-grams recur."""
    return torch.randint(5, (3, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config):
    """A model whose n-gram weights, which start at zero, have random values."""
    model = build_model(config, WORDS, seed=1)
    torch.nn.init.uniform_(model.output.table_S, -0.5, 0.5, torch.Generator().manual_seed(2))
    return model


@every_config
def test_the_weights_of_ngrams_start_at_zero_and_change_no_logit(config):
    alone = build_model(config.model_copy(update={"maximum_entropy": None}), WORDS, seed=1)
    connected_model = build_model(config, WORDS, seed=1)
    assert connected_model.output.table_S.eq(0).all()
    torch.testing.assert_close(logits(connected_model, draw_text(9))[0], logits(alone, draw_text(9))[0])


@pytest.mark.parametrize("output", [{}, {"output": ClassFactoredConfig()}], ids=["softmax", "classes"])
def test_ngram_weights_alone_learn_the_successor_of_a_word(output):
    """Two words alternate, so the last word determines the next; the other parameters are not trained."""
    model: Any = build_model(
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
    model = make_model(RNNConfig(width=2, maximum_entropy=MaximumEntropyConfig(order=2, size=100_000)))
    negative_log_likelihood(model, torch.tensor([[4, 9]]), torch.tensor([[9, 4]]))[0].backward()
    assert model.output.table_S.grad.count_nonzero() == 3 * WORDS


def test_the_hash_of_a_context_does_not_depend_on_its_position():
    words_BK = torch.tensor([[1, 2, 3, 1, 2, 3], [9, 2, 3, 8, 1, 2]])
    contexts_BTO = hash_contexts(words_BK, 6, order=4)
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


def test_an_output_layer_without_support_for_connections_is_refused():
    fields = {"output": {"kind": "adaptive"}, "maximum_entropy": {"order": 2}}
    with pytest.raises(ConfigurationError, match=r"maximum_entropy has no connections to .*adaptive"):
        parse(RNNConfig, fields, "test")


def test_a_table_smaller_than_the_vocabulary_is_refused():
    with pytest.raises(ConfigurationError, match=r"size must be at least the 23 words.*got 22"):
        build_model(LSTMConfig(maximum_entropy=MaximumEntropyConfig(size=22)), WORDS, seed=1)


def test_calling_the_layer_without_contexts_is_refused():
    model = make_model(CONFIGS["softmax"])
    with pytest.raises(AssertionError, match="ask the model for its logits"):
        model.output(torch.zeros(5))
