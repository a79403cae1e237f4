from typing import Any

import pytest
import torch

from memtune.model_checks.oracles import assert_same_gradients
from memtune.models import build_model, logits, negative_log_likelihood
from memtune.models.families.awd_lstm import AWDLSTMConfig
from tests.oracles.awd_lstm import (
    compute_activation_regularisation,
    compute_awd_lstm_logits,
    compute_awd_lstm_outputs,
)

WORDS = 23
SIZE = {"embedding_width": 5, "width": 7, "initial_range": 0.5}
DROPS = ("weight_drop", "embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout")
NOTHING = dict.fromkeys(DROPS, 0.0)


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(**options):
    return build_model(AWDLSTMConfig(**SIZE | options), WORDS, seed=1).double()


def test_evaluation_draws_no_mask():
    masks = make_model().eval()._draw_masks(3)
    assert all(mask is None for mask in [masks.words_V, *masks.recurrent_GH, *masks.read_B1H])


@pytest.mark.parametrize("masked", [False, True], ids=["all words", "rows of unequal length"])
@pytest.mark.parametrize("length", [1, 2, 15])
def test_activation_regularisation_is_in_the_gradient_and_not_in_the_loss(length, masked):
    model, words_BT = make_model(), draw_text(length)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    lengths = torch.tensor([length, -(-length // 2), 1])
    mask_BT = torch.arange(length) < lengths.unsqueeze(1) if masked else None
    counted = torch.ones(3, length, dtype=torch.bool) if mask_BT is None else mask_BT

    parameters = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}
    torch.manual_seed(3)
    masks = model._draw_masks(3)
    rows = compute_awd_lstm_logits(model.config, parameters, inputs_BT, masks)
    logits_BTV = torch.stack([torch.stack(row) for row in rows])
    nats_BT = -logits_BTV.log_softmax(2).gather(2, targets_BT.unsqueeze(2)).squeeze(2)
    raw, masked_rows = compute_awd_lstm_outputs(model.config, parameters, inputs_BT, masks)
    expected = nats_BT[counted].sum()
    penalised = expected + compute_activation_regularisation(model.config, raw, masked_rows, counted.tolist())

    torch.manual_seed(3)
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT, mask_BT)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    assert_same_gradients(model, loss, parameters, penalised, tolerance=1e-9)


def test_a_dropped_word_is_dropped_at_all_its_positions():
    model = make_model(**NOTHING | {"embedding_dropout": 0.5, "tie_output": False})
    torch.manual_seed(0)
    words_V = model._draw_masks(1).words_V
    assert set(words_V.tolist()) == {0.0, 2.0}
    dropped, kept = (int(words_V.eq(value).nonzero()[0]) for value in (0.0, 2.0))
    words_BT = torch.tensor([[dropped, kept], [kept, dropped]])
    torch.manual_seed(0)
    before_BTV, _ = logits(model, words_BT)
    model.embedding.weight.data[dropped] += 1.0
    torch.manual_seed(0)
    assert torch.equal(logits(model, words_BT)[0], before_BTV)


def test_size_of_the_papers_penn_treebank_model():
    """400 x 10,000 words; layers of 1150, 1150 and 400 units with two biases each; 24M is printed."""
    layers = 4 * 1150 * (400 + 1150 + 2) + 4 * 1150 * (1150 + 1150 + 2) + 4 * 400 * (1150 + 400 + 2)
    assert AWDLSTMConfig().parameter_count(10_000) == 4_000_000 + layers + 10_000 == 24_221_600


def test_cost_per_word_by_hand():
    layers = 4 * 7 * (5 + 7) + 4 * 7 * (7 + 7) + 4 * 5 * (7 + 5)
    assert AWDLSTMConfig(**SIZE).multiply_adds(WORDS) == layers + 5 * WORDS


def test_layers_start_in_a_range_that_depends_on_their_width_and_tables_in_initial_range():
    model: Any = build_model(AWDLSTMConfig(embedding_width=16, width=64, initial_range=0.01), WORDS, seed=1)
    assert model.embedding.weight.abs().max() <= 0.01
    for layer, width in zip(model.layers, [64, 64, 16], strict=True):
        for parameter in layer.parameters():
            assert 0.9 * width**-0.5 < parameter.abs().max() <= width**-0.5
