import math
from typing import Any

import pytest
import torch

from memtune.models import build_model, logits
from memtune.models.families.rnn import RNNConfig
from tests.oracles.rnn import ALL_REGULARISATION

WORDS = 23


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


LAYER_REGULARISATION: dict[str, dict[str, Any]] = {
    "recurrent dropout": {"recurrent_dropout": 0.4},
    "variational dropout": {"variational_dropout": 0.4, "layers": 2},
    "variational recurrent dropout": {"variational_recurrent_dropout": 0.4, "activation": "relu"},
    "zoneout": {"zoneout": 0.4},
    "all regularisation": ALL_REGULARISATION,
}
each_regularisation = pytest.mark.parametrize(
    "options", LAYER_REGULARISATION.values(), ids=LAYER_REGULARISATION
)


def test_evaluation_drops_nothing_and_uses_the_mean_of_zoneout():
    config = RNNConfig(width=6, initial_range=0.5, **LAYER_REGULARISATION["all regularisation"])
    rule: Any = config.regularisation
    layers, output = rule.draw_stack_masks(torch.zeros(3, 2, 6), 6, config.layers, training=False)
    assert output is None
    for masks in layers:
        assert masks.kept_hidden_TBH.eq(0.5).all()
        assert masks.input_B1E is masks.state_BH is masks.candidate_TBH is None


@pytest.mark.parametrize(
    ("activation", "first", "second"),
    [
        ("tanh", math.tanh(0.75), math.tanh(0.75 + math.tanh(0.75))),
        ("sigmoid", 1 / (1 + math.exp(-0.75)), 1 / (1 + math.exp(-0.75 - 1 / (1 + math.exp(-0.75))))),
        ("relu", 0.75, 1.5),
    ],
)
def test_one_unit_by_hand(activation, first, second):
    """W, R and the word's vector are 1 and each bias is -1/8: f(3/4), then f(3/4 + the state before)."""
    model = build_model(RNNConfig(width=1, activation=activation), WORDS, seed=1).double()
    for name, parameter in model.named_parameters():
        parameter.data.fill_(-0.125 if "bias" in name else 1.0)
    hidden_BTH, state = model.encode(torch.tensor([[4, 9]]), model.initial_state(1))
    assert hidden_BTH.flatten().tolist() == pytest.approx([first, second], rel=1e-12)
    assert state["hidden"].flatten().tolist() == pytest.approx([second], rel=1e-12)


def test_dropout_between_layers_does_not_drop_from_the_last_layer():
    model = build_model(RNNConfig(width=64, layers=2, dropout=0.5), WORDS, seed=1)
    first_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    again_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    assert first_BTH.ne(0).all()
    assert not torch.equal(first_BTH, again_BTH)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_dropout_after_each_layer_drops_the_output_and_not_the_carried_state(activation):
    config = RNNConfig(width=64, dropout=0.5, dropout_placement="after", activation=activation)
    model = build_model(config, WORDS, seed=1)
    hidden_BTH, state = model.encode(draw_text(20), model.initial_state(3))
    share = hidden_BTH.eq(0).double().mean().item()
    assert share == pytest.approx(0.5, abs=0.05)  # 4,032 draws: a standard deviation of 0.008
    assert torch.equal(state["hidden"], logits(model.eval(), draw_text(20))[1]["hidden"])


def test_size_by_hand():
    """Two 10,000 x 400 tables, two 400 x 400 matrices and two biases of the layer, one bias a word."""
    expected = 2 * 4_000_000 + 2 * 160_000 + 2 * 400 + 10_000
    assert RNNConfig(width=400).parameter_count(10_000) == expected


def test_cost_per_word_by_hand():
    """2 d^2 multiply-adds a layer and d V for the output."""
    assert RNNConfig(layers=2).multiply_adds(10_000) == 2 * 2 * 128**2 + 128 * 10_000
