"""Identities of configurations as the stores of users hold them: a new field must leave them as they are.

Where one changes, add the field with its default to `training.trial_config.LATER_FIELDS`. Those of families
are with their oracles, and those of tasks in `tests/contracts/test_tasks.py`.
"""

from importlib import import_module
from typing import Any

import pytest

from memtune.models import MODELS
from memtune.training import TrialConfig

TRAINING = {"epochs": 1}
OTHER_FIELDS: dict[str, dict[str, Any]] = {
    "dependency_rnn": {"protocol": {"kind": "tree"}},
    "kneser_ney": {"training": None},
}
"""What a trial of a family needs beside it."""
CASES: list[tuple[dict[str, Any], str]] = [
    *(
        (
            {"model": {"family": family}} | OTHER_FIELDS.get(family, {}),
            import_module(f"tests.oracles.{family}").IDENTITY,
        )
        for family in MODELS.built_in
    ),
    ({"training": {"epochs": 1, "optimiser": {"kind": "adam"}}}, "22afda3133a104f9"),
    ({"training": {"epochs": 1, "optimiser": {"kind": "adamw"}}}, "e62199921353d847"),
    ({"training": {"epochs": 1, "optimiser": {"kind": "rmsprop"}}}, "03334e8d99babaa0"),
    ({"training": {"epochs": 1, "optimiser": {"kind": "nt_asgd"}}}, "8545c0038c26ca41"),
    ({"training": {"epochs": 1, "schedule": {"kind": "step"}}}, "0fa41054e3470d18"),
    ({"training": {"epochs": 1, "schedule": {"kind": "plateau"}}}, "4f8985ef5dc58578"),
    ({"training": {"epochs": 1, "schedule": {"kind": "inverse", "decay": 0.1}}}, "587971579d58a3d7"),
    ({"protocol": {"kind": "stream"}}, "64e2aeeacf416080"),
    ({"model": {"family": "lstm", "output": {"kind": "class_factored"}}}, "25c3d94433459079"),
    ({"model": {"family": "lstm", "output": {"kind": "adaptive"}}}, "a92a1fd34b8b8ad8"),
]


@pytest.mark.parametrize(
    ("fields", "identity"), CASES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_identities_are_those_of_stored_trials(fields: dict[str, Any], identity: str) -> None:
    config = TrialConfig.model_validate({"model": {"family": "lstm"}, "training": TRAINING} | fields)
    assert config.identity("0" * 64) == identity


def test_a_later_field_with_another_value_is_part_of_the_identity() -> None:
    all_decay, some_decay = (
        TrialConfig.model_validate(
            {
                "model": {"family": "lstm"},
                "training": {**TRAINING, "optimiser": {"kind": "adamw", "decayed": decayed}},
            }
        )
        for decayed in ("all", "matrices")
    )
    assert all_decay.identity("") != some_decay.identity("")
    assert all_decay.configuration_identity != some_decay.configuration_identity
