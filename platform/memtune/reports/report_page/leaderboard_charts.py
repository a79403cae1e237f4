"""Charts of configurations of full length: every seed as a dot, and the figure against what a model takes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import altair as alt

from memtune.objective import Objective
from memtune.reports.report_page.chart_parts import (
    INK,
    MARK_SIZE,
    MAX_DRAWN_FACTOR,
    MUTED,
    SEED_SIZE,
    FamilyScales,
    Row,
    StudyChart,
    choose_labels,
    choose_scale,
    draw_ideal,
    figure_format,
    is_drawable,
    name_value,
    rows_of,
)
from memtune.results.reporting.study_leaderboard import LeaderboardEntry, StudyLeaderboard, TradeOff

__all__ = ["draw_seeds", "draw_trade_offs"]

MAX_ROWS = 20
MAX_IDEAL_FACTOR = 1.6
"""From this multiple of the ideal on, it is beyond the axis."""
ROW_PIXELS, STRIP_PIXELS = 22, 24
RING_SIZE = 260
JITTERLESS_OPACITY = 0.75


def draw_seeds(
    leaderboard: StudyLeaderboard, objective: Objective, ideal: float | None, best: int, scales: FamilyScales
) -> StudyChart | None:
    """A row for each configuration: its seeds as dots, their mean as the family's mark, its interval.

    `best` is the number of the study's best configuration. None without a configuration of full length.
    """
    entries = _select_drawn(leaderboard.entries, objective)[:MAX_ROWS]
    if not entries:
        return None
    shown_ideal = _choose_ideal(ideal, entries)
    names = [entry.name for entry in entries]
    seeds = [
        {"name": entry.name, "family": entry.family, "seed": seed.seed, "figure": seed.figure}
        for entry in entries
        for seed in entry.seeds
        if is_drawable(seed.figure) and not entry.is_counted
    ]
    means = [_describe_mean(entry, best) for entry in entries]
    shown = [row["figure"] for row in [*seeds, *means]]
    bounds = [bound for row in means for bound in (row["low"], row["high"]) if bound is not None]
    # An interval of two seeds can be far wider than all figures; it is cut at the edge then.
    spread = max(shown) - min(shown) or max(shown)
    inside = [bound for bound in bounds if min(shown) - spread <= bound <= max(shown) + spread]
    scale, ticks = choose_scale([*shown, *inside, *([shown_ideal] if shown_ideal else [])])
    x = alt.X("figure:Q", scale=scale, title=name_value(objective)).axis(
        format=figure_format(objective), values=ticks
    )
    y = alt.Y("name:N", sort=names, title=None).axis(domain=False, ticks=False, grid=True)
    tooltip = [
        alt.Tooltip("name:N", title="configuration"),
        alt.Tooltip("figure:Q", title=objective, format=figure_format(objective)),
    ]
    interval = (
        rows_of("means")
        .mark_rule(strokeWidth=2, opacity=0.6, clip=True)
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, color=scales.colour())
    )
    dots = (
        rows_of("seeds")
        .mark_circle(size=SEED_SIZE, opacity=JITTERLESS_OPACITY)
        .encode(x=x, y=y, color=scales.colour(), tooltip=[*tooltip, alt.Tooltip("seed:Q", title="seed")])
    )
    encoded = {
        "x": x,
        "y": y,
        "color": scales.colour(),
        "shape": scales.shape(),
        "tooltip": [*tooltip, alt.Tooltip("seeds:Q"), alt.Tooltip("interval:N", title="95 % interval")],
    }
    trained = rows_of("means").transform_filter("!datum.counted").mark_point(filled=True, size=MARK_SIZE)
    counted = rows_of("means").transform_filter("datum.counted").mark_point(filled=False, size=MARK_SIZE)
    marks = [trained.encode(**encoded, opacity=alt.value(1)), counted.encode(**encoded, opacity=alt.value(1))]
    layers = [*draw_ideal(shown_ideal, x), *(scales.filter(own) for own in (interval, dots, *marks))]
    layers.append(scales.filter(_draw_ring("means", x, y)))
    return StudyChart(
        name="leaderboard",
        title="Configurations of full length, every seed a dot",
        caption="The mark is the mean over seeds, the bar its 95 % interval, the ring the study's best. A "
        f"row without a bar has one seed.{_describe_edges(leaderboard.entries, entries, ideal, objective)}",
        chart=scales.layer(*layers),
        tables={"seeds": seeds, "means": means, "ideal": [{"figure": ideal}]},
        height=ROW_PIXELS * len(entries),
        is_wide=True,
    )


def _describe_mean(entry: LeaderboardEntry, best: int) -> Row:
    low, high = entry.interval or (None, None)
    return {
        "name": entry.name,
        "family": entry.family,
        "figure": entry.figure,
        "low": low if is_drawable(low) else None,
        "high": high if is_drawable(high) else None,
        "interval": "none, a single seed" if low is None else f"{low:.4g} to {high:.4g}",
        "seeds": len(entry.seeds),
        "best": entry.number == best,
        "counted": entry.is_counted,
    }


def _select_drawn(entries: Sequence[LeaderboardEntry], objective: Objective) -> list[LeaderboardEntry]:
    """The configurations that are near enough to the best one for an axis that shows differences."""
    drawable = [entry for entry in entries if is_drawable(entry.figure)]
    if not drawable or objective == "accuracy":
        return drawable
    limit = MAX_DRAWN_FACTOR * min(entry.figure for entry in drawable)
    return [entry for entry in drawable if entry.figure <= limit]


def _choose_ideal(ideal: float | None, entries: Sequence[LeaderboardEntry]) -> float | None:
    """The ideal where it is so near that an axis with it still shows differences."""
    best = min(entry.figure for entry in entries)
    return ideal if ideal is not None and best <= MAX_IDEAL_FACTOR * ideal else None


def _describe_edges(
    entries: Sequence[LeaderboardEntry],
    drawn: Sequence[LeaderboardEntry],
    ideal: float | None,
    objective: Objective,
) -> str:
    """What a chart leaves out."""
    text = ""
    if ideal is not None:
        is_near = _choose_ideal(ideal, drawn) is not None
        text = " The dashed line is the ideal" if is_near else f" The ideal, {ideal:.4g}, is beyond the axis"
        text += ": no model can be better on this text."
    if counted := next((entry for entry in drawn if entry.is_counted), None):
        text += f" Hollow marks count: they have read {counted.tokens:,} tokens once, under any seed."
    if hidden := len(entries) - len(drawn):
        far = " or are worse than the best by a factor of four" if objective == "perplexity" else ""
        text += f" {hidden} more come after the first {MAX_ROWS}{far}: the table has them."
    return text


def draw_trade_offs(
    leaderboard: StudyLeaderboard, objective: Objective, ideal: float | None, best: int, scales: FamilyScales
) -> Iterator[StudyChart]:
    """The figure against each quantity; strips by family where all configurations have the same amount."""
    for trade_off in leaderboard.trade_offs:
        trained = [entry for entry in leaderboard.entries if not entry.is_counted]
        near = _select_drawn(trained, objective)
        measured = [(entry, amount) for entry in near if (amount := entry.measure(trade_off.quantity))]
        if len(measured) < 2:
            continue
        rows = [_describe_point(entry, amount, trade_off, best) for entry, amount in measured]
        seeds = [
            {"name": entry.name, "family": entry.family, "amount": amount, "figure": seed.figure}
            for entry, amount in measured
            for seed in entry.seeds
            # The mark of a configuration with one seed is that seed.
            if is_drawable(seed.figure) and len(entry.seeds) > 1
        ]
        draw = _draw_strips if trade_off.is_equal else _draw_points
        missing = len(near) - len(measured)
        shown_ideal = _choose_ideal(ideal, near)
        chart = draw(trade_off, rows, seeds, objective, shown_ideal, scales)
        none = f" {missing} configurations without {trade_off.unit} are left out." if missing else ""
        yield replace(chart, caption=f"{chart.caption}{none}")


def _describe_point(entry: LeaderboardEntry, amount: float, trade_off: TradeOff, best: int) -> Row:
    return {
        "name": entry.name,
        "family": entry.family,
        "amount": amount,
        "figure": entry.figure,
        "seeds": len(entry.seeds),
        "best": entry.number == best,
        "front": entry.number in trade_off.front,
    }


def _draw_points(
    trade_off: TradeOff,
    rows: list[Row],
    seeds: list[Row],
    objective: Objective,
    ideal: float | None,
    scales: FamilyScales,
) -> StudyChart:
    horizontal, ticks = choose_scale(row["amount"] for row in rows)
    figures = [row["figure"] for row in [*rows, *seeds]]
    vertical, figure_ticks = choose_scale([*figures, *([ideal] if ideal else [])])
    x = alt.X("amount:Q", scale=horizontal, title=trade_off.unit)
    x = x.axis(labelExpr=choose_labels(trade_off.quantity), values=ticks, grid=False)
    y = alt.Y("figure:Q", scale=vertical, title=name_value(objective)).axis(
        format=figure_format(objective), values=figure_ticks
    )
    front = (
        rows_of("front")
        .mark_line(interpolate=_choose_steps(trade_off), color=MUTED, strokeWidth=1.2)
        .encode(x=x, y=y)
    )
    dots = rows_of("seeds").mark_circle(size=SEED_SIZE, opacity=0.5).encode(x=x, y=y, color=scales.colour())
    encoded = {
        "x": x,
        "y": y,
        "color": scales.colour(),
        "shape": scales.shape(),
        "tooltip": _list_tooltips(trade_off, objective),
    }
    hollow = rows_of("points").transform_filter("!datum.front").mark_point(size=MARK_SIZE, filled=False)
    marked = rows_of("points").transform_filter("datum.front")
    marked = marked.mark_point(size=MARK_SIZE, filled=True, opacity=1)
    layers = [
        *draw_ideal(ideal, y),
        front,
        *(scales.filter(own) for own in (dots, hollow.encode(**encoded), marked.encode(**encoded))),
        scales.filter(_draw_ring("points", x, y)),
    ]
    joined = sorted((row for row in rows if row["front"]), key=lambda row: row["amount"])
    return StudyChart(
        name=f"validation_by_{trade_off.quantity}",
        title=f"Against {trade_off.unit}",
        caption=f"Over {trade_off.describe()}. Filled marks are on the Pareto front, which the line joins: "
        "no other configuration is better in both. The ring is the study's best.",
        chart=scales.layer(*layers),
        tables={"points": rows, "seeds": seeds, "front": joined, "ideal": [{"figure": ideal}]},
    )


def _choose_steps(trade_off: TradeOff) -> Literal["step-before", "step-after"]:
    """How a front continues from a point: up to the next worse amount its figure stays attainable."""
    return "step-before" if trade_off.quantity == "tokens_per_second" else "step-after"


def _draw_strips(
    trade_off: TradeOff,
    rows: list[Row],
    seeds: list[Row],
    objective: Objective,
    ideal: float | None,
    scales: FamilyScales,
) -> StudyChart:
    bests: dict[str, float] = {}
    for row in rows:  # the leaderboard's order, so the first of a family is its best
        bests.setdefault(row["family"], row["figure"])
    figures = [row["figure"] for row in [*rows, *seeds]]
    scale, ticks = choose_scale([*figures, *([ideal] if ideal else [])])
    x = alt.X("figure:Q", scale=scale, title=name_value(objective)).axis(
        format=figure_format(objective), values=ticks
    )
    y = alt.Y("family:N", sort=list(bests), title=None).axis(domain=False, ticks=False, grid=True)
    dots = rows_of("seeds").mark_circle(size=SEED_SIZE, opacity=0.5).encode(x=x, y=y, color=scales.colour())
    marks = (
        rows_of("points")
        .mark_point(filled=True, size=MARK_SIZE, opacity=0.85)
        .encode(
            x=x,
            y=y,
            color=scales.colour(),
            shape=scales.shape(),
            tooltip=_list_tooltips(trade_off, objective),
        )
    )
    layers = [
        *draw_ideal(ideal, x),
        *(scales.filter(own) for own in (dots, marks, _draw_ring("points", x, y))),
    ]
    return StudyChart(
        name=f"validation_by_{trade_off.quantity}",
        title=f"At equal {trade_off.unit}",
        caption=f"All have {trade_off.describe()}: a strip for each family, the best family first. Marks are "
        "means over seeds, dots single seeds, the ring the study's best.",
        chart=scales.layer(*layers),
        tables={"points": rows, "seeds": seeds, "ideal": [{"figure": ideal}]},
        height=STRIP_PIXELS * max(3, len(bests)),
    )


def _list_tooltips(trade_off: TradeOff, objective: Objective) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("name:N", title="configuration"),
        alt.Tooltip("figure:Q", title=objective, format=figure_format(objective)),
        alt.Tooltip("amount:Q", title=trade_off.unit, format=",.4~g"),
        alt.Tooltip("seeds:Q"),
    ]


def _draw_ring(table: str, x: alt.X, y: alt.Y) -> Any:
    """A ring around the study's best configuration."""
    best = rows_of(table).transform_filter("datum.best")
    ring = best.mark_point(shape="circle", size=RING_SIZE, filled=False, color=INK, strokeWidth=1.4)
    return ring.encode(x=x, y=y)
