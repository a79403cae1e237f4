"""Charts of searched parameters: importance, a slice for each, and parallel coordinates over all.

On an axis of a parameter, each value has a place from 0 to 1, and trials without it one place together.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt

from memtune.number_format import format_count
from memtune.reports.figure_files import LOG_SCALE, choose_ticks, divide
from memtune.reports.report_page import chart_parts as parts
from memtune.reports.report_page.chart_parts import MarkScales, Row, StudyChart
from memtune.results.study.study_detail import StudyDetail
from memtune.results.study.study_trials import StudyTrial
from memtune.search import MIN_PARAMETER_TRIALS
from memtune.spaces import FAMILY_FIELD
from memtune.trial_state import TrialState
from memtune.values import shorten_field

ALTERNATIVE = "alternative"
"""What a study compares, where a field of its trials is asked for."""
ABSENT_PLACE = -0.25
"""Where an axis shows trials whose model does not have the parameter."""
LOGARITHMIC_RATIO = 8.0
"""From this ratio of the largest to the smallest value on, the places of numbers may be logarithmic: where
that spreads them more evenly."""
CHART_PIXELS = (0, 400, 800)
"""Widths of a chart from which on more labels are shown; the first is that of a phone."""
AXIS_CHARACTERS = (24, 42, 84)
"""Characters that fit side by side between the places 0 and 1 at these widths, the first at 220 pixels."""
MAX_PIXELS = 100_000
"""Wider than any chart."""
MAX_LEVELS = 6
"""More different numbers get round numbers as ticks."""
MAX_BARS, MAX_SLICES, MAX_AXES = 15, 6, 8
MIN_IMPORTANCE = 0.005
BAR_PIXELS, AXIS_PIXELS = 40, 52
CHARACTER_SHARE = 0.015
"""Of the width of a chart, for each character of the text beside a bar."""
TOP_SHARE = 0.2
"""Of the finished trials, those whose lines are strong."""
PLACES = alt.Scale(domain=[ABSENT_PLACE - 0.06, 1.06], nice=False, zero=False)


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
    ticks: tuple[AxisTick, ...]
    """The labels for each width of a chart."""
    is_logarithmic: bool

    @property
    def title(self) -> str:
        """The label, and whether equal ratios have equal distances."""
        return f"{self.label}{LOG_SCALE if self.is_logarithmic else ''}"

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
    is_logarithmic = False
    if levels and len(numbers) == len(levels):
        is_logarithmic = _spreads_by_ratio(sorted(numbers.values()))
        places, ticks = _place_numbers(numbers, is_logarithmic)
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
    return ParameterAxis(field, label, places, shown, is_logarithmic)


def _spreads_by_ratio(numbers: Sequence[float]) -> bool:
    """Whether numbers in their order span a factor and are spread more evenly on a logarithmic axis."""
    low, high = numbers[0], numbers[-1]
    if low <= 0 or high < LOGARITHMIC_RATIO * low:
        return False
    return statistics.median(numbers) < (math.sqrt(low * high) + (low + high) / 2) / 2


def _place_numbers(
    numbers: Mapping[str, float], is_logarithmic: bool
) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """The place of each number by its text, and ticks: the numbers themselves where they are few."""
    low, high = min(numbers.values()), max(numbers.values())

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


def format_level(value: object) -> str:
    """A value of a configuration as a text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def drop_overlapping(ticks: Sequence[tuple[float, str]], characters: int) -> list[tuple[float, str]]:
    """The ticks whose labels have room, the last one always; so many characters fit from place 0 to 1."""
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


def draw_importance(detail: StudyDetail) -> StudyChart | None:
    """The share of each parameter of a family or branch; None below ten trials with a value."""
    found = [p for p in detail.importance if p.importance >= MIN_IMPORTANCE][:MAX_BARS]
    if not found:
        return None
    rows: list[Row] = [
        {
            "parameter": parameter.label,
            "importance": parameter.importance,
            "text": f"{parameter.importance:.0%} ({parameter.trials} trials)"
            + ("" if parameter.is_above_noise else ", within the noise"),
            "claimed": parameter.is_above_noise,
        }
        for parameter in found
    ]
    y = alt.Y("parameter:N", sort=None, title=None).axis(None)
    domain = [0, max(row["importance"] / (1 - CHARACTER_SHARE * len(row["text"])) for row in rows)]
    x = alt.X("importance:Q", scale=alt.Scale(domain=domain, nice=False), title="share of importance")
    bars = (
        parts.plot_rows("importance")
        .mark_bar(height=7, yOffset=8, cornerRadiusEnd=2)
        .encode(
            x=x.axis(format="%", values=divide(0, min(1.0, domain[1]))),
            y=y,
            color=alt.condition("datum.claimed", alt.value("var(--mark-0)"), alt.value(parts.MUTED)),
        )
    )
    # Labels above the bars, because names of parameters are longer than a phone's margin.
    labels = (
        parts.plot_rows("importance")
        .mark_text(align="left", baseline="bottom")
        .encode(x=alt.value(0), y=y, text="parameter:N")
    )
    shares = parts.plot_rows("importance").mark_text(align="left", dx=4, dy=8).encode(x=x, y=y, text="text:N")
    return StudyChart(
        name="importance",
        title="Importance of parameters",
        caption="How much the values of a parameter in the best trials differ from those in all trials "
        f"(conditional PED-ANOVA), for parameters that {MIN_PARAMETER_TRIALS} trials have; in brackets the "
        "branch that has the parameter. The shares add up to 100 %. Grey ones "
        "are within the noise: they are as large when the values of the trials are exchanged at random.",
        chart=alt.layer(bars, labels, shares),
        tables={"importance": rows},
        height=BAR_PIXELS * len(rows),
    )


def draw_slices(detail: StudyDetail, scales: MarkScales) -> Iterator[StudyChart]:
    """The figure against each of the most important parameters, with a place for trials without it."""
    trials = _list_valued(detail)
    for axis in _choose_axes(detail, trials)[:MAX_SLICES]:
        if axis.field not in (FAMILY_FIELD, ALTERNATIVE):
            yield _draw_slice(detail, trials, axis, scales)


def _draw_slice(
    detail: StudyDetail, trials: Sequence[StudyTrial], axis: ParameterAxis, scales: MarkScales
) -> StudyChart:
    objective = detail.summary.objective
    figures = [trial.figure or 0.0 for trial in trials]
    values = [read_field(trial, axis.field) for trial in trials]
    rows: list[Row] = [
        {
            "name": trial.name,
            "alternative": trial.alternative,
            "place": axis.find_place(value),
            "value": "absent" if value is None else format_level(value),
            "figure": figure,
            "state": trial.state.label,
            "complete": trial.state is TrialState.COMPLETE,
        }
        for trial, figure, value in zip(trials, figures, values, strict=True)
    ]
    validated = [trial for trial in detail.trials if not trial.is_repeat and trial.cost is not None]
    left_out = len(validated) - len(trials)
    trained = [trial.figure or 0.0 for trial in trials if not trial.is_counted]
    limit = parts.find_drawn_limit(trained, objective)
    y = parts.place_figures(alt.Y, (figure for figure in figures if figure <= limit), objective)
    x = alt.X("place:Q", scale=PLACES, title=axis.title)
    x = x.axis(labels=False, ticks=False, grid=False, titleY=28)
    name, level = alt.Tooltip("name:N", title="trial"), alt.Tooltip("value:N", title=axis.label)
    encoded = scales.encode(x, y, [name, level, parts.tell_figure(objective), alt.Tooltip("state:N")])
    complete = parts.plot_rows("trials", "datum.complete")
    short = parts.plot_rows("trials", "!datum.complete")
    layers = [
        short.mark_point(filled=False, size=parts.HOLLOW_SIZE, opacity=0.6, clip=True).encode(**encoded),
        complete.mark_point(filled=True, size=parts.HOLLOW_SIZE, opacity=0.9, clip=True).encode(**encoded),
    ]
    labels = _plot_ticks().mark_text(baseline="top", dy=6).encode(x=x, y=alt.value("height"), text="text:N")
    return StudyChart(
        name=f"slice_{axis.field}",
        title=axis.label,
        caption=f"{axis.field}. Hollow marks ended early."
        + parts.describe_drawn_limit(figures, limit)
        + (f" Without {format_count(left_out, 'trial')} that diverged." if left_out else ""),
        chart=alt.layer(*layers, labels),
        tables={"trials": rows, "ticks": [tick._asdict() for tick in axis.ticks]},
        height=200,
    )


def _plot_ticks() -> alt.Chart:
    """The labels for the width of the chart, in the page and in files."""
    return parts.plot_rows("ticks", "datum.min_pixels <= width && width < datum.max_pixels")


def draw_parallel_coordinates(detail: StudyDetail, scales: MarkScales) -> StudyChart | None:
    """A line for each trial over the parameters, one below the other; None with fewer than two of them."""
    trials, objective = _list_valued(detail), detail.summary.objective
    axes = _choose_axes(detail, trials)[:MAX_AXES]
    figures = [trial.figure or 0.0 for trial in trials]
    trained = [trial.figure or 0.0 for trial in trials if not trial.is_counted]
    limit = parts.find_drawn_limit(trained, objective)
    drawn = [format_level(min(figure, limit)) for figure in figures]
    last = make_axis("", f"validation {objective}", [float(text) for text in drawn])
    if len(axes) < 2 or last is None:
        return None
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    complete.sort(key=lambda trial: trial.cost or 0.0)
    top = {trial.identity for trial in complete[: max(1, round(TOP_SHARE * len(complete)))]}
    rows: list[Row] = []
    for trial, figure, end in zip(trials, map(format_level, figures), drawn, strict=True):
        places = [(axis, axis.find_place(read_field(trial, axis.field))) for axis in axes]
        for order, (axis, place) in enumerate([*places, (last, last.find_place(float(end)))]):
            value = read_field(trial, axis.field) if axis is not last else figure
            rows.append(
                {
                    "name": trial.name,
                    "alternative": trial.alternative,
                    "axis": axis.title,
                    "order": order,
                    "place": place,
                    "value": "absent" if value is None else format_level(value),
                    "figure": figure,
                    "top": trial.identity in top,
                    "complete": trial.state is TrialState.COMPLETE,
                }
            )
    far = f" Values above {format_level(limit)} are at the end of the last axis."
    return _join_axes(rows, [*axes, last], scales, far if max(figures) > limit else "")


def _join_axes(rows: list[Row], axes: Sequence[ParameterAxis], scales: MarkScales, remark: str) -> StudyChart:
    labels = [axis.title for axis in axes]
    ticks = [{**tick._asdict(), "axis": axis.title} for axis in axes for tick in axis.ticks]
    x = alt.X("place:Q", scale=PLACES, title=None).axis(None)
    y = alt.Y("axis:N", sort=labels, title=None).axis(domain=False, ticks=False, grid=True)
    tooltip = [
        alt.Tooltip("name:N", title="trial"),
        alt.Tooltip("axis:N", title="parameter"),
        alt.Tooltip("value:N"),
        alt.Tooltip("figure:N", title="figure"),
    ]
    lines = (
        parts.plot_rows("trials")
        .mark_line()
        .encode(
            x=x,
            y=y,
            order="order:Q",
            detail="name:N",
            color=scales.colour(),
            strokeDash=scales.dash(),
            opacity=alt.condition("datum.top", alt.value(0.95), alt.value(0.22)),
            strokeWidth=alt.condition("datum.top", alt.value(1.8), alt.value(1)),
        )
    )
    opacity = alt.condition("datum.top", alt.value(1), alt.value(0.35))
    encoded = {**scales.encode(x, y, tooltip), "opacity": opacity}
    complete = parts.plot_rows("trials", "datum.complete").mark_point(filled=True, size=30)
    short = parts.plot_rows("trials", "!datum.complete").mark_point(filled=False, size=30)
    marks = [own.encode(**encoded) for own in (short, complete)]
    texts = _plot_ticks().mark_text(baseline="top", dy=9).encode(x=x, y=y, text="text:N")
    return StudyChart(
        name="parallel_coordinates",
        title="Parallel coordinates",
        caption=f"Each trial is a line from its {axes[0].label} to its figure. The best {TOP_SHARE:.0%} of "
        "the trials are strong; hollow marks ended early. Trials whose model does not have "
        f'a parameter pass through "absent".{remark}',
        chart=alt.layer(lines, *marks, texts),
        tables={"trials": rows, "ticks": ticks},
        height=AXIS_PIXELS * len(axes),
        is_wide=True,
    )


def _list_valued(detail: StudyDetail) -> list[StudyTrial]:
    """The trials of the search with a value that an axis can show."""
    return [trial for trial in detail.trials if not trial.is_repeat and parts.is_drawable(trial.figure)]


def _choose_axes(detail: StudyDetail, trials: Sequence[StudyTrial]) -> list[ParameterAxis]:
    """The parameters in which trials differ, what the study compares first and then the most important."""
    importance = defaultdict[str, float](float)
    for parameter in detail.importance:
        importance[parameter.field] += parameter.importance
    # Alternatives may differ in what none of them searches.
    alternatives = {trial.alternative for trial in trials}
    names = {name for own in alternatives for name in _list_varying(trials, own)}
    # A field that is 0 or absent in every trial but one alternative's says less than one that many have.
    having = {name: sum(read_field(trial, name) is not None for trial in trials) for name in names}
    ordered = sorted(names, key=lambda name: (-importance[name], -having[name], name))
    # The values of a compared table, as of named mixers, are in no single field.
    is_field = detail.compare == FAMILY_FIELD or any(detail.compare in trial.fields for trial in trials)
    leading = detail.compare if is_field else ALTERNATIVE
    labels = {name: shorten_field(name) for name in [leading, *ordered]}
    # Two equal labels would be one axis, so both are the whole names.
    counts = Counter(labels.values())
    found = (
        make_axis(name, label if counts[label] == 1 else name, [read_field(trial, name) for trial in trials])
        for name, label in labels.items()
    )
    return [axis for axis in found if axis is not None]


def _list_varying(trials: Sequence[StudyTrial], alternative: str) -> list[str]:
    """The fields in which the trials of an alternative differ, the family among them, without lists."""
    own = [{FAMILY_FIELD: each.family, **each.fields} for each in trials if each.alternative == alternative]
    lists = {name for trial in trials for name, value in trial.fields.items() if isinstance(value, list)}
    names = dict.fromkeys(name for fields in own for name in fields if name not in lists)
    return [name for name in names if len({str(fields.get(name)) for fields in own}) > 1]
