from typing import Any

import pytest
import torch

from memtune.model_checks.oracles import assert_near
from memtune.models import build_model, logits
from memtune.models.families.memory_network import MemoryNetworkConfig
from memtune.training.weight_files import load_model, save_model
from tests.oracles.memory_network import compute_memory_network_attention

WORDS = 23


def make_config(**fields) -> MemoryNetworkConfig:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return MemoryNetworkConfig(**{"width": 5, "memory_size": 4, "initial_range": 0.9, **fields})


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: MemoryNetworkConfig):
    return build_model(config, WORDS, seed=1).double()


def test_a_linear_start_ends_when_validation_stops_improving():
    words_BT = draw_text(9)[:, 1:]
    linear, soft = make_model(make_config(linear_start=True)), make_model(make_config())
    for losses in ([], [3.0], [3.0, 2.0]):
        linear.on_validation(losses)
        assert not torch.allclose(logits(linear, words_BT)[0], logits(soft, words_BT)[0])
    for losses in ([3.0, 2.0, 2.5], [3.0, 2.0, 2.5, 1.0]):
        linear.on_validation(losses)
        torch.testing.assert_close(logits(linear, words_BT)[0], logits(soft, words_BT)[0])


def test_a_saved_model_keeps_its_linear_start(tmp_path):
    for losses in ([3.0], [3.0, 3.5]):
        model, words_BT = build_model(make_config(linear_start=True), WORDS, seed=1), draw_text(9)[:, 1:]
        model.on_validation(losses)
        save_model(model, tmp_path)
        loaded: Any = load_model(tmp_path)
        assert torch.equal(logits(loaded, words_BT)[0], logits(model, words_BT)[0])


@pytest.mark.parametrize("hops", [1, 3])
def test_attention_of_the_last_hop_agrees_with_its_equations_and_is_aligned_to_the_right(hops):
    config = make_config(hops=hops)
    model, words_BT = make_model(config), draw_text(9)[:, 1:]
    weights_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[0]
    parameters = dict(model.named_parameters())
    for b, sentence in enumerate(compute_memory_network_attention(config, parameters, words_BT)):
        for t, expected in enumerate(sentence):
            absent = 4 - len(expected)
            assert weights_BTn[b, t, :absent].eq(0).all()
            assert_near(weights_BTn[b, t, absent:], expected, 1e-12, f"attention {b} {t}")


def test_one_slot_and_one_hop_by_hand():
    """All attention is on the current word: u = C x + T_C + H 0.1."""
    model, words_BT = make_model(make_config(memory_size=1)), draw_text(6)
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(2))
    constant_H = model.temporal_values[0] + 0.1 * model.hop.weight.sum(1)
    torch.testing.assert_close(hidden_BTH, model.output_table(words_BT) + constant_H)


def test_without_temporal_encoding_the_order_of_the_words_does_not_matter():
    model, words_BT = make_model(make_config(hops=2, temporal_encoding=False)), torch.tensor([[3, 8, 5, 11]])
    other_BT = torch.tensor([[5, 11, 8, 3]])
    first_BTV, second_BTV = (logits(model, words)[0] for words in (words_BT, other_BT))
    torch.testing.assert_close(first_BTV[:, -1], second_BTV[:, -1])
    assert not torch.allclose(first_BTV[:, 1], second_BTV[:, 1])


def test_the_second_half_of_the_units_is_rectified():
    """Of an odd number the larger half."""
    model = make_model(make_config(rectify_half=True))
    hidden_BTH, _ = model.encode(draw_text(30), model.initial_state(2))
    assert hidden_BTH[..., :2].lt(0).any()
    assert hidden_BTH[..., 2:].ge(0).all()
    assert hidden_BTH[..., 2:].eq(0).any()


def test_state_remembers_only_the_last_words_that_a_window_can_reach():
    model, words_BT = make_model(make_config()), draw_text(9)
    assert logits(model, words_BT[:, :2])[1]["words"].tolist() == words_BT[:, :2].tolist()
    assert logits(model, words_BT)[1]["words"].tolist() == words_BT[:, -3:].tolist()


def test_the_output_has_no_bias():
    model = make_model(make_config())
    assert model.output(torch.zeros(5, dtype=torch.float64)).eq(0).all()
    assert not any("bias" in name for name in model.state_dict())


def test_size_by_hand():
    """A, C and W, a row of T_A and T_C for each slot, and H, whatever the number of hops."""
    for hops in (1, 6):
        count = MemoryNetworkConfig(hops=hops).parameter_count(10_000)
        assert count == 3 * 10_000 * 128 + 2 * 15 * 128 + 128**2


def test_cost_per_word_by_hand():
    """A hop: n d for scores, context and each temporal table, d^2 for H; once d V for the output."""
    assert MemoryNetworkConfig().multiply_adds(10_000) == 4 * 15 * 128 + 128**2 + 128 * 10_000
    plain = MemoryNetworkConfig(hops=3, temporal_encoding=False)
    assert plain.multiply_adds(10_000) == 3 * (2 * 15 * 128 + 128**2) + 128 * 10_000
