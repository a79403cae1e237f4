from itertools import product

import pytest
import torch

from memtune.models import build_model, logits
from memtune.models.families.feed_forward import FeedForwardConfig

WORDS = 23
READINGS = [*product([2, 3, 6], [False, True])]


def make_config(**fields) -> FeedForwardConfig:
    return FeedForwardConfig(**{"width": 6, "embedding_width": 4, "initial_range": 0.6, **fields})


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: FeedForwardConfig):
    return build_model(config, WORDS, seed=1).double()


@pytest.mark.parametrize(("order", "direct"), READINGS)
def test_a_prediction_depends_on_exactly_the_words_of_its_n_gram(order, direct):
    model, words_BT = make_model(make_config(order=order, direct=direct)), torch.arange(12).unsqueeze(0)
    expected_V = logits(model, words_BT)[0][0, -1]
    for back in range(12):
        changed_BT = words_BT.clone()
        changed_BT[0, 11 - back] = 20
        same = torch.equal(logits(model, changed_BT)[0][0, -1], expected_V)
        assert same == (back >= order - 1)


def test_state_remembers_only_the_words_that_the_next_n_gram_needs():
    model, words_BT = make_model(make_config(order=5)), draw_text(9)
    assert logits(model, words_BT[:, :2])[1]["words"].tolist() == words_BT[:, :2].tolist()
    assert logits(model, words_BT)[1]["words"].tolist() == words_BT[:, -3:].tolist()


@pytest.mark.parametrize("direct", [False, True])
def test_size_by_hand(direct):
    """A free parameter for each entry of b, W, U, d, H and C: |V| (1 + nm + h) + h (1 + nm) + |V| m."""
    config = FeedForwardConfig(width=50, embedding_width=60, order=6, direct=direct)
    V, h, m, n = 17_964, 50, 60, 5  # as table 1 of the paper counts words of context
    connected = V * n * m if direct else 0
    assert config.parameter_count(V) == V * (1 + m + h) + connected + h * (1 + n * m)


def test_the_default_has_about_two_million_parameters_on_penn_treebank():
    """Beneš et al. (2017) estimate this size for their model."""
    assert FeedForwardConfig().parameter_count(10_000) == pytest.approx(2e6, rel=0.05)


def test_cost_per_word_by_hand():
    """h (n - 1) m for the hidden layer; h V, and with direct connections (n - 1) m V, for the output."""
    assert FeedForwardConfig().multiply_adds(10_000) == 100 * 400 + 100 * 10_000
    assert FeedForwardConfig(direct=True).multiply_adds(10_000) == 100 * 400 + 500 * 10_000
