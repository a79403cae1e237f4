from typing import Any

import pytest
import torch

from memtune.model_checks.oracles import assert_near
from memtune.models import build_model, logits, negative_log_likelihood
from memtune.models.families.residual_memory import ResidualMemoryConfig
from memtune.training.weight_files import load_model, save_model
from tests.oracles.residual_memory import compute_window_hidden

WORDS = 23


def make_config(**fields) -> ResidualMemoryConfig:
    """Seven layers with delays 1, 1, 1, 2, 2, 2, 3: a context of 13 words."""
    return ResidualMemoryConfig(**{"width": 6, "layers": 7, "phi": 3, "initial_range": 0.6, **fields})


def draw_text(length: int, rows: int = 3) -> torch.Tensor:
    return torch.randint(WORDS, (rows, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: ResidualMemoryConfig):
    return build_model(config, WORDS, seed=1).double()


def fill_running_statistics(model):
    """Set running statistics from a few batches, and scales and shifts; evaluation mode."""
    for seed in range(20):
        logits(model, draw_text(12 + seed))
    if model.config.batch_norm:
        for layer in model.layers:
            layer.normalise.scale_H.data.copy_(torch.linspace(0.5, 1.5, model.config.width))
            layer.normalise.shift_H.data.copy_(torch.linspace(0.4, -0.4, model.config.width))
    return model.eval()


@pytest.mark.parametrize(("phi", "context"), [(1, 121), (4, 37)])
def test_fifteen_layers_have_the_context_that_the_paper_states(phi, context):
    """Section 2.2: every word of the context changes the prediction, and earlier words do not."""
    config = ResidualMemoryConfig(width=3, phi=phi, batch_norm=False)
    assert config.context_words == context
    model = make_model(config)
    for parameter in model.parameters():
        parameter.data.abs_()  # no ReLU blocks a path
    words_BT = torch.arange(130).unsqueeze(0) % WORDS
    embedded = []
    model.embedding.register_forward_hook(lambda *arguments: embedded.append(arguments[2]))
    hidden_BTH, _ = model.encode(words_BT, model.initial_state(1))
    gradient_TBH, *_ = torch.autograd.grad(hidden_BTH[0, -1].sum(), embedded)
    reached_T = gradient_TBH[:, 0].ne(0).any(1)
    assert reached_T[-context:].all()
    assert not reached_T[:-context].any()


def test_batch_norm_uses_only_the_rows_that_predictions_depend_on():
    """Of 3 shuffled windows, the last layer sees the 3 words that count; the first, what they depend on."""
    model, words_BT = make_model(make_config(batch_norm=True)).train(), draw_text(13)
    mask_BT = torch.zeros(3, 13, dtype=torch.bool)
    mask_BT[:, -1] = True
    rows = []
    for layer in model.layers:
        layer.normalise.register_forward_hook(lambda *arguments: rows.append(len(arguments[1][0])))
    negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    assert rows == [3 * (1 + needed) for needed in (11, 10, 9, 7, 5, 3, 0)]


def test_state_remembers_only_the_words_of_the_context():
    model, words_BT = make_model(make_config(batch_norm=False)), draw_text(30)
    assert logits(model, words_BT[:, :4])[1]["words"].tolist() == words_BT[:, :4].tolist()
    assert logits(model, words_BT)[1]["words"].tolist() == words_BT[:, -12:].tolist()


def test_no_layer_computes_a_row_that_no_prediction_needs():
    """After 12 carried words the layers below the last still need 11, 10, 9, 7, 5, 3 and 0 of them."""
    model, words_BT = make_model(make_config(batch_norm=False)), draw_text(30)
    _, state = logits(model, words_BT[:, :20])
    rows = []
    for layer in model.layers:
        layer.register_forward_hook(lambda *arguments: rows.append(len(arguments[2])))
    logits(model, words_BT[:, 20:24], state)
    assert rows == [4 + before for before in (11, 10, 9, 7, 5, 3, 0)]


def test_single_windows_have_the_hidden_vectors_of_the_whole_text():
    config = make_config(batch_norm=False)
    model, words_BT = make_model(config), draw_text(40)
    _, state = logits(model, words_BT[:, :12])
    hidden_BTH, _ = model.encode(words_BT[:, 12:], state)
    windows_BTW = words_BT.unfold(1, config.context_words, 1)
    windows_NH = compute_window_hidden(config, dict(model.named_parameters()), windows_BTW.flatten(0, 1))
    assert_near(hidden_BTH.flatten(0, 1), windows_NH, 1e-12, "hidden")


def test_batch_norm_couples_the_texts_of_a_batch_only_in_training():
    model, words_BT = fill_running_statistics(make_model(make_config())), draw_text(16)
    apart_BTV, together_BTV = logits(model, words_BT[:1])[0], logits(model, words_BT)[0][:1]
    torch.testing.assert_close(apart_BTV, together_BTV, rtol=1e-9, atol=1e-12)
    model.train()
    apart_BTV, together_BTV = logits(model, words_BT[:1])[0], logits(model, words_BT)[0][:1]
    assert not torch.allclose(apart_BTV, together_BTV)


def test_without_batch_norm_texts_are_independent_in_training():
    model, words_BT = make_model(make_config(batch_norm=False)), draw_text(16)
    apart_BTV, together_BTV = logits(model, words_BT[:1])[0], logits(model, words_BT)[0][:1]
    torch.testing.assert_close(apart_BTV, together_BTV, rtol=1e-9, atol=1e-12)


def test_running_statistics_move_a_hundredth_towards_each_batch_in_training_alone():
    model, words_BT = make_model(make_config(layers=1, residual_interval=0)), draw_text(16)
    norm = model.layers[0].normalise
    seen = []
    norm.register_forward_hook(lambda *arguments: seen.append(arguments[1][0]))
    logits(model, words_BT)
    torch.testing.assert_close(norm.mean_H, 0.01 * seen[0].mean(0))
    torch.testing.assert_close(norm.variance_H, 0.99 + 0.01 * seen[0].var(0))
    before_H = norm.mean_H.clone()
    logits(model.eval(), words_BT)
    assert torch.equal(norm.mean_H, before_H)


def test_a_saved_model_keeps_its_running_statistics(tmp_path):
    model, words_BT = fill_running_statistics(build_model(make_config(), WORDS, seed=1)), draw_text(16)
    save_model(model, tmp_path)
    loaded: Any = load_model(tmp_path).eval()
    assert torch.equal(logits(loaded, words_BT)[0], logits(model, words_BT)[0])


def test_a_batch_of_one_word_trains_with_the_running_statistics():
    model, words_BT = fill_running_statistics(make_model(make_config())), torch.tensor([[3, 4]])
    expected, _ = negative_log_likelihood(model, words_BT[:, :1], words_BT[:, 1:])
    loss, _ = negative_log_likelihood(model.train(), words_BT[:, :1], words_BT[:, 1:])
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


def test_batch_norm_starts_without_scale_and_shift():
    model: Any = build_model(ResidualMemoryConfig(width=8), WORDS, seed=1)
    norm = model.layers[3].normalise
    assert norm.scale_H.eq(1).all()
    assert norm.shift_H.eq(0).all()


@pytest.mark.parametrize(("width", "published"), [(100, 2.3), (256, 7.1)])
def test_sizes_of_the_papers_models_on_penn_treebank(width, published):
    """Table 1, in millions: two 10,000 x d tables, 30 d x d matrices, 30 vectors, one bias a word."""
    count = ResidualMemoryConfig(width=width).parameter_count(10_000)
    assert count == 20_000 * width + 30 * width**2 + 30 * width + 10_000
    assert round(count / 1e6, 1) == published


def test_a_shared_matrix_is_counted_once():
    apart, shared = (ResidualMemoryConfig(past=past).parameter_count(50) for past in ("per_layer", "shared"))
    assert apart - shared == 14 * 100**2


def test_cost_per_word_by_hand():
    """Two d x d products a layer and d V for the output."""
    assert ResidualMemoryConfig().multiply_adds(10_000) == 30 * 100**2 + 100 * 10_000
