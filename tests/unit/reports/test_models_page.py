"""docs/models.md is written from the code and says all of it."""

from pathlib import Path

import pytest

from memtune.models import MODELS
from memtune.reports.models import models_page

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


def test_the_page_in_the_tree_is_the_one_the_code_writes() -> None:
    assert PAGE.read_text() == models_page(), "python -m memtune.reports.models > docs/models.md"


@pytest.mark.parametrize("family", MODELS)
def test_every_field_of_a_family_says_what_it_is(family: str) -> None:
    undescribed = [
        name
        for name, field in MODELS[family].model_fields.items()
        if not (field.description or name == "family")
    ]
    assert not undescribed
