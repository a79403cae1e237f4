"""Values as MLflow's parameters and metrics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.tracking.entries import parameter_text, parameter_value, report_fields, shortened

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)


@given(SCALARS)
def test_a_parameter_comes_back_with_its_type(value):
    back = parameter_value(parameter_text(value))
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize("text", ["gating", "sentence", "a b"])
def test_text_is_stored_as_it_is(text):
    assert parameter_text(text) == text == parameter_value(text)


@given(st.text(), st.integers(16, 50))
def test_shortened_text_fits(text, length):
    assert len(shortened(text, length)) <= length


def test_a_report_is_its_numbers_at_its_tokens():
    report = {"tokens": 7, "train_loss": 1, "finished": True, "reason": None}
    assert report_fields(report) == (7, {"train_loss": 1.0})
