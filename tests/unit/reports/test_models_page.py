"""docs/models.md describes every field."""

import pytest

from memtune.models import MODELS


@pytest.mark.parametrize("family", MODELS)
def test_every_field_of_a_family_has_a_description(family: str) -> None:
    undescribed = [
        name
        for name, field in MODELS[family].model_fields.items()
        if not (field.description or name == "family")
    ]
    assert not undescribed
