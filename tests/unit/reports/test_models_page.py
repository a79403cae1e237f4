"""The files generated from the registry of families are up to date and complete."""

from pathlib import Path

import pytest

from memtune.models import MODELS
from memtune.reports.model_reference import DERIVED_FILES

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", DERIVED_FILES)
def test_a_generated_file_is_up_to_date(path: str) -> None:
    expected = DERIVED_FILES[path]()
    assert (ROOT / path).read_text() == expected, "run: python -m memtune.reports.model_reference"


@pytest.mark.parametrize("family", MODELS)
def test_every_field_of_a_family_has_a_description(family: str) -> None:
    undescribed = [
        name
        for name, field in MODELS[family].model_fields.items()
        if not (field.description or name == "family")
    ]
    assert not undescribed
