from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.model_checks.oracles import assert_near
from memtune.models import build_model, logits
from memtune.models.families.attention_lstm import AttentionLSTMConfig
from tests.oracles.attention_lstm import compute_attention_lstm_weights

WORDS = 23
SCORES = ["additive", "bilinear", "printed"]


def make_config(**fields) -> AttentionLSTMConfig:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return AttentionLSTMConfig(**{"width": 7, "memory_size": 4, "initial_range": 0.8, **fields})


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: AttentionLSTMConfig):
    return build_model(config, WORDS, seed=1).double()


@pytest.mark.parametrize("length", [1, 4, 9, 130])
@pytest.mark.parametrize("score", SCORES)
def test_attention_agrees_with_its_equations_and_is_aligned_to_the_right(score, length):
    config = make_config(score=score, memory_size=5)
    model, words_BT = make_model(config), draw_text(length)[:, 1:]
    weights_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[0]
    parameters = dict(model.named_parameters())
    for b, sentence in enumerate(compute_attention_lstm_weights(config, parameters, words_BT)):
        for t, expected in enumerate(sentence):
            absent = 5 - len(expected)
            assert weights_BTn[b, t, :absent].eq(0).all()
            assert_near(weights_BTn[b, t, absent:], expected, 1e-12, f"attention {b} {t}")


def test_attention_reaches_into_the_carried_states():
    model, words_BT = make_model(make_config(memory_size=5)), draw_text(12)
    whole_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[0]
    _, state = logits(model, words_BT[:, :3])
    rest_LBTn, _ = model.trace_attention(words_BT[:, 3:], state)
    assert_near(rest_LBTn[0], whole_BTn[:, 3:], 1e-12, "attention")


def test_the_first_word_attends_to_the_zero_state_alone():
    model = make_model(make_config())
    first_BTn = model.trace_attention(draw_text(1)[:, :1], model.initial_state(2)).weights_LBTn[0]
    assert first_BTn[:, 0].tolist() == [[0, 0, 0, 1]] * 2


def test_one_slot_returns_the_state_before():
    model, words_BT = make_model(make_config(memory_size=1)), draw_text(6)
    state = model.initial_state(2)
    assert model.trace_attention(words_BT, state).weights_LBTn[0].eq(1).all()
    combined_BTH, _ = model.encode(words_BT, state)
    hidden_BTH, _ = model.stack(model.embedding(words_BT), state)
    previous_BTH = torch.cat([torch.zeros(2, 1, 7).double(), hidden_BTH[:, :-1]], dim=1)
    torch.testing.assert_close(combined_BTH, model.combination(previous_BTH, hidden_BTH))


def test_the_printed_score_ranks_two_states_alike_at_every_step():
    """Its term in h_t cancels: the ratio of two states' weights never changes while both are in reach."""
    model = make_model(make_config(score="printed"))
    weights_BTn = model.trace_attention(draw_text(9), model.initial_state(2)).weights_LBTn[0]
    ratio_BT = weights_BTn[:, 3:, 2] / weights_BTn[:, 3:, 3]
    later_BT = weights_BTn[:, 3:, 1] / weights_BTn[:, 3:, 2]
    torch.testing.assert_close(ratio_BT[:, :-1], later_BT[:, 1:])


def test_state_remembers_only_what_a_window_can_reach():
    model, words_BT = make_model(make_config(split="key_value_predict")), draw_text(9)
    assert logits(model, words_BT[:, :2])[1]["memory"].shape == (2, 3, 4)  # h_0 and two states
    assert logits(model, words_BT)[1]["memory"].shape == (2, 4, 4)


def test_dropout_applies_to_the_embedding_and_the_input_of_the_output_layer():
    model: Any = build_model(AttentionLSTMConfig(width=64, dropout=0.5), WORDS, seed=1)
    dropped = []
    model.stack.register_forward_pre_hook(lambda _, arguments: dropped.append(arguments[0]))
    combined_BTH, _ = model.encode(draw_text(30), model.initial_state(2))
    for values in (dropped[0], combined_BTH):
        share = values.eq(0).double().mean().item()
        assert share == pytest.approx(0.5, abs=0.05)  # 3,968 draws: a standard deviation of 0.008


@pytest.mark.parametrize(("vocabulary", "millions"), [(10_000, 11.6), (33_278, 26.7)])
def test_sizes_of_the_papers_models(vocabulary, millions):
    """12M and 28M are printed; the equations with an additive score give these."""
    assert AttentionLSTMConfig().parameter_count(vocabulary) == pytest.approx(millions * 1e6, abs=0.05e6)


def test_size_of_a_split_state_by_hand():
    """Keys and values of 33, 34 that predict: tied table, LSTM, score, combination, one bias a word."""
    d, V = 100, 10_000
    config = AttentionLSTMConfig(width=d, score="bilinear", split="key_value_predict")
    assert config.parameter_count(V) == V * d + 8 * d * d + 8 * d + 33 * 33 + d * (33 + 34) + V


def test_a_state_too_narrow_to_split_is_refused():
    with pytest.raises(ConfigurationError, match="at least 3 to be split, got 2; use a wider one"):
        AttentionLSTMConfig(width=2, split="key_value_predict").build(WORDS)


def test_cost_per_word_by_hand():
    """8 d^2 the LSTM, 2 d^2 + K d the score, K d the context, 2 d^2 the combination, d V the output."""
    d, K, V = 650, 10, 10_000
    assert AttentionLSTMConfig().multiply_adds(V) == 12 * d * d + 2 * K * d + d * V
