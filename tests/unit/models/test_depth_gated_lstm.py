from typing import Any

import pytest
import torch

from memtune.models import build_model, logits
from memtune.models.families.depth_gated_lstm import DepthGatedLSTMConfig, run_depth_gated_layer
from tests.low_precision import autocast_to_bfloat16

WORDS = 23


def make_config(**fields) -> DepthGatedLSTMConfig:
    """Wide initial values, so that the gates are not close to one half."""
    return DepthGatedLSTMConfig(**{"width": 5, "initial_range": 0.8, **fields})


def draw_text(length: int, rows: int = 2) -> torch.Tensor:
    return torch.randint(WORDS, (rows, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: DepthGatedLSTMConfig):
    return build_model(config, WORDS, seed=1).double()


def run_as_torch_lstm(layer, inputs_BTE: torch.Tensor) -> torch.Tensor:
    """hidden_BTH of torch's LSTM with the layer's weights, its depth gate left out."""
    lstm: Any = torch.nn.LSTM(layer.gates.in_features, layer.width, batch_first=True).double()
    with torch.no_grad():
        for source, target in (
            (layer.gates.weight, lstm.weight_ih_l0),
            (layer.gates.bias, lstm.bias_ih_l0),
            (layer.recurrent.weight, lstm.weight_hh_l0),
        ):
            output, *rest = source[-4 * layer.width :].chunk(4)
            target.copy_(torch.cat([*rest, output]))
        lstm.bias_hh_l0.zero_()
    return lstm(inputs_BTE)[0]


def test_one_layer_is_an_lstm():
    model, words_BT = make_model(make_config(layers=1)), draw_text(9)
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(2))
    torch.testing.assert_close(hidden_BTH, run_as_torch_lstm(model.layers[0], model.embedding(words_BT)))


def test_layers_behind_closed_depth_gates_are_stacked_lstms():
    model, words_BT = make_model(make_config(layers=3)), draw_text(9)
    for layer in model.layers[1:]:
        layer.gates.bias.data[:5] = -1e4
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(2))
    expected_BTH = model.embedding(words_BT)
    for layer in model.layers:
        expected_BTH = run_as_torch_lstm(layer, expected_BTH)
    torch.testing.assert_close(hidden_BTH, expected_BTH)


def test_an_open_depth_gate_copies_the_memory_of_the_layer_below():
    """With the input and forget gates shut, the memory of the second layer is that of the first."""
    model, words_BT = make_model(make_config(layers=2)), draw_text(9)
    bias = model.layers[1].gates.bias.data
    bias[:5], bias[10:20] = 1e4, -1e4
    _, state = model.encode(words_BT, model.initial_state(2))
    torch.testing.assert_close(state["cell"][:, 1], state["cell"][:, 0])


def test_the_recurrence_runs_in_full_precision_under_autocast():
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 2, 20), (16, 4), (2, 4), (2, 4), (6, 2, 4), (4, 4)]
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    hidden_TBH, cell_TBH = run_depth_gated_layer(*inputs)
    with autocast_to_bfloat16():
        again_TBH, cells_TBH = run_depth_gated_layer(*inputs)
    assert torch.equal(again_TBH, hidden_TBH)
    assert torch.equal(cells_TBH, cell_TBH)


def test_dropout_does_not_change_the_carried_state():
    config = DepthGatedLSTMConfig(width=64, layers=1, dropout=0.5, dropout_placement="after")
    _, state = logits(build_model(config, WORDS, seed=1), draw_text(9))
    assert state["hidden"].ne(0).all()


@pytest.mark.parametrize("link_input", [False, True])
def test_forget_bias_is_set_in_every_layer_and_in_no_other_gate(link_input):
    config = DepthGatedLSTMConfig(width=4, forget_bias=1.5, link_input=link_input)
    model: Any = build_model(config, WORDS, seed=1)
    for layer in model.layers:
        *others, forget, candidate = layer.gates.bias.split(4)
        assert forget.eq(1.5).all()
        assert torch.cat([*others, candidate]).abs().le(0.05).all()


def test_size_and_cost_of_the_papers_model_on_penn_treebank():
    """Four gates in the first layer, five above it, with two vectors of w_c and w_l and a bias a gate."""
    d, e, V = 300, 150, 10_000
    matrices = 4 * d * (e + d) + 2 * (5 * d * d + 4 * d * d)
    vectors = 4 * d + 2 * (5 * d + 2 * d)
    config = DepthGatedLSTMConfig(embedding_width=150)
    assert config.parameter_count(V) == V * (e + d + 1) + matrices + vectors
    assert config.multiply_adds(V) == matrices + d * V
