"""Errors about a configuration are found once and cost little when the same mistake occurs often."""

import pytest
from pydantic import TypeAdapter

from memtune.errors import ConfigurationError
from memtune.training import TrialConfig
from memtune.values import parse


def test_a_mistake_that_many_samples_share_needs_the_schema_of_all_families_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generated: list[object] = []
    generate = TypeAdapter.json_schema

    def count(adapter: "TypeAdapter[object]") -> dict[str, object]:
        generated.append(adapter)
        return generate(adapter)

    monkeypatch.setattr(TypeAdapter, "json_schema", count)
    for width in range(1, 20):
        data = {"model": {"family": "lstm", "width": width}, "training": {"clip_norm0": 5.0}}
        with pytest.raises(ConfigurationError, match=r'unknown name "training\.clip_norm0".*clip_norm'):
            parse(TrialConfig, data, "study.toml")
    assert len(generated) <= 1


def test_an_error_shows_the_first_of_many_problems() -> None:
    """Describing 50,000 unknown names of a hostile file took minutes."""
    data = {"model": {"family": "lstm"}} | {f"unknown_{number}": 1 for number in range(2_000)}
    with pytest.raises(ConfigurationError, match=r"and 1,980 more problems$") as raised:
        parse(TrialConfig, data, "trial.toml")
    assert len(str(raised.value).splitlines()) == 21
