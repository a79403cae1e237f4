"""The objective of a task that a user wrote."""

from typing import Literal

import pytest
from pydantic import ValidationError

from memtune.objective import Objective
from memtune.tasks.language_modelling import LanguageModellingConfig


class NamedObjective(LanguageModellingConfig):
    """A task whose objective is declared by name, without memtune's enumeration."""

    objective: Literal["perplexity"] = "perplexity"  # type: ignore[assignment]


class UnknownObjective(LanguageModellingConfig):
    """A task with an objective that memtune cannot compare."""

    objective: Literal["fluency"] = "fluency"  # type: ignore[assignment]


@pytest.mark.parametrize("fields", [{}, {"objective": "perplexity"}])
def test_an_objective_declared_by_name_answers_like_memtunes_own(fields: dict[str, str]) -> None:
    task = NamedObjective.model_validate(fields)
    assert task.objective is Objective.PERPLEXITY
    assert task.model_dump(mode="json")["objective"] == "perplexity"


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(ValidationError, match="'fluency' is not a valid Objective"):
        UnknownObjective()
