import math

import pytest
import torch

from memtune.models import RNNConfig, build_model, logits
from tests.oracles.agreement import assert_agreement
from tests.oracles.rnn import regularised_rnn_logits, rnn_logits

WORDS = 23
CONFIGS = {
    "tanh": RNNConfig(width=6, initial_range=0.5),
    "sigmoid": RNNConfig(width=6, activation="sigmoid", initial_range=0.8),
    "relu": RNNConfig(width=6, activation="relu", initial_range=0.5),
    "three layers of tanh": RNNConfig(width=5, layers=3, initial_range=0.5),
    "two layers of sigmoid, tied": RNNConfig(
        width=5, layers=2, activation="sigmoid", tie_output=True, initial_range=0.8
    ),
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 63])
@every_config
def test_agrees_with_its_equation(config, length):
    model = build_model(config, WORDS, seed=1).double()
    assert_agreement(model, rnn_logits, text(length), tolerance=1e-9)


@every_config
def test_agrees_in_single_precision(config):
    assert_agreement(build_model(config, WORDS, seed=1), rnn_logits, text(16), tolerance=1e-5)


@pytest.mark.parametrize("carried_from", [1, 7, 15])
@every_config
def test_carried_state_agrees_with_reading_the_whole_text(config, carried_from):
    model = build_model(config, WORDS, seed=1).double()
    assert_agreement(model, rnn_logits, text(16), tolerance=1e-9, carried_from=carried_from)


WITHIN = {
    "recurrent dropout": {"recurrent_dropout": 0.4},
    "variational dropout": {"variational_dropout": 0.4, "layers": 2},
    "variational recurrent dropout": {"variational_recurrent_dropout": 0.4, "activation": "relu"},
    "zoneout": {"zoneout": 0.4},
    "all of them": {
        "recurrent_dropout": 0.2,
        "variational_dropout": 0.3,
        "variational_recurrent_dropout": 0.4,
        "zoneout": 0.5,
        "layers": 2,
        "activation": "sigmoid",
    },
}
each_within = pytest.mark.parametrize("options", WITHIN.values(), ids=WITHIN)


def drawn_alike(model):
    """The oracle under the masks that the model draws next."""

    def oracle(config, parameters, tokens_BT):
        masks = model._draw_masks(model.embedding(tokens_BT))
        return regularised_rnn_logits(config, parameters, tokens_BT, masks)

    return oracle


@pytest.mark.parametrize("length", [1, 2, 15, 16, 63])
@each_within
def test_agrees_with_its_equation_under_the_masks_drawn(options, length):
    model = build_model(RNNConfig(width=6, initial_range=0.5, **options), WORDS, seed=1).double()
    assert_agreement(model, drawn_alike(model), text(length), tolerance=1e-9, seed=length)


@pytest.mark.parametrize("carried_from", [1, 7, 15])
def test_evaluation_drops_nothing_and_takes_the_mean_of_zoneout(carried_from):
    config = RNNConfig(width=6, initial_range=0.5, **WITHIN["all of them"])
    model = build_model(config, WORDS, seed=1).double().eval()
    layers, output = model._draw_masks(model.embedding(text(2)))
    assert output is None
    for masks in layers:
        assert masks.kept_hidden_TBH.eq(0.5).all()
        assert masks.input_B1E is masks.state_BH is masks.candidate_TBH is None
    assert_agreement(model, drawn_alike(model), text(16), tolerance=1e-9, carried_from=carried_from)


def test_dropout_around_the_layers_drops_from_the_embeddings_too():
    config = RNNConfig(width=64, dropout=0.5, dropout_placement="around", initial_range=0.5)
    model = build_model(config, WORDS, seed=1)
    _, state = model.encode(text(20), model.initial_state(3))
    _, again = model.encode(text(20), model.initial_state(3))
    assert not torch.equal(state["hidden"], again["hidden"])


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


def test_dropout_between_layers_leaves_the_last_layer_whole():
    model = build_model(RNNConfig(width=64, layers=2, dropout=0.5), WORDS, seed=1)
    first_BTH, _ = model.encode(text(20), model.initial_state(3))
    again_BTH, _ = model.encode(text(20), model.initial_state(3))
    assert first_BTH.ne(0).all()
    assert not torch.equal(first_BTH, again_BTH)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_dropout_after_each_layer_drops_the_output_and_not_the_carried_state(activation):
    config = RNNConfig(width=64, dropout=0.5, dropout_placement="after", activation=activation)
    model = build_model(config, WORDS, seed=1)
    hidden_BTH, state = model.encode(text(20), model.initial_state(3))
    share = hidden_BTH.eq(0).double().mean().item()
    assert share == pytest.approx(0.5, abs=0.05)  # 4,032 draws: a standard deviation of 0.008
    assert torch.equal(state["hidden"], logits(model.eval(), text(20))[1]["hidden"])


def test_size_by_hand():
    """Two 10,000 x 400 tables, two 400 x 400 matrices and two biases of the layer, one bias a word."""
    expected = 2 * 4_000_000 + 2 * 160_000 + 2 * 400 + 10_000
    assert RNNConfig(width=400).parameter_count(10_000) == expected


def test_cost_per_word_by_hand():
    """2 d^2 multiply-adds a layer and d V for the output."""
    assert RNNConfig(layers=2).multiply_adds(10_000) == 2 * 2 * 128**2 + 128 * 10_000
