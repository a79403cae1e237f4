"""Values as MLflow's parameters and metrics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.tracking.runs.run_store import (
    format_parameter,
    parse_parameter,
    read_report,
    truncate_text,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)


@given(SCALARS)
def test_a_parameter_is_read_with_its_type(value):
    back = parse_parameter(format_parameter(value))
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize("text", ["gating", "sentence", "a b"])
def test_text_is_stored_unchanged(text):
    assert format_parameter(text) == text == parse_parameter(text)


@given(st.text(), st.integers(16, 50))
def test_shortened_text_fits(text, length):
    assert len(truncate_text(text, length)) <= length


def test_a_report_is_its_numbers_at_its_tokens():
    report = {"tokens": 7, "train_loss": 1, "finished": True, "reason": None}
    assert read_report(report) == (7, {"train_loss": 1.0}, {})
