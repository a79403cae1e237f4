import math
from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.model_checks.oracles import assert_agreement
from memtune.models import LSTMConfig, build_model
from memtune.models.families.attention_lstm import AttentionLSTMConfig
from memtune.models.outputs.output_config import AdaptiveConfig
from memtune.values import parse
from tests.oracles.lstm import compute_lstm_logits

WIDTH, WORDS = 8, 29
CONFIGS = {
    "default": AdaptiveConfig(),
    "one cluster": AdaptiveConfig(cutoffs=(7,), factor=1),
    "three clusters, the last of one word": AdaptiveConfig(cutoffs=(2, 11, 28), factor=2),
}
every_config = pytest.mark.parametrize("output", CONFIGS.values(), ids=CONFIGS)
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


def make_lstm(output: AdaptiveConfig):
    return build_model(LSTMConfig(width=WIDTH, initial_range=0.5, output=output), WORDS, seed=1)


@pytest.mark.parametrize("length", [1, 2])
def test_the_layer_agrees_with_the_equations_when_clusters_have_no_target(length):
    assert_agreement(
        make_lstm(AdaptiveConfig()).double(), compute_lstm_logits, draw_text(length) % 3, tolerance=1e-9
    )


def test_nats_by_row_are_in_the_order_of_the_rows():
    model = make_lstm(AdaptiveConfig(cutoffs=(3, 9), factor=2)).double()
    hidden_BTH, _ = model.encode(draw_text(20), model.initial_state(3))
    hidden_NH, targets_N = hidden_BTH.flatten(0, 1), draw_text(20).roll(1).flatten()
    mask_N = targets_N % 2 == 0
    nats, nats_N = model.output.negative_log_likelihood_by_row(hidden_NH, targets_N, mask_N)
    expected_N = -model.output(hidden_NH).gather(1, targets_N.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(nats_N, expected_N.detach(), **EXACT)
    torch.testing.assert_close(nats, expected_N[mask_N].sum(), **EXACT)
    assert not nats_N.requires_grad


def test_zero_parameters_share_a_cluster_evenly():
    """Head of 2 words and one cluster of 4: a third for each of them, and a twelfth for a word of it."""
    layer = AdaptiveConfig(cutoffs=(2,)).build(4, 6)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    expected = [math.log(1 / 3)] * 2 + [math.log(1 / 12)] * 4
    assert layer(torch.ones(4)).tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "clusters"), [(1, []), (2, [1]), (3, [1]), (31, [2, 7]), (10_000, [500, 2000])]
)
def test_default_clusters_begin_at_a_twentieth_and_a_fifth_of_the_vocabulary(words, clusters):
    assert AdaptiveConfig().resolve_cutoffs(words) == clusters


def test_size_and_cost_by_hand():
    """Head 2,000 + 2; 8,000 words at 32 and 54,000 at 8, which a share of words by Zipf's law meets."""
    config = AdaptiveConfig(cutoffs=(2000, 10_000))
    expected = 2002 * 129 + 32 * (128 + 8000) + 8000 + 8 * (128 + 54_000) + 54_000
    assert config.parameter_count(128, 64_000) == expected
    ranks = [sum(1 / rank for rank in range(1, last + 1)) for last in (2000, 10_000, 64_000)]
    shares = [(ranks[1] - ranks[0]) / ranks[2], (ranks[2] - ranks[1]) / ranks[2]]
    cost = 2002 * 128 + shares[0] * 32 * (128 + 8000) + shares[1] * 8 * (128 + 54_000)
    assert config.multiply_adds(128, 64_000) == pytest.approx(cost, rel=1e-3)


@pytest.mark.parametrize("cutoffs", [[0, 4], [4, 4], [9, 4]], ids=str)
def test_cutoffs_that_do_not_ascend_are_refused(cutoffs):
    with pytest.raises(ConfigurationError, match="cutoffs must ascend from 1 or more"):
        parse(LSTMConfig, {"output": {"kind": "adaptive", "cutoffs": cutoffs}}, "test")


def test_a_cutoff_outside_of_the_vocabulary_is_refused():
    with pytest.raises(ConfigurationError, match=r"cutoffs must be below the 29 words.*got \[3, 29\]"):
        make_lstm(AdaptiveConfig(cutoffs=(3, 29)))


@pytest.mark.parametrize(
    ("family", "fields"), [(LSTMConfig, {"tie_output": True}), (AttentionLSTMConfig, {})], ids=str
)
def test_tied_words_are_refused(family, fields):
    with pytest.raises(ConfigurationError, match="set tie_output = false"):
        parse(family, {"output": {"kind": "adaptive"}, **fields}, "test")
