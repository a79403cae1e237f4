"""Axes of searched parameters: each value a place from 0 to 1, and one place for trials without it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from memtune.reports.report_page.chart_parts import choose_ticks, divide

__all__ = [
    "ABSENT_PLACE",
    "ParameterAxis",
    "format_level",
    "make_axis",
    "name_fields",
    "read_field",
]

ABSENT_PLACE = -0.25
"""Where an axis shows trials whose model does not have the parameter."""
LOGARITHMIC_RATIO = 8.0
"""From this ratio of the largest to the smallest value on, the places of numbers are logarithmic."""
AXIS_CHARACTERS = 44
"""Characters that fit side by side on the axis of a phone."""
MAX_LEVELS = 6
"""More different numbers get round numbers as ticks."""


@dataclass(frozen=True)
class ParameterAxis:
    """A parameter with the places of its values."""

    field: str
    label: str
    places: Mapping[str, float]
    """By the text of a value."""
    ticks: tuple[tuple[float, str], ...]
    """Places and texts whose labels do not overlap, the absent one first where trials lack the parameter."""

    def find_place(self, value: object) -> float:
        """The place of a value; ABSENT_PLACE for None."""
        return ABSENT_PLACE if value is None else self.places[format_level(value)]


def make_axis(field: str, label: str, values: Sequence[object]) -> ParameterAxis | None:
    """The axis of a parameter over the trials' values; None where all have the same."""
    levels = {format_level(value): value for value in values if value is not None}
    has_absent = None in values
    if len(levels) + has_absent < 2:
        return None
    numbers = {text: float(value) for text, value in levels.items() if _is_number(value)}
    if levels and len(numbers) == len(levels):
        places, ticks = _place_numbers(numbers)
    else:
        names = sorted(levels)
        places = {text: place / max(1, len(names) - 1) for place, text in enumerate(names)}
        ticks = [(place, text) for text, place in places.items()]
    absent = [(ABSENT_PLACE, "absent")] if has_absent else []
    return ParameterAxis(field, label, places, _drop_overlapping([*absent, *ticks]))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _place_numbers(numbers: Mapping[str, float]) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """The place of each number by its text, and ticks: the numbers themselves where they are few."""
    low, high = min(numbers.values()), max(numbers.values())
    is_logarithmic = low > 0 and high >= LOGARITHMIC_RATIO * low

    def place(number: float) -> float:
        if low == high:
            return 0.5
        return math.log(number / low, high / low) if is_logarithmic else (number - low) / (high - low)

    places = {text: place(number) for text, number in numbers.items()}
    if len(numbers) <= MAX_LEVELS:
        return places, sorted((place, text) for text, place in places.items())
    round_numbers = choose_ticks(low, high) if is_logarithmic else divide(low, high)
    return places, [(place(number), format_level(number)) for number in round_numbers]


def name_fields(fields: Sequence[str]) -> dict[str, str]:
    """A short name for each field: its last part, with the part before where two would be equal.

    >>> name_fields(["model.width", "training.optimiser.kind"])
    {'model.width': 'width', 'training.optimiser.kind': 'optimiser'}
    """
    found = {field: _shorten(field) for field in fields}
    counts = list(found.values())
    return {field: name if counts.count(name) == 1 else field for field, name in found.items()}


def _shorten(field: str) -> str:
    parent, _, last = field.rpartition(".")
    return parent.rpartition(".")[2] if last == "kind" and parent else last


def format_level(value: object) -> str:
    """A value of a configuration as a text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def _drop_overlapping(ticks: Sequence[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
    """The ticks whose labels have room after the one before; the last one always has."""
    kept: list[tuple[float, str]] = []
    for place, text in ticks:
        if not kept or _is_clear(kept[-1], (place, text)):
            kept.append((place, text))
    last = ticks[-1]
    if kept[-1] != last:
        while kept and not _is_clear(kept[-1], last):
            kept.pop()
        kept.append(last)
    return tuple(kept)


def _is_clear(left: tuple[float, str], right: tuple[float, str]) -> bool:
    needed = (len(left[1]) + len(right[1])) / 2 + 1
    return (right[0] - left[0]) * AXIS_CHARACTERS >= needed


def read_field(fields: Mapping[str, Any], family: str, field: str) -> Any:
    """The value of a field of a trial; None for a model that does not have it."""
    return family if field == "model.family" else fields.get(field)
