from typing import Any

import pytest
import torch

from memtune.models import MODELS, LSTMConfig, build_model, logits
from memtune.models.layers.placed_dropout import explain_unused_dropout
from tests.oracles.lstm import ALL_REGULARISATION

WORDS = 23
FAMILIES_WITH_PLACEMENTS = [name for name in MODELS if "dropout_placement" in MODELS[name].model_fields]
LAYER_REGULARISATION: dict[str, dict[str, Any]] = {
    "recurrent dropout": {"recurrent_dropout": 0.4},
    "variational dropout": {"variational_dropout": 0.4},
    "variational recurrent dropout": {"variational_recurrent_dropout": 0.4},
    "zoneout of cells": {"zoneout_cell": 0.4},
    "zoneout of hidden units": {"zoneout_hidden": 0.4},
    "all regularisation": ALL_REGULARISATION,
}
each_regularisation = pytest.mark.parametrize(
    "options", LAYER_REGULARISATION.values(), ids=LAYER_REGULARISATION
)


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


def test_evaluation_drops_nothing_and_uses_the_mean_of_zoneout():
    """The masks are then the probabilities of zoneout alone."""
    config = LSTMConfig(width=6, initial_range=0.5, **LAYER_REGULARISATION["all regularisation"])
    rule: Any = config.regularisation
    layers, output = rule.draw_stack_masks(torch.zeros(3, 2, 6), 6, config.layers, training=False)
    assert output is None
    for masks in layers:
        assert masks.kept_cell_TBH.eq(0.5).all()
        assert masks.kept_hidden_TBH.eq(0.1).all()
        assert masks.input_B1E is masks.state_BH is masks.candidate_TBH is None


@each_regularisation
def test_dropout_within_layers_draws_new_masks_only_in_training(options):
    model = build_model(LSTMConfig(width=6, initial_range=0.5, **options), WORDS, seed=1)
    assert not torch.equal(logits(model, draw_text(9))[0], logits(model, draw_text(9))[0])
    model.eval()
    assert torch.equal(logits(model, draw_text(9))[0], logits(model, draw_text(9))[0])


def test_masks_drop_with_their_probability_and_keep_the_mean():
    options = {"recurrent_dropout": 0.2, "variational_dropout": 0.5, "variational_recurrent_dropout": 0.4}
    rule: Any = LSTMConfig(width=100, zoneout_cell=0.3, zoneout_hidden=0.1, **options).regularisation
    torch.manual_seed(0)
    (masks,), output_B1H = rule.draw_stack_masks(torch.zeros(50, 40, 100), 100, 1, training=True)
    assert masks.input_B1E.shape == output_B1H.shape == (50, 1, 100)
    for mask, dropped in [
        (masks.input_B1E, 0.5),
        (output_B1H, 0.5),
        (masks.state_BH, 0.4),
        (masks.candidate_TBH, 0.2),
    ]:
        assert compute_share_of_zeros(mask) == pytest.approx(
            dropped, abs=0.03
        )  # 5,000 draws: a deviation of 0.007
        assert mask.unique().tolist() == pytest.approx([0, 1 / (1 - dropped)])
    for mask, kept in [(masks.kept_cell_TBH, 0.3), (masks.kept_hidden_TBH, 0.1)]:
        assert mask.mean().item() == pytest.approx(kept, abs=0.01)  # 200,000 draws: a deviation of 0.001
        assert mask.unique().tolist() == [0, 1]


def test_a_variational_mask_is_the_same_at_all_steps_of_a_row():
    config = LSTMConfig(width=64, variational_dropout=0.5)
    hidden_BTH, _ = build_model(config, WORDS, seed=1).encode(
        draw_text(20), {"hidden": torch.zeros(3, 1, 64), "cell": torch.zeros(3, 1, 64)}
    )
    dropped_BTH = hidden_BTH.eq(0)
    assert torch.equal(dropped_BTH, dropped_BTH[:, :1].expand_as(dropped_BTH))
    assert not torch.equal(dropped_BTH[0], dropped_BTH[1])


def test_forget_bias_is_set_in_the_input_bias_and_the_recurrent_bias_stays_random():
    config = LSTMConfig(width=4, layers=2, forget_bias=1.5, initial_range=0.05)
    parameters = dict(build_model(config, WORDS, seed=1).named_parameters())
    for layer in range(2):
        assert parameters[f"stack.lstm.bias_ih_l{layer}"][4:8].eq(1.5).all()
        assert parameters[f"stack.lstm.bias_ih_l{layer}"][:4].abs().le(0.05).all()
        assert parameters[f"stack.lstm.bias_ih_l{layer}"][8:].abs().le(0.05).all()
        recurrent = parameters[f"stack.lstm.bias_hh_l{layer}"]
        assert recurrent.abs().le(0.05).all()
        assert recurrent.unique().numel() == 16


def test_every_parameter_starts_within_the_initial_range_and_fills_it():
    model = build_model(LSTMConfig(width=32, initial_range=0.01, forget_bias=0.0), WORDS, seed=1)
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 0.01, name
        assert parameter.min() < 0 < parameter.max(), name


def compute_share_of_zeros(values: torch.Tensor) -> float:
    return values.eq(0).double().mean().item()


def test_dropout_between_layers_does_not_drop_from_the_last_layer():
    config = LSTMConfig(width=64, layers=2, dropout=0.5)
    model = build_model(config, WORDS, seed=1)
    hidden_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    again_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    assert compute_share_of_zeros(hidden_BTH) == 0
    assert not torch.equal(hidden_BTH, again_BTH)


def test_dropout_between_layers_has_nothing_to_drop_in_one_layer():
    model = build_model(LSTMConfig(width=8, layers=1, dropout=0.5), WORDS, seed=1)
    hidden_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    again_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    assert torch.equal(hidden_BTH, again_BTH)


@pytest.mark.parametrize("family", FAMILIES_WITH_PLACEMENTS)
def test_a_dropout_is_called_unused_where_training_drops_nothing(family: str):
    config_type: Any = MODELS[family]
    for placement in ("between", "after", "around"):
        for layers in (1, 2):
            config = config_type(width=8, layers=layers, dropout=0.5, dropout_placement=placement)
            model: Any = build_model(config, WORDS, seed=1).train()
            drops_nothing = torch.equal(logits(model, draw_text(20))[0], logits(model, draw_text(20))[0])
            assert (explain_unused_dropout(config) is not None) == drops_nothing, (placement, layers)


@pytest.mark.parametrize("placement", ["after", "around"])
def test_dropout_after_each_layer_drops_from_the_last_layer_too(placement):
    config = LSTMConfig(width=64, layers=1, dropout=0.5, dropout_placement=placement)
    model = build_model(config, WORDS, seed=1)
    hidden_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    assert compute_share_of_zeros(hidden_BTH) == pytest.approx(
        0.5, abs=0.05
    )  # 3,840 draws: a standard deviation of 0.008


@pytest.mark.parametrize("family", FAMILIES_WITH_PLACEMENTS)
def test_dropout_around_the_layers_drops_from_the_embeddings_too(family: str):
    """States after a text are equal in two passes with dropout after one layer, and differ with it around."""
    config_type: Any = MODELS[family]
    for placement in ("after", "around"):
        config = config_type(width=64, layers=1, dropout=0.5, dropout_placement=placement)
        model = build_model(config, WORDS, seed=1)
        states = [
            {name: part for name, part in model.encode(draw_text(20), state)[1].items() if name != "words"}
            for state in 2 * [model.initial_state(3)]
        ]
        is_equal = all(torch.equal(part, states[1][name]) for name, part in states[0].items())
        assert is_equal == (placement == "after")


def test_size_of_the_papers_one_layer_baseline():
    """Two 10,000 x 128 tables, 8 x 128^2 weights and 8 x 128 biases of the layer, one bias a word."""
    assert LSTMConfig().parameter_count(10_000) == 2 * 1_280_000 + 131_072 + 1_024 + 10_000


def test_cost_per_word_by_hand():
    """8 d^2 multiply-adds a layer and d V for the output."""
    assert LSTMConfig(layers=2).multiply_adds(10_000) == 2 * 8 * 128**2 + 128 * 10_000
