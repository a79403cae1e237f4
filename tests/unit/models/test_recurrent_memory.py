from typing import Any

import pytest
import torch
from torch.nn import functional

from memtune.errors import ConfigurationError
from memtune.model_checks.oracles import assert_near
from memtune.models import build_model, logits
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.training import TrialConfig
from memtune.values import parse
from tests.oracles.recurrent_memory import compute_recurrent_memory_attention

WORDS = 23


def make_config(**fields) -> RecurrentMemoryConfig:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return RecurrentMemoryConfig(**{"width": 5, "initial_range": 0.8, **fields})


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: RecurrentMemoryConfig):
    return build_model(config, WORDS, seed=1).double()


@pytest.mark.parametrize("length", [1, 4, 9, 130])
def test_attention_agrees_with_its_equations_and_is_aligned_to_the_right(length):
    config = make_config(memory_size=5)
    model, words_BT = make_model(config), draw_text(length)[:, 1:]
    weights_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[0]
    parameters = dict(model.named_parameters())
    for b, sentence in enumerate(compute_recurrent_memory_attention(config, parameters, words_BT)):
        for t, expected in enumerate(sentence):
            absent = 5 - len(expected)
            assert weights_BTn[b, t, :absent].eq(0).all()
            assert_near(weights_BTn[b, t, absent:], expected, 1e-12, f"attention {b} {t}")


def test_attention_reaches_into_the_carried_words():
    model, words_BT = make_model(make_config(memory_size=5)), draw_text(12)
    whole_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[0]
    _, state = logits(model, words_BT[:, :3])
    rest_LBTn, _ = model.trace_attention(words_BT[:, 3:], state)
    assert_near(rest_LBTn[0], whole_BTn[:, 3:], 1e-12, "attention")


def test_one_slot_takes_all_attention():
    model = make_model(make_config(memory_size=1))
    assert model.trace_attention(draw_text(6), model.initial_state(2)).weights_LBTn[0].eq(1).all()


def test_one_slot_with_a_sum_adds_the_current_words_output_memory():
    config = make_config(memory_size=1, composition="sum")
    model, words_BT = make_model(config), draw_text(6)
    state = model.initial_state(2)
    below = {name: state[f"below_{name}"] for name in ("hidden", "cell")}
    hidden_BTH, _ = model.below(model.embedding(words_BT), below)
    composed_BTH, _ = model.encode(words_BT, state)
    torch.testing.assert_close(composed_BTH, hidden_BTH + model.memory.output_table(words_BT))


def test_equal_memories_get_equal_attention():
    model, words_BT = make_model(make_config(memory_size=4, temporal="none")), torch.full((1, 6), 7)
    weights_BTn = model.trace_attention(words_BT, model.initial_state(1)).weights_LBTn[0]
    for t in range(6):
        slots = min(t + 1, 4)
        torch.testing.assert_close(weights_BTn[0, t, 4 - slots :], torch.full((slots,), 1 / slots).double())


def test_alignments_agree_once_the_window_is_full():
    right = make_model(make_config(memory_size=4, temporal_alignment="right"))
    left = make_model(make_config(memory_size=4, temporal_alignment="left"))
    words_BT = draw_text(10)
    attention_BTn = right.trace_attention(words_BT, right.initial_state(2)).weights_LBTn[0]
    other_BTn = left.trace_attention(words_BT, left.initial_state(2)).weights_LBTn[0]
    assert torch.equal(attention_BTn[:, 3:], other_BTn[:, 3:])
    assert not torch.allclose(attention_BTn[:, 1:3], other_BTn[:, 1:3])


def test_state_remembers_only_the_last_words_that_a_window_can_reach():
    model, words_BT = make_model(make_config(memory_size=4)), draw_text(9)
    assert logits(model, words_BT[:, :2])[1]["words"].tolist() == words_BT[:, :2].tolist()
    assert logits(model, words_BT)[1]["words"].tolist() == words_BT[:, -3:].tolist()


def test_dropout_between_layers_changes_neither_the_memory_nor_the_output():
    model = build_model(RecurrentMemoryConfig(width=64, layers_above=1, dropout=0.5), WORDS, seed=1)
    first_BTH, _ = model.encode(draw_text(9), model.initial_state(2))
    again_BTH, _ = model.encode(draw_text(9), model.initial_state(2))
    assert torch.equal(first_BTH, again_BTH)


@pytest.mark.parametrize("layers_above", [0, 1])
def test_dropout_after_each_layer_reaches_the_memory_block(layers_above):
    config = RecurrentMemoryConfig(
        width=64, layers_above=layers_above, dropout=0.5, dropout_placement="after", composition="sum"
    )
    model: Any = build_model(config, WORDS, seed=1)
    dropped = []
    model.memory.register_forward_pre_hook(lambda _, arguments: dropped.append(arguments[0].eq(0)))
    model.encode(draw_text(30), model.initial_state(2))
    share = dropped[0].double().mean().item()
    assert share == pytest.approx(0.5, abs=0.05)  # 3,968 draws: a standard deviation of 0.008


def test_variant_is_named_as_in_the_paper():
    assert RecurrentMemoryConfig().variant == "RM"
    assert RecurrentMemoryConfig(layers_above=1).variant == "RMR"


def test_size_of_the_papers_model_on_penn_treebank():
    """RM(+tM-g), three layers: four tables, three layers, the temporal matrix, six maps, one bias a word."""
    config = RecurrentMemoryConfig(layers=3)
    d = 128
    expected = 4 * 10_000 * d + 3 * (8 * d * d + 8 * d) + 15 * d + 6 * d * d + 10_000
    assert config.parameter_count(10_000) == expected


def test_cost_per_word_by_hand():
    """8 d^2 a layer; n d for scores, context and each temporal table; 6 d^2 for gates; d V for the output."""
    d, n, V = 128, 15, 10_000
    assert RecurrentMemoryConfig().multiply_adds(V) == 14 * d * d + 3 * n * d + d * V
    deeper = RecurrentMemoryConfig(layers=2, layers_above=1, temporal="both", composition="projected_sum")
    assert deeper.multiply_adds(V) == (3 * 8 + 1) * d * d + 4 * n * d + d * V


def test_a_bidirectional_memory_does_not_see_the_word_to_predict():
    model, words = (
        make_model(make_config(memory_size=3, bidirectional=True)),
        draw_text(9)[:, :-1].clamp(min=1),
    )
    changed = words.clone()
    changed[:, 5] = (words[:, 5] % (WORDS - 1)) + 1
    before, after = (logits(model, read)[0] for read in (words, changed))
    unlike = (before - after).abs().amax((0, 2)) > 0
    assert not unlike[4], "the word at 5 is the one to predict after 4"
    assert unlike[[1, 2, 3, 5, 6, 7, 8]].all()
    assert not unlike[0], "three words ahead are seen, and no further"


def test_padding_a_row_changes_no_earlier_logit():
    model, words = (
        make_model(make_config(memory_size=4, bidirectional=True)),
        draw_text(6)[:, :-1].clamp(min=1),
    )
    padded = functional.pad(words, (0, 9))
    assert_near(logits(model, padded)[0][:, : words.shape[1]], logits(model, words)[0], 1e-12, "logits")


def test_bidirectional_attention_has_one_weight_per_slot_of_both_sides():
    config, words = make_config(memory_size=3, bidirectional=True), draw_text(6)[:, :-1].clamp(min=1)
    model = make_model(config)
    weights = model.trace_attention(words, model.initial_state(len(words))).weights_LBTn[0]
    assert weights.shape == (*words.shape, 6)
    expected = compute_recurrent_memory_attention(config, dict(model.named_parameters()), words)
    for b, row in enumerate(expected):
        for t, p in enumerate(row):
            assert_near(weights[b, t][weights[b, t] != 0], p, 1e-9, "weights")


def test_a_bidirectional_memory_refuses_a_text_in_pieces():
    trial = {"model": {"family": "recurrent_memory", "bidirectional": True}, "training": {"epochs": 1}}
    with pytest.raises(ConfigurationError, match="sentence"):
        parse(TrialConfig, {**trial, "protocol": {"kind": "stream"}}, "trial")
    parse(TrialConfig, trial, "trial")
