"""What the charts of a report share: marks, scales, axes, and the data that they draw."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import altair as alt

from memtune.number_format import choose_time_unit
from memtune.objective import Objective
from memtune.reports.figure_files import LOG_SCALE, choose_ticks, divide
from memtune.reports.marks import assign_marks
from memtune.tracking.runs.run_tags import COLOURS

INK, MUTED, RULE, PAPER = "var(--ink)", "var(--muted)", "var(--rule)", "var(--paper)"
"""Colours of the page as CSS variables, so that charts follow its theme without being drawn again."""
LIGHT_COLOURS = {
    INK: "#1a1d21",
    MUTED: "#59616b",
    RULE: "#dfe3e8",
    PAPER: "#ffffff",
    **{f"var(--mark-{place})": colour for place, colour in enumerate(COLOURS)},
}

Row = dict[str, Any]
Axis = TypeVar("Axis", alt.X, alt.Y)

MARK_SIZE, SEED_SIZE, HOLLOW_SIZE, RING_SIZE = 90, 26, 60, 260
"""Areas of marks in square pixels."""
LOGARITHMIC_RATIO = 3.0
"""From this ratio of the largest to the smallest value on, an axis is logarithmic."""
HOURS = "hours"
"""In the title of an axis: the unit of its amounts."""
MARGIN = 0.04
"""Room at both ends of an axis, as a share of it."""
MAX_DRAWABLE = 1e12
MAX_DRAWN_FACTOR = 4.0
"""An axis shows perplexities up to this multiple of the best: bad trials and first reports are beyond it."""
IDEAL_DASH = [4, 3]
SOLID = [1, 0]
HIDDEN = "hidden"
"""The parameter of a chart that lists the alternatives that the reader has switched off."""


@dataclass(frozen=True)
class StudyChart:
    """A chart with its place in the report."""

    name: str
    """Of its file and of its element."""
    title: str
    caption: str
    """How to read it."""
    chart: Any
    """An Altair chart whose data are named."""
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """The data by name."""
    height: int = 300
    is_wide: bool = False
    """Whether it takes the whole width of a page."""

    def to_spec(self, width: int | str) -> dict[str, Any]:
        """The Vega-Lite specification; a width in pixels, or "container"."""
        sized = self.chart.properties(width=width, height=self.height)
        if width == "container":
            sized = sized.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        # Checking the schema takes most of the time of a report; the tests check it.
        spec: dict[str, Any] = sized.to_dict(validate=False)
        tables = {name: list(rows) for name, rows in self.tables.items()}
        # Altair would copy every layer to add the parameter.
        params = [*spec.get("params", ()), {"name": HIDDEN, "value": []}]
        description = f"{self.title}. {self.caption}"
        return {**spec, "description": description, "params": params, "datasets": tables}


class MarkScales:
    """The shapes, colours and dashes of alternatives, the same in every chart of a report.

    Every row of a chart names its `alternative`, which is the family where no field is compared.
    """

    def __init__(self, alternatives: Iterable[str]) -> None:
        self._marks = assign_marks(alternatives)

    def colour(self) -> alt.Color:
        """The colour of `alternative`; its range is in the configuration, so that it follows the theme."""
        return alt.Color("alternative:N", scale=alt.Scale(domain=list(self._marks)))

    def shape(self) -> alt.Shape:
        """The shape of `alternative`."""
        paths = [mark.path for mark in self._marks.values()]
        scale = alt.Scale(domain=list(self._marks), range=paths)
        return alt.Shape("alternative:N", scale=scale)

    def dash(self) -> alt.StrokeDashValue:
        """The dash of `alternative`, as conditions: a scale would dash the outlines of marks in a legend."""
        conditions = [
            {"test": f"datum.alternative === {json.dumps(name)}", "value": list(mark.dash) or SOLID}
            for name, mark in self._marks.items()
        ]
        return alt.StrokeDashValue(SOLID, condition=conditions)

    def encode(self, x: alt.X, y: alt.Y, tooltip: Sequence[alt.Tooltip]) -> dict[str, Any]:
        """What marks at two axes have in common."""
        return {"x": x, "y": y, "color": self.colour(), "shape": self.shape(), "tooltip": tooltip}


def plot_rows(name: str, condition: str = "") -> alt.Chart:
    """A chart of the rows of a table for which `condition`, an expression of Vega, holds; of all without one.

    Those of alternatives that the reader has switched off are left out; rows without `alternative` never are.
    """
    chart = alt.Chart(alt.NamedData(name=name))
    shown = chart.transform_filter(f"indexof({HIDDEN}, datum.alternative) < 0")
    return shown.transform_filter(condition) if condition else shown


def choose_scale(
    values: Iterable[float], *, is_logarithmic: bool | None = None, factor: float = 1
) -> tuple[alt.Scale, list[float]]:
    """A scale over the values, and its ticks: logarithmic where they span a factor of three.

    Ticks are round numbers divided by `factor`. Values must be finite; those at or below 0 make the scale
    linear.
    """
    found = list(values)
    low, high = min(found), max(found)
    if is_logarithmic is None:
        is_logarithmic = low > 0 and high >= LOGARITHMIC_RATIO * low
    if is_logarithmic:
        room = (high / low) ** MARGIN
        domain, choose = [low / room, high * room], choose_ticks
        scale = alt.Scale(type="log", domain=domain, nice=False)
    else:
        room = (high - low) * MARGIN or abs(high) * MARGIN or 1.0
        domain, choose = [low - room, high + room], divide
        scale = alt.Scale(domain=domain, zero=False, nice=False)
    return scale, [tick / factor for tick in choose(domain[0] * factor, domain[1] * factor)]


def name_scale(scale: alt.Scale) -> str:
    """What the title of a logarithmic axis ends with; "" for a linear one."""
    return LOG_SCALE if scale["type"] == "log" else ""


def is_drawable(value: float | None) -> bool:
    """Whether an axis can show a value: a diverged trial has an infinite perplexity."""
    return value is not None and math.isfinite(value) and abs(value) < MAX_DRAWABLE


def find_drawn_limit(trained: Iterable[float], objective: Objective) -> float:
    """The highest figure that an axis shows: four times the best perplexity of a trained model.

    Models that count do not decide it, because next to networks that have hardly been trained an n-gram model
    is far ahead of all of them. Infinity for an accuracy, and without figures.
    """
    best = min(trained, default=math.inf)
    return MAX_DRAWN_FACTOR * best if objective.is_ratio else math.inf


def describe_drawn_limit(figures: Iterable[float], limit: float) -> str:
    """A sentence, after a space, that says which figures an axis does not show; "" where it shows all."""
    return f" Values above {limit:,.4g} are beyond the axis." if any(f > limit for f in figures) else ""


def draw_ideal(ideal: float | None, along: alt.X | alt.Y) -> list[alt.Chart]:
    """A dashed line at the ideal figure, where it is known, of the table "ideal"; `along` is its axis."""
    if not ideal:
        return []
    rule = plot_rows("ideal").mark_rule(strokeDash=IDEAL_DASH, color=MUTED, clip=True)
    return [rule.encode(along, tooltip=[alt.Tooltip("figure:Q", title="ideal", format=".4~g")])]


def draw_ring(table: str, x: alt.X, y: alt.Y) -> Any:
    """A ring around the study's best configuration."""
    best = plot_rows(table, "datum.best")
    ring = best.mark_point(shape="circle", size=RING_SIZE, filled=False, color=INK, strokeWidth=1.4)
    return ring.encode(x=x, y=y)


def figure_format(objective: Objective) -> str:
    """The format of D3 of a perplexity or an accuracy on an axis."""
    return ",.4~g" if objective.scale == 1 else ".3~%"


def format_figure(figure: float, objective: Objective) -> str:
    """A perplexity or an accuracy in a text of a chart, with four digits.

    >>> format_figure(0.74126, Objective.ACCURACY)
    '74.13 %'
    """
    return f"{objective.scale * figure:,.4g}{objective.unit}"


def place_figures(
    channel: type[Axis],
    figures: Iterable[float],
    objective: Objective,
    *,
    is_logarithmic: bool | None = None,
) -> Axis:
    """The axis of validation figures, as x or y, over these figures."""
    scale, ticks = choose_scale(figures, is_logarithmic=is_logarithmic)
    axis = channel("figure:Q", scale=scale, title=f"validation {objective.axis_title}{name_scale(scale)}")
    return axis.axis(format=figure_format(objective), values=ticks)


def place_amounts(field: str, amounts: Sequence[float], title: str, *, starts_at_zero: bool = False) -> alt.X:
    """The axis of what models take, in the unit of its title, from 0 or over the amounts only.

    Hours are labelled as minutes or seconds where the largest amount is below one.
    """
    factor, labels = 1, ".3~s"
    if HOURS in title:
        (_, factor), labels = choose_time_unit(max(amounts)), ".3~g"
    if starts_at_zero:
        scale = alt.Scale(domain=[0, max(amounts) * 1.03], nice=False)
        ticks = [tick / factor for tick in divide(0, max(amounts) * factor)]
    else:
        scale, ticks = choose_scale(amounts, factor=factor)
    axis = alt.X(f"{field}:Q", scale=scale, title=name_amounts(amounts, title) + name_scale(scale))
    return axis.axis(labelExpr=f"format(datum.value * {factor}, '{labels}')", values=ticks, grid=False)


def name_amounts(amounts: Sequence[float], title: str) -> str:
    """The title of an axis of amounts in its unit, without its scale."""
    return title.replace(HOURS, choose_time_unit(max(amounts))[0])


def tell_figure(objective: Objective) -> alt.Tooltip:
    """The validation figure in a tooltip."""
    return alt.Tooltip("figure:Q", title=objective, format=figure_format(objective))


def make_config(*, has_legend: bool) -> dict[str, Any]:
    """The configuration of every chart: fonts, axes without frames, and colours as CSS variables."""
    text = {"labelColor": MUTED, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 11}
    axis = {
        **text,
        "domainColor": RULE,
        "tickColor": RULE,
        "gridColor": RULE,
        "titleFontWeight": "normal",
        "labelLimit": 190,
        "labelOverlap": True,
    }
    legend = {
        **text,
        "title": None,
        "orient": "right",
        "labelLimit": 180,
        "symbolSize": MARK_SIZE,
        "symbolOpacity": 1,
    }
    return {
        "background": PAPER,
        "font": "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
        "range": {"category": [f"var(--mark-{place})" for place in range(len(COLOURS))]},
        "view": {"stroke": None},
        "axis": axis,
        "legend": legend if has_legend else {"disable": True},
        "text": {"color": INK, "fontSize": 11},
    }


def resolve_colours(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The specification with the colours of a light page in place of CSS variables, for files."""
    text = json.dumps(spec)
    for name, colour in LIGHT_COLOURS.items():
        text = text.replace(f'"{name}"', f'"{colour}"')
    resolved: dict[str, Any] = json.loads(text)
    return resolved
