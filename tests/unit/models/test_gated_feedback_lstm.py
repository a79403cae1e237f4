from typing import Any

import torch

from memtune.models import build_model, logits
from memtune.models.families.gated_feedback_lstm import GatedFeedbackLSTMConfig, run_gated_feedback
from tests.low_precision import autocast_to_bfloat16

WORDS = 23


def make_config(**fields) -> GatedFeedbackLSTMConfig:
    """Wide initial values, so that the gates are not close to one half."""
    return GatedFeedbackLSTMConfig(**{"width": 5, "initial_range": 0.8, **fields})


def draw_text(length: int, rows: int = 2) -> torch.Tensor:
    return torch.randint(WORDS, (rows, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: GatedFeedbackLSTMConfig):
    return build_model(config, WORDS, seed=1).double()


def open_reset_gates_halfway(model) -> None:
    """Set all reset gates to 1/2, and allow feedback only from a layer to itself."""
    for index, layer in enumerate(model.layers):
        layer.reset_input.weight.data.zero_()
        layer.reset_states.weight.data.zero_()
        own = layer.feedback.data[index].clone()
        layer.feedback.data.zero_()
        layer.feedback.data[index] = own


def test_layers_without_feedback_from_other_layers_are_stacked_lstms():
    """With every gate at 1/2, half the feedback matrix is the recurrent matrix of the candidate."""
    model, words_BT = make_model(make_config()), draw_text(9)
    open_reset_gates_halfway(model)
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(2))
    lstm = torch.nn.LSTM(5, 5, num_layers=3, batch_first=True).double()
    with torch.no_grad():
        for index, layer in enumerate(model.layers):
            recurrent = torch.cat([layer.feedback[index] / 2, layer.recurrent.weight])
            for source, target_name in (
                (layer.gates.weight, f"weight_ih_l{index}"),
                (layer.gates.bias, f"bias_ih_l{index}"),
                (recurrent, f"weight_hh_l{index}"),
            ):
                candidate, output, i, f = source.chunk(4)
                getattr(lstm, target_name).copy_(torch.cat([i, f, candidate, output]))
            getattr(lstm, f"bias_hh_l{index}").zero_()
    torch.testing.assert_close(hidden_BTH, lstm(model.embedding(words_BT))[0])


def test_the_bottom_layer_reads_the_state_of_the_top_layer():
    model, words_BT = make_model(make_config()), draw_text(9)
    _, state = logits(model, words_BT[:, :5])
    other = {**state, "hidden": state["hidden"].clone()}
    other["hidden"][:, 2] += 1
    _, after = logits(model, words_BT[:, 5:6], state)
    _, changed = logits(model, words_BT[:, 5:6], other)
    assert not torch.allclose(after["hidden"][:, 0], changed["hidden"][:, 0])


def test_gradients_through_dropout_agree_with_differences():
    """The recurrence with a mask, every input at random."""
    generator = torch.Generator().manual_seed(0)
    T, B, L, H = 3, 2, 3, 2
    A, C = 4 * H + L, 3 * H + L * H + L * L
    shapes = [(T, B, A), (L - 1, A, H), (L - 1, A), (L, C, H), (L, B, H), (L, B, H)]
    inputs = [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes
    ]
    mask_UTBH = 2.0 * torch.randint(2, (L - 1, T, B, H), generator=generator).double()
    assert torch.autograd.gradcheck(lambda *tensors: run_gated_feedback(*tensors, mask_UTBH), inputs)


def test_the_recurrence_runs_in_full_precision_under_autocast():
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 2, 14), (1, 14, 3), (1, 14), (2, 19, 3), (2, 2, 3), (2, 2, 3)]
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    outputs = run_gated_feedback(*inputs, None)
    with autocast_to_bfloat16():
        again = run_gated_feedback(*inputs, None)
    assert all(torch.equal(one, other) for one, other in zip(outputs, again, strict=True))


def test_forget_bias_is_set_in_every_layer_and_in_no_other_gate():
    model: Any = build_model(GatedFeedbackLSTMConfig(width=4, forget_bias=1.5), WORDS, seed=1)
    for layer in model.layers:
        *others, forget = layer.gates.bias.split(4)
        assert forget.eq(1.5).all()
        assert torch.cat(others).abs().le(0.05).all()


def test_size_and_cost_of_the_papers_model_on_penn_treebank():
    """A layer: four gates from below, three from its own state, three signals, three reset gates."""
    d, e, V = 300, 150, 10_000
    state = 3 * d * d + 3 * d * d + 3 * 3 * d
    matrices = (4 * d + 3) * e + 2 * (4 * d + 3) * d + 3 * state
    config = GatedFeedbackLSTMConfig(embedding_width=150)
    assert config.parameter_count(V) == V * (e + d + 1) + matrices + 3 * 4 * d
    assert config.multiply_adds(V) == matrices + d * V
