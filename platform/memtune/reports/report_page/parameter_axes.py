"""Axes of searched parameters: each value a place from 0 to 1, and one place for trials without it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memtune.reports.report_page.chart_parts import choose_ticks, divide
from memtune.results.study.study_trials import StudyTrial
from memtune.spaces import FAMILY_FIELD
from memtune.values import shorten_field

ALTERNATIVE = "alternative"
"""What a study compares, where a field of its trials is asked for."""
ABSENT_PLACE = -0.25
"""Where an axis shows trials whose model does not have the parameter."""
LOGARITHMIC_RATIO = 8.0
"""From this ratio of the largest to the smallest value on, the places of numbers are logarithmic."""
CHART_PIXELS = (0, 400, 800)
"""Widths of a chart from which on more labels are shown; the first is that of a phone."""
AXIS_CHARACTERS = (24, 42, 84)
"""Characters that fit side by side between the places 0 and 1 at these widths, the first at 220 pixels."""
MAX_PIXELS = 100_000
"""Wider than any chart."""
MAX_LEVELS = 6
"""More different numbers get round numbers as ticks."""


class AxisTick(NamedTuple):
    """A label of an axis, in charts of some widths."""

    place: float
    text: str
    min_pixels: float
    """The least width of a chart that shows the label."""
    max_pixels: float
    """The width from which on the labels of a wider chart are shown."""


@dataclass(frozen=True)
class ParameterAxis:
    """A parameter with the places of its values."""

    field: str
    label: str
    places: Mapping[str, float]
    """By the text of a value."""
    ticks: tuple["AxisTick", ...]
    """The labels for each width of a chart."""

    def find_place(self, value: object) -> float:
        """The place of a value; ABSENT_PLACE for None."""
        return ABSENT_PLACE if value is None else self.places[format_level(value)]


def make_axis(field: str, label: str, values: Sequence[object]) -> ParameterAxis | None:
    """The axis of a parameter over the trials' values; None where all have the same."""
    levels = {format_level(value): value for value in values if value is not None}
    has_absent = None in values
    if len(levels) + has_absent < 2:
        return None
    numbers = {
        text: float(value)
        for text, value in levels.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if levels and len(numbers) == len(levels):
        places, ticks = _place_numbers(numbers)
    else:
        names = sorted(levels)
        places = {text: place / max(1, len(names) - 1) for place, text in enumerate(names)}
        ticks = [(place, text) for text, place in places.items()]
    absent = [(ABSENT_PLACE, "absent")] if has_absent else []
    widths = zip(CHART_PIXELS, (*CHART_PIXELS[1:], MAX_PIXELS), AXIS_CHARACTERS, strict=True)
    shown = tuple(
        AxisTick(place, text, low, high)
        for low, high, characters in widths
        for place, text in drop_overlapping([*absent, *ticks], characters)
    )
    return ParameterAxis(field, label, places, shown)


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
    texts = (f"{each:,.0f}" if each >= 1000 else format_level(each) for each in round_numbers)
    return places, list(zip(map(place, round_numbers), texts, strict=True))


def name_fields(fields: Sequence[str]) -> dict[str, str]:
    """A short name for each field: its last part, with the part before where two would be equal.

    >>> name_fields(["model.width", "training.optimiser.kind"])
    {'model.width': 'width', 'training.optimiser.kind': 'optimiser'}
    """
    found = {field: shorten_field(field) for field in fields}
    counts = list(found.values())
    return {field: name if counts.count(name) == 1 else field for field, name in found.items()}


def format_level(value: object) -> str:
    """A value of a configuration as a text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def drop_overlapping(ticks: Sequence[tuple[float, str]], characters: int) -> list[tuple[float, str]]:
    """The ticks whose labels have room after the one before; the last one always has.

    `characters` is the number of them that fit between the places 0 and 1.
    """
    kept: list[tuple[float, str]] = []
    for tick in ticks:
        if not kept or _is_clear(kept[-1], tick, characters):
            kept.append(tick)
    last = ticks[-1]
    if kept[-1] != last:
        while kept and not _is_clear(kept[-1], last, characters):
            kept.pop()
        kept.append(last)
    return kept


def _is_clear(left: tuple[float, str], right: tuple[float, str], characters: int) -> bool:
    needed = (len(left[1]) + len(right[1])) / 2 + 1
    return (right[0] - left[0]) * characters >= needed


def read_field(trial: StudyTrial, field: str) -> Any:
    """The value of a field of a trial, or its alternative; None for a model that does not have the field."""
    own = {FAMILY_FIELD: trial.family, ALTERNATIVE: trial.alternative}
    return own[field] if field in own else trial.fields.get(field)
