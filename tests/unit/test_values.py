"""Errors about a configuration are found once and cost little when the same mistake occurs often."""

import re
from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter

from memtune.errors import ConfigurationError
from memtune.training import TrialConfig
from memtune.values import Value, parse


class Numbers(Value):
    """Every kind of field that holds numbers."""

    whole: int = 1
    real: float | None = 1.0
    many: tuple[int, ...] = ()
    named: dict[str, float] | None = None
    share: float | Literal["fit"] = 1.0
    flag: bool = False


class Nested(Value):
    numbers: Numbers = Numbers()


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


class Rates(Value):
    rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1)


@pytest.mark.parametrize(("rates", "place"), [([-1.0], "rates.0"), ([], "rates")])
def test_a_list_is_not_called_too_short_because_its_members_are_wrong(rates, place) -> None:
    with pytest.raises(ConfigurationError, match=rf"^here: {place}: [^\n]*$"):
        parse(Rates, {"rates": rates}, "here")


def test_an_error_shows_the_first_of_many_problems() -> None:
    """Describing 50,000 unknown names of a hostile file took minutes."""
    data = {"model": {"family": "lstm"}} | {f"unknown_{number}": 1 for number in range(2_000)}
    with pytest.raises(ConfigurationError, match=r"and 1,980 more problems$") as raised:
        parse(TrialConfig, data, "trial.toml")
    assert len(str(raised.value).splitlines()) == 21


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"whole": True}, "numbers.whole: Input should be a valid integer, got True; write a number"),
        ({"whole": "8"}, "got '8'; write 8 without quotation marks"),
        ({"real": False}, "numbers.real: Input should be a valid number, got False; write a number"),
        ({"real": "1e-3"}, "got '1e-3'; write 1e-3 without quotation marks"),
        ({"real": "low"}, "numbers.real: Input should be a valid number, got 'low'"),
        ({"many": [8, True]}, "numbers.many.1: Input should be a valid integer, got True; write a number"),
        ({"named": {"a": "2"}}, "numbers.named.a: Input should be a valid number, got '2'; write 2 without"),
        ({"share": "0.5"}, "numbers.share: Input should be a valid number, or 'fit', got '0.5'"),
        ({"flag": 1}, "numbers.flag: Input should be a valid boolean, got 1; write true or false without"),
        ({"flag": "yes"}, "numbers.flag: Input should be a valid boolean, got 'yes'; write true or false"),
    ],
)
def test_truth_values_and_texts_are_no_numbers(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as raised:
        parse(Nested, {"numbers": fields}, "trial.toml")
    (line,) = str(raised.value).splitlines()
    assert line.startswith("trial.toml: numbers.")


def test_a_whole_number_may_have_an_exponent_and_a_real_one_no_fraction() -> None:
    found = parse(Numbers, {"whole": 1e6, "real": 2, "many": [1.0], "share": 1}, "trial.toml")
    assert (found.whole, found.real, found.many, found.share) == (1_000_000, 2.0, (1,), 1.0)
    assert [type(each) for each in (found.whole, found.real, *found.many, found.share)] == [
        int,
        float,
        int,
        float,
    ]


def test_a_member_of_an_enumeration_is_named_by_its_value() -> None:
    trial = {"model": {"family": "lstm"}, "task": {"kind": "sentiment", "objective": "perplexity"}}
    with pytest.raises(ConfigurationError, match=r"task.objective .*: Input should be 'accuracy', got 'per"):
        parse(TrialConfig, trial, "trial.toml")
