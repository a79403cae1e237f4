"""The agreement of every network with an oracle in tests/oracles, which follows the equations of its paper.

A new family lists its cases in tests/oracles/<family>.py. The tests compare the logits, the loss and the
gradient of every parameter.
"""

import pytest
import torch

from memtune.model_checks.oracles import assert_agreement, assert_near, assert_same_gradients
from memtune.models import logits, negative_log_likelihood
from tests.oracles.table import FAMILIES, list_cases

CASES = list_cases()
CUT_CASES = {name: case for name, case in CASES.items() if case.cuts}
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


@pytest.mark.parametrize("case", CUT_CASES.values(), ids=CUT_CASES)
def test_a_text_in_one_piece_and_in_two_agrees_with_the_equations(case):
    """The oracle reads the text once. The gradients are those of the sum of the losses after each cut."""
    model, words_BT = case.build(torch.float64), case.draw_text(case.cut_length)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    sentences = case.get_oracle(model)(model.config, parameters, inputs_BT)
    expected_BTV = torch.stack([torch.stack(sentence) for sentence in sentences])
    nats_BT = -expected_BTV.log_softmax(2).gather(2, targets_BT[:, :, None]).squeeze(2)
    losses, expected = [], []
    for cut in (0, *case.cuts):
        state = logits(model, inputs_BT[:, :cut])[1] if cut else None
        rest_BT, after = inputs_BT[:, cut:], f"after {cut} of {case.cut_length} words"
        assert_near(
            logits(model, rest_BT, state)[0], expected_BTV[:, cut:], FLOAT64_TOLERANCE, f"logits {after}"
        )
        losses.append(negative_log_likelihood(model, rest_BT, targets_BT[:, cut:], state=state)[0])
        expected.append(nats_BT[:, cut:].sum())
        assert_near(losses[-1], expected[-1], FLOAT64_TOLERANCE, f"loss {after}")
    total, wanted = torch.stack(losses).sum(), torch.stack(expected).sum()
    assert_same_gradients(model, total, parameters, wanted, FLOAT64_TOLERANCE)


@parametrize_texts("length", "float32_lengths")
def test_single_precision_agrees_to_rounding(case, length):
    model = case.build(torch.float32)
    assert_agreement(model, case.get_oracle(model), case.draw_text(length), FLOAT32_TOLERANCE, seed=length)
