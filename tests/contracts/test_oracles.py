"""The agreement of every network with an oracle in tests/oracles, which follows the equations of its paper.

A new family lists its cases in tests/oracles/<family>.py. The tests compare the logits, the loss and the
gradient of every parameter.
"""

import pytest
import torch

from memtune.model_checks.oracles import assert_agreement
from tests.oracles.table import FAMILIES, list_cases

CASES = list_cases()
FLOAT64_TOLERANCE = 1e-9
"""The order of sums changes results by 1e-12 in long texts; an error in an equation by more than 1e-4."""
FLOAT32_TOLERANCE = 1e-5
"""A hundred times the rounding error of float32, because rounding errors accumulate along a text."""


def parametrize_texts(argument: str, field: str) -> pytest.MarkDecorator:
    """Every case with each of its texts."""
    rows = [(case, length) for case in CASES.values() for length in getattr(case, field)]
    ids = [f"{name}-{length}" for name, case in CASES.items() for length in getattr(case, field)]
    return pytest.mark.parametrize(("case", argument), rows, ids=ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_oracle_cases_for_whole_texts_cuts_and_float32(family):
    cases = [case for case in CASES.values() if case.config.family == family]
    for texts in ("lengths", "cuts", "float32_lengths"):
        assert any(getattr(case, texts) for case in cases), texts


@parametrize_texts("length", "lengths")
def test_logits_loss_and_gradients_agree_with_the_equations(case, length):
    model = case.build(torch.float64)
    assert_agreement(model, case.get_oracle(model), case.draw_text(length), FLOAT64_TOLERANCE, seed=length)


@parametrize_texts("carried_from", "cuts")
def test_carried_state_agrees_with_reading_the_whole_text(case, carried_from):
    model = case.build(torch.float64)
    words_BT = case.draw_text(case.cut_length)
    assert_agreement(model, case.get_oracle(model), words_BT, FLOAT64_TOLERANCE, carried_from)


@parametrize_texts("length", "float32_lengths")
def test_single_precision_agrees_to_rounding(case, length):
    model = case.build(torch.float32)
    assert_agreement(model, case.get_oracle(model), case.draw_text(length), FLOAT32_TOLERANCE, seed=length)
