"""The chart of the leaderboard: the configurations of full length, every seed as a dot."""

from collections.abc import Sequence

import altair as alt

from memtune.objective import Objective
from memtune.reports.report_page.chart_parts import (
    MARK_SIZE,
    SEED_SIZE,
    FamilyScales,
    Row,
    StudyChart,
    choose_scale,
    draw_ideal,
    draw_ring,
    find_drawn_limit,
    is_drawable,
    place_figure,
    plot_rows,
    tell_figure,
)
from memtune.results.study.study_leaderboard import LeaderboardEntry, StudyLeaderboard

MAX_ROWS = 20
MAX_IDEAL_FACTOR = 1.6
"""From this multiple of the ideal on, it is beyond the axis."""
ROW_PIXELS = 22
JITTERLESS_OPACITY = 0.75


def draw_seeds(
    leaderboard: StudyLeaderboard, objective: Objective, ideal: float | None, best: int, scales: FamilyScales
) -> StudyChart | None:
    """A row for each configuration: its seeds as dots, their mean as the family's mark, its interval.

    `best` is the number of the study's best configuration. None without a configuration of full length.
    """
    entries = select_drawn(leaderboard.entries, objective)[:MAX_ROWS]
    if not entries:
        return None
    shown_ideal = choose_ideal(ideal, entries)
    seeds = [
        {"name": entry.name, "family": entry.family, "seed": seed, "figure": objective.compute_figure(cost)}
        for entry in entries
        for seed, cost in entry.cost_by_seed.items()
        if is_drawable(objective.compute_figure(cost)) and not entry.is_counted
    ]
    means = [_describe_mean(entry, best) for entry in entries]
    scale, ticks = _scale_rows(seeds, means, shown_ideal)
    x = place_figure(alt.X, scale, ticks, objective)
    y = alt.Y("name:N", sort=[entry.name for entry in entries], title=None)
    y = y.axis(domain=False, ticks=False, grid=True)
    layers = [*draw_ideal(shown_ideal, x), *map(scales.filter, _draw_rows(x, y, scale, objective, scales))]
    layers.append(scales.filter(draw_ring("means", x, y)))
    return StudyChart(
        name="leaderboard",
        title="Configurations of full length, every seed a dot",
        caption="The mark is the mean over seeds, the bar its 95 % interval, the ring the study's best. A "
        f"row without a bar has one seed.{_describe_edges(leaderboard.entries, entries, ideal, objective)}",
        chart=alt.layer(*layers),
        tables={"seeds": seeds, "means": means, "ideal": [{"figure": ideal}]},
        height=ROW_PIXELS * len(entries),
        is_wide=True,
    )


def _scale_rows(
    seeds: Sequence[Row], means: Sequence[Row], ideal: float | None
) -> tuple[alt.Scale, list[float]]:
    """Scale and ticks of the figures, the ideal, and the bounds of intervals that are near the figures."""
    shown = [row["figure"] for row in [*seeds, *means]]
    bounds = [bound for row in means for bound in (row["low"], row["high"]) if bound is not None]
    # An interval of two seeds can be far wider than all figures; it is cut at the edge then.
    spread = max(shown) - min(shown) or max(shown)
    inside = [bound for bound in bounds if min(shown) - spread <= bound <= max(shown) + spread]
    return choose_scale([*shown, *inside, *([ideal] if ideal else [])])


def _draw_rows(
    x: alt.X, y: alt.Y, scale: alt.Scale, objective: Objective, scales: FamilyScales
) -> list[alt.Chart]:
    """Intervals, dots of the seeds, and marks of the means, which are filled for models that are trained."""
    tooltip = [alt.Tooltip("name:N", title="configuration"), tell_figure(objective)]
    interval = (
        plot_rows("means")
        .mark_rule(strokeWidth=2, opacity=0.6, clip=True)
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, color=scales.colour())
    )
    dots = (
        plot_rows("seeds")
        .mark_circle(size=SEED_SIZE, opacity=JITTERLESS_OPACITY)
        .encode(x=x, y=y, color=scales.colour(), tooltip=[*tooltip, alt.Tooltip("seed:Q", title="seed")])
    )
    interval_text = alt.Tooltip("interval:N", title="95 % interval")
    encoded = scales.encode(x, y, [*tooltip, alt.Tooltip("seeds:Q"), interval_text])
    trained = plot_rows("means").transform_filter("!datum.counted").mark_point(filled=True, size=MARK_SIZE)
    counted = plot_rows("means").transform_filter("datum.counted").mark_point(filled=False, size=MARK_SIZE)
    marks = [mark.encode(**encoded, opacity=alt.value(1)) for mark in (trained, counted)]
    return [interval, dots, *marks]


def _describe_mean(entry: LeaderboardEntry, best: int) -> Row:
    low, high = entry.interval or (None, None)
    return {
        "name": entry.name,
        "family": entry.family,
        "figure": entry.figure,
        "low": low if is_drawable(low) else None,
        "high": high if is_drawable(high) else None,
        "interval": "none, a single seed" if low is None else f"{low:.4g} to {high:.4g}",
        "seeds": entry.estimate.seeds,
        "best": entry.number == best,
        "counted": entry.is_counted,
    }


def select_drawn(entries: Sequence[LeaderboardEntry], objective: Objective) -> list[LeaderboardEntry]:
    """The configurations that are near enough to the best one for an axis that shows differences."""
    drawable = [entry for entry in entries if is_drawable(entry.figure)]
    limit = find_drawn_limit([entry.figure for entry in drawable if not entry.is_counted], objective)
    return [entry for entry in drawable if entry.figure <= limit]


def choose_ideal(ideal: float | None, entries: Sequence[LeaderboardEntry]) -> float | None:
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
        is_near = choose_ideal(ideal, drawn) is not None
        text = " The dashed line is the ideal" if is_near else f" The ideal, {ideal:.4g}, is beyond the axis"
        text += ": no model can be better on this text."
    if counted := next((entry for entry in drawn if entry.is_counted), None):
        text += f" Hollow marks count: they have read {counted.tokens:,} tokens once, under any seed."
    if hidden := len(entries) - len(drawn):
        far = " or are worse than the best trained one by a factor of four" if objective.is_ratio else ""
        text += f" {hidden} more come after the first {MAX_ROWS}{far}: the table has them."
    return text
