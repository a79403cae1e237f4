from itertools import product
from typing import Any

import pytest
import torch

from memtune.model_checks.oracles import assert_near
from memtune.models import build_model, logits
from memtune.models.families.lstmn import LSTMNConfig
from tests.oracles.lstmn import compute_lstmn_attention, run_reference_layer

WORDS = 23


def make_config(**fields) -> LSTMNConfig:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return LSTMNConfig(**{"width": 5, "initial_range": 0.8, **fields})


def draw_text(length: int, rows: int = 2) -> torch.Tensor:
    return torch.randint(WORDS, (rows, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: LSTMNConfig):
    return build_model(config, WORDS, seed=1).double()


def test_the_reference_of_the_benchmark_computes_the_same_layer():
    model, words_BT = make_model(make_config()), draw_text(9)
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(2))
    slow_BTH = run_reference_layer(model.layers[0], model.embedding(words_BT))
    assert_near(hidden_BTH, slow_BTH, 1e-12, "hidden")


@pytest.mark.parametrize("layer", [0, 1, -1])
@pytest.mark.parametrize(("length", "tape_size"), [*product([1, 3, 4, 9], [None, 4])])
def test_attention_agrees_with_its_equations_and_is_aligned_to_the_right(length, tape_size, layer):
    config = make_config(layers=2, tape_size=tape_size)
    model, words_BT = make_model(config), draw_text(length)[:, 1:]
    weights_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[layer]
    widest = min(length, tape_size or length)
    assert weights_BTn.shape == (2, length, widest)
    for b, layers in enumerate(compute_lstmn_attention(config, dict(model.named_parameters()), words_BT)):
        for t, expected in enumerate(layers[layer]):
            absent = widest - len(expected)
            assert weights_BTn[b, t, :absent].eq(0).all()
            assert_near(weights_BTn[b, t, absent:], expected, 1e-12, f"attention {b} {t}")


def test_attention_reaches_into_the_carried_tape():
    model, words_BT = make_model(make_config(tape_size=5)), draw_text(12)
    whole_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[-1]
    _, state = logits(model, words_BT[:, :7])
    rest_LBTn, _ = model.trace_attention(words_BT[:, 7:], state)
    assert_near(rest_LBTn[-1], whole_BTn[:, 7:], 1e-12, "attention")


def test_the_first_word_attends_to_the_slot_of_zeros():
    model = make_model(make_config(layers=2))
    weights_LBTn, _ = model.trace_attention(draw_text(0), model.initial_state(2))
    assert weights_LBTn[-1].tolist() == [[[1.0]], [[1.0]]]


def test_a_tape_of_one_slot_is_an_lstm():
    """With one slot h~ is h_{t-1} and c~ is c_{t-1}: equations 1 to 3."""
    model, words_BT = make_model(make_config(tape_size=1)), draw_text(9)
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(2))
    layer = model.layers[0]
    lstm: Any = torch.nn.LSTM(5, 5, batch_first=True).double()
    with torch.no_grad():
        for source, target in zip(
            (layer.gates_input.weight, layer.gates_attended.weight, layer.gates_input.bias),
            (lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0),
            strict=True,
        ):
            output, *rest = source.chunk(4)
            target.copy_(torch.cat([*rest, output]))
        lstm.bias_hh_l0.zero_()
    torch.testing.assert_close(hidden_BTH, lstm(model.embedding(words_BT))[0])


def test_a_score_of_zeros_attends_evenly():
    model, words_BT = make_model(make_config()), draw_text(6)
    model.layers[0].score.data.zero_()
    weights_BTn = model.trace_attention(words_BT, model.initial_state(2)).weights_LBTn[-1]
    for t in range(7):
        torch.testing.assert_close(weights_BTn[0, t, 6 - t :], torch.full((t + 1,), 1 / (t + 1)).double())


def test_the_carried_tape_holds_every_slot_up_to_its_limit():
    assert logits(make_model(make_config(layers=2)), draw_text(8))[1]["tape"].shape == (2, 2, 10, 10)
    assert logits(make_model(make_config(layers=2, tape_size=4)), draw_text(8))[1]["tape"].shape == (
        2,
        2,
        4,
        10,
    )


def test_without_previous_attention_the_scores_ignore_the_attended_vector():
    model, words_BT = make_model(make_config(previous_attention=False)), draw_text(6)
    _, state = logits(model, words_BT[:, :3])
    forgotten = {**state, "attended": torch.zeros_like(state["attended"])}
    assert torch.equal(logits(model, words_BT[:, 3:], state)[0], logits(model, words_BT[:, 3:], forgotten)[0])


def test_forget_bias_is_set_in_every_layer():
    model: Any = build_model(LSTMNConfig(width=4, layers=2, forget_bias=1.5), WORDS, seed=1)
    for layer in model.layers:
        assert layer.gates_input.bias[8:12].eq(1.5).all()
        assert layer.gates_input.bias[:8].abs().le(0.05).all()
        assert layer.gates_input.bias[12:].abs().le(0.05).all()


def test_sizes_of_the_papers_models_on_penn_treebank():
    """Six d x d and five d x e matrices, v and four biases a layer; at d = 300 the embeddings are of 150."""
    d, e, V = 300, 150, 10_000
    one = 6 * d * d + 5 * d * e + d + 4 * d
    rest = V * e + V * d + V
    assert LSTMNConfig(embedding_width=150).parameter_count(V) == one + rest
    upper = 11 * d * d + 5 * d
    assert LSTMNConfig(embedding_width=150, layers=3).parameter_count(V) == one + 2 * upper + d * e + rest


def test_the_layer_has_the_printed_sizes_of_two_sentence_readers():
    """Deep fusion in table 3 adds 6 d^2 + 2 d e to the one LSTMN that reads both sentences."""
    for d, printed in ((100, 330e3), (300, 1.7e6), (450, 3.4e6)):
        config = LSTMNConfig(width=d, embedding_width=300)
        matrices = config.parameter_count(0) - 5 * d
        assert matrices + 6 * d * d + 2 * d * 300 == pytest.approx(printed, rel=0.03)


def test_cost_per_word_by_hand():
    """The layer's matrices, 3 d for each of 11 slots or as many as the tape holds, d V for the output."""
    d, V = 300, 10_000
    assert LSTMNConfig().multiply_adds(V) == 11 * d * d + 11 * 3 * d + d * V
    assert LSTMNConfig(tape_size=5).multiply_adds(V) == 11 * d * d + 5 * 3 * d + d * V


def test_the_earlier_name_of_a_field_is_read():
    stored = {**LSTMNConfig().model_dump(exclude={"layer_output"}), "handed_up": "hidden"}
    assert LSTMNConfig.model_validate(stored).layer_output == "hidden"
