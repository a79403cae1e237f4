"""Behaviour that the families of stacked LSTMs with a recurrence of their own share."""

import pytest
import torch

from memtune.models import build_model, negative_log_likelihood
from memtune.models.families.depth_gated_lstm import DepthGatedLSTMConfig
from memtune.models.families.gated_feedback_lstm import GatedFeedbackLSTMConfig
from memtune.models.families.lstmn import LSTMNConfig
from tests.low_precision import autocast_to_bfloat16
from tests.presence import require

WORDS = 23
CONFIGS = [DepthGatedLSTMConfig, GatedFeedbackLSTMConfig, LSTMNConfig]

every_config = pytest.mark.parametrize("make_config", CONFIGS, ids=lambda config: config.__name__)


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, length + 1), generator=torch.Generator().manual_seed(length))


@every_config
def test_reduced_precision_trains_and_carries_its_state_in_full(make_config):
    config = make_config(width=8, layers=2, initial_range=0.8)
    model, words_BT = build_model(config, WORDS, seed=1), draw_text(9)
    with autocast_to_bfloat16():
        nats, state = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
    nats.backward()
    exact, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
    assert {value.dtype for value in state.values()} == {torch.float32}
    torch.testing.assert_close(nats, exact, rtol=0.02, atol=0)  # bfloat16 keeps 8 bits
    assert all(require(parameter.grad).isfinite().all() for parameter in model.parameters())


@every_config
@pytest.mark.parametrize(("placement", "share"), [("between", 0.0), ("after", 0.5)])
def test_dropout_reaches_the_top_only_after_each_layer(make_config, placement, share):
    config = make_config(width=64, layers=2, dropout=0.5, dropout_placement=placement)
    model = build_model(config, WORDS, seed=1)
    hidden_BTH, _ = model.encode(draw_text(30), model.initial_state(2))
    again_BTH, _ = model.encode(draw_text(30), model.initial_state(2))
    dropped = hidden_BTH.eq(0).double().mean().item()
    assert dropped == pytest.approx(share, abs=0.05)  # 3,968 draws: a standard deviation of 0.008
    assert not torch.equal(hidden_BTH, again_BTH)
