"""The contract of every family of networks in MODELS.

A new family lists its examples in tests/oracles/<family>.py; this file does not change. The checks are those
of `memtune model check`; what needs several configurations of a family is here.
"""

import math
from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.model_checks import CHECKS
from memtune.model_checks.family_contract import WORDS, draw_text, make_model
from memtune.models import (
    MODELS,
    LanguageModelConfig,
    NeuralLanguageModelConfig,
    build_model,
    logits,
    negative_log_likelihood,
)
from memtune.values import parse
from tests.low_precision import autocast_to_bfloat16
from tests.oracles.cases import EXAMPLE_SIZE
from tests.oracles.table import FAMILIES, list_examples

WIDTH = EXAMPLE_SIZE["width"]
EXAMPLES = list_examples()
every_example = pytest.mark.parametrize(
    "config", EXAMPLES, ids=[f"{i}-{example.family}" for i, example in enumerate(EXAMPLES)]
)
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_an_example(family):
    assert any(example.family == family for example in EXAMPLES)


@every_example
@pytest.mark.parametrize("topic", CHECKS)
def test_the_contract_holds(topic: str, config: NeuralLanguageModelConfig):
    CHECKS[topic](config)


@every_example
def test_products_in_bfloat16_give_the_loss_of_float32(config):
    model, words_BT = build_model(config, WORDS, seed=7), draw_text(3, 25)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    exact, _ = negative_log_likelihood(model.eval(), inputs_BT, targets_BT)
    with autocast_to_bfloat16():
        rounded, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
        trained, _ = negative_log_likelihood(model.train(), inputs_BT, targets_BT)
    # 8 bits of mantissa are 4e-3 in each product; the errors of products average out in the loss.
    assert rounded.item() == pytest.approx(exact.item(), rel=0.02)
    gradients = torch.autograd.grad(trained, list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert {value.dtype for value in (rounded, *gradients)} == {torch.float32}


ATTENDING = [config for config in EXAMPLES if "attention" in config.memory_traces]


@pytest.mark.parametrize("config", ATTENDING, ids=str)
def test_computing_attention_changes_no_logit(config):
    model: Any = make_model(config)
    words_BT = draw_text(3, 12)
    before_BTV = logits(model, words_BT)[0]
    weights_LBTn, offsets = model.trace_attention(words_BT, model.initial_state(3))
    assert torch.equal(logits(model, words_BT)[0], before_BTV)
    assert weights_LBTn.shape[1:] == (3, 12, len(offsets))
    torch.testing.assert_close(weights_LBTn.sum(3), torch.ones_like(weights_LBTn[..., 0]), **EXACT)


@pytest.mark.parametrize("config", ATTENDING, ids=str)
def test_offsets_ascend_and_leave_out_the_word_to_predict(config):
    _, offsets = make_model(config).trace_attention(draw_text(1, 4), make_model(config).initial_state(1))
    assert list(offsets) == sorted(set(offsets) - {1})
    assert config.reads_ahead or max(offsets) <= 0


TIES = [(family, tie) for family in MODELS for tie in MODELS[family].model_fields if tie.startswith("tie_")]


@pytest.mark.parametrize(("family", "tie"), TIES)
def test_tied_tables_are_one_table(family, tie):
    widths = {name: WIDTH for name in MODELS[family].model_fields if name == "embedding_width"}
    apart, tied = (MODELS[family](**EXAMPLE_SIZE, **widths, **{tie: value}) for value in (False, True))
    assert apart.parameter_count(WORDS) - tied.parameter_count(WORDS) == WORDS * WIDTH
    tables = [table for table in list_named_tensors(tied) if table.shape == (WORDS, WIDTH)]
    storages = {table.untyped_storage().data_ptr() for table in tables}
    assert len(storages) == len(tables) - 1


NARROW = [
    family
    for family in FAMILIES
    if {"tie_output", "embedding_width"} <= set(MODELS[family].model_fields)
    and MODELS[family].model_fields["embedding_width"].default is None
]


@pytest.mark.parametrize("family", NARROW)
def test_tying_tables_of_two_widths_is_refused(family):
    """A family whose embeddings are as wide as its layers unless `embedding_width` says otherwise."""
    with pytest.raises(ConfigurationError, match="leave embedding_width out"):
        parse(MODELS[family], {"tie_output": True, "width": 8, "embedding_width": 4}, "test")


@every_example
def test_a_network_is_trained_by_gradient(config):
    assert config.is_trained_by_gradient
    assert config.require_network("this test") is config


def list_named_tensors(config: LanguageModelConfig) -> list[torch.Tensor]:
    """Every named tensor; a shared tensor appears under each of its names."""
    return list(build_model(config, WORDS, seed=0).state_dict().values())


@pytest.mark.parametrize("number", [math.inf, math.nan])
@pytest.mark.parametrize("family", MODELS)
def test_no_number_of_a_family_is_infinite_or_missing(family, number):
    names = [name for name, field in MODELS[family].model_fields.items() if field.annotation is float]
    for name in names:
        with pytest.raises(ConfigurationError, match=name):
            parse(MODELS[family], {name: number}, "test")


@every_example
def test_a_configuration_names_its_family(config):
    assert MODELS[config.family] is type(config)
