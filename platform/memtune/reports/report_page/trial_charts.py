"""Charts of trials: the leaderboard with every seed as a dot, learning curves, and the best so far."""

from collections.abc import Iterator, Sequence

import altair as alt

from memtune.objective import Objective
from memtune.reports.figure_files import divide
from memtune.reports.report_page import chart_parts as parts
from memtune.reports.report_page.chart_parts import MarkScales, Row, StudyChart
from memtune.results.study.alternative_comparison import AlternativeEffort
from memtune.results.study.study_detail import StudyDetail
from memtune.results.study.study_leaderboard import LeaderboardEntry, StudyLeaderboard
from memtune.results.study.study_trials import StudyTrial
from memtune.trial_state import TrialState

MAX_ROWS = 20
MAX_IDEAL_FACTOR = 1.6
"""From this multiple of the ideal on, it is beyond the axis."""
ROW_PIXELS = 22
JITTERLESS_OPACITY = 0.75


def draw_seeds(
    leaderboard: StudyLeaderboard, objective: Objective, ideal: float | None, best: int, scales: MarkScales
) -> StudyChart | None:
    """A row for each configuration: its seeds as dots, their mean as the alternative's mark, its interval.

    `best` is the number of the study's best configuration. None without a configuration of full length.
    """
    entries = select_drawn(leaderboard.entries, objective)[:MAX_ROWS]
    if not entries:
        return None
    shown_ideal = choose_ideal(ideal, entries)
    seeds = [
        {
            "name": entry.name,
            "alternative": entry.alternative,
            "seed": seed,
            "figure": objective.compute_figure(cost),
        }
        for entry in entries
        for seed, cost in entry.cost_by_seed.items()
        if parts.is_drawable(objective.compute_figure(cost)) and not entry.is_counted
    ]
    means = [_describe_mean(entry, best, objective) for entry in entries]
    shown = _list_shown(seeds, means, shown_ideal)
    is_cut = any(row["low"] is not None and row["low"] < min(shown) for row in means)
    x = parts.place_figures(alt.X, shown, objective)
    y = alt.Y("name:N", sort=[row["name"] for row in means], title=None)
    y = y.axis(domain=False, ticks=False, grid=True)
    rows = _draw_rows(x, y, objective, scales)
    return StudyChart(
        name="leaderboard",
        title="Configurations of full length, every seed a dot",
        caption="The mark is the mean over seeds, the bar its 95 % interval, the ring the study's best. A "
        "row without a bar has one seed or two."
        f"{' A bar from edge to edge is wider than the axis.' if is_cut else ''}"
        f"{_describe_edges(leaderboard.entries, entries, ideal, objective)}",
        chart=alt.layer(*parts.draw_ideal(shown_ideal, x), *rows, parts.draw_ring("means", x, y)),
        tables={"seeds": seeds, "means": means, "ideal": [{"figure": ideal}]},
        height=ROW_PIXELS * len(entries),
        is_wide=True,
    )


def _list_shown(seeds: Sequence[Row], means: Sequence[Row], ideal: float | None) -> list[float]:
    """The figures, the ideal, and the intervals that are near the figures."""
    shown = [row["figure"] for row in [*seeds, *means]]
    intervals = [(row["low"], row["high"]) for row in means if row["low"] is not None]
    # An interval of three seeds can be far wider than all figures; both its ends are beyond the axis then.
    spread = max(shown) - min(shown) or max(shown)
    near = [ends for ends in intervals if min(shown) - spread <= ends[0] and ends[1] <= max(shown) + spread]
    inside = [bound for ends in near for bound in ends]
    return [*shown, *inside, *([ideal] if ideal else [])]


def _draw_rows(x: alt.X, y: alt.Y, objective: Objective, scales: MarkScales) -> list[alt.Chart]:
    """Intervals, dots of the seeds, and marks of the means, which are filled for models that are trained."""
    tooltip = [alt.Tooltip("name:N", title="configuration"), parts.tell_figure(objective)]
    interval = (
        parts.plot_rows("means")
        .mark_rule(strokeWidth=2, opacity=0.6, clip=True)
        .encode(x=alt.X("low:Q", scale=x["scale"]), x2="high:Q", y=y, color=scales.colour())
    )
    dots = (
        parts.plot_rows("seeds")
        .mark_circle(size=parts.SEED_SIZE, opacity=JITTERLESS_OPACITY)
        .encode(x=x, y=y, color=scales.colour(), tooltip=[*tooltip, alt.Tooltip("seed:Q", title="seed")])
    )
    interval_text = alt.Tooltip("interval:N", title="95 % interval")
    encoded = scales.encode(x, y, [*tooltip, alt.Tooltip("seeds:Q"), interval_text])
    trained = parts.plot_rows("means", "!datum.counted").mark_point(filled=True, size=parts.MARK_SIZE)
    counted = parts.plot_rows("means", "datum.counted").mark_point(filled=False, size=parts.MARK_SIZE)
    marks = [mark.encode(**encoded, opacity=alt.value(1)) for mark in (trained, counted)]
    return [interval, dots, *marks]


def _describe_mean(entry: LeaderboardEntry, best: int, objective: Objective) -> Row:
    low, high = entry.interval or (None, None)
    bounds = [parts.format_figure(bound, objective) for bound in entry.interval or ()]
    return {
        "name": entry.name,
        "alternative": entry.alternative,
        "figure": entry.figure,
        "low": low if parts.is_drawable(low) else None,
        "high": high if parts.is_drawable(high) else None,
        "interval": " to ".join(bounds) or "none: fewer than three seeds, or equal ones",
        "seeds": entry.estimate.seeds,
        "best": entry.number == best,
        "counted": entry.is_counted,
    }


def select_drawn(entries: Sequence[LeaderboardEntry], objective: Objective) -> list[LeaderboardEntry]:
    """The configurations that are near enough to the best one for an axis that shows differences."""
    drawable = [entry for entry in entries if parts.is_drawable(entry.figure)]
    limit = parts.find_drawn_limit([entry.figure for entry in drawable if not entry.is_counted], objective)
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
        read = f"they have read {counted.tokens:,} tokens once, under any seed"
        text += f" Hollow marks are models that count: {read}."
    if hidden := len(entries) - len(drawn):
        far = " or are worse than the best trained one by a factor of four" if objective.is_ratio else ""
        text += f" {hidden} more come after the first {MAX_ROWS}{far}: the table has them."
    return text


def draw_learning_curves(detail: StudyDetail, ideal: float | None, scales: MarkScales) -> StudyChart | None:
    """Validation against tokens: a line for each trial and each seed, hollow ends where a trial was stopped.

    A model that counts is a horizontal line: it reads the text once. None before the first validation.
    """
    objective = detail.summary.objective
    rows = [row for trial in detail.trials for row in _list_reports(trial, objective)]
    trained = [row for row in rows if not row["counted"]]
    if not trained:
        return None
    limit = parts.find_drawn_limit([row["figure"] for row in trained], objective)
    tokens = [row["tokens"] for row in trained]
    x = parts.place_amounts("tokens", tokens, f"{detail.summary.unit} of a trial", starts_at_zero=True)
    y = _place_rows(rows, limit, ideal, objective)
    counted = [row for row in rows if row["counted"]]
    return StudyChart(
        name="learning_curves",
        title="Learning curves of all trials and seeds",
        caption="Filled ends have trained to full length; hollow, pale ones were stopped, paused or failed."
        + (" The dashed line is the ideal." if ideal else "")
        + (" Horizontal lines are models that count: they read the text once." if counted else "")
        + parts.describe_drawn_limit([row["figure"] for row in trained], limit),
        chart=alt.layer(*parts.draw_ideal(ideal, y), *_draw_curves(x, y, objective, scales)),
        tables={"reports": trained, "counted": counted, "ideal": [{"figure": ideal}]},
        height=380,
        is_wide=True,
    )


def _draw_curves(x: alt.X, y: alt.Y, objective: Objective, scales: MarkScales) -> list[alt.Chart]:
    """The lines of the trials, their ends, and a horizontal line for each model that counts."""
    tooltip = [
        alt.Tooltip("name:N", title="trial"),
        alt.Tooltip("state:N"),
        alt.Tooltip("tokens:Q", format=","),
        parts.tell_figure(objective),
    ]
    lines = (
        parts.plot_rows("reports")
        .mark_line(clip=True)
        .encode(
            x=x,
            y=y,
            color=scales.colour(),
            strokeDash=scales.dash(),
            detail="name:N",
            opacity=alt.condition("datum.complete", alt.value(0.9), alt.value(0.4)),
            strokeWidth=alt.condition("datum.complete", alt.value(1.6), alt.value(1)),
        )
    )
    ends = scales.encode(x, y, tooltip)
    complete = parts.plot_rows("reports", "datum.last && datum.complete")
    short = parts.plot_rows("reports", "datum.last && !datum.complete")
    return [
        lines,
        short.mark_point(filled=False, size=parts.HOLLOW_SIZE, clip=True).encode(**ends),
        complete.mark_point(filled=True, size=parts.HOLLOW_SIZE, opacity=1, clip=True).encode(**ends),
        parts.plot_rows("counted")
        .mark_rule(strokeWidth=1.4, clip=True)
        .encode(y=y, color=scales.colour(), strokeDash=scales.dash(), tooltip=tooltip),
    ]


def _list_reports(trial: StudyTrial, objective: Objective) -> Iterator[Row]:
    points = [(tokens, objective.compute_figure(cost)) for tokens, cost in sorted(trial.curve.items())]
    drawn = [(tokens, figure) for tokens, figure in points if parts.is_drawable(figure)]
    for place, (tokens, figure) in enumerate(drawn, start=1):
        yield {
            "name": trial.name,
            "alternative": trial.alternative,
            "state": trial.state.label,
            "tokens": tokens,
            "figure": figure,
            "complete": trial.state is TrialState.COMPLETE,
            "last": place == len(drawn),
            "counted": trial.is_counted,
        }


def _place_rows(rows: list[Row], limit: float, ideal: float | None, objective: Objective) -> alt.Y:
    shown = [row["figure"] for row in rows if row["figure"] <= limit]
    if not objective.is_ratio:
        return parts.place_figures(alt.Y, shown, objective, is_logarithmic=False)
    return parts.place_figures(alt.Y, [*shown, *([ideal] if ideal else [])], objective)


def draw_progress(detail: StudyDetail, ideal: float | None, scales: MarkScales) -> Iterator[StudyChart]:
    """The best validation so far against the tokens and the core hours of all trials."""
    objective = detail.summary.objective
    searched = [trial for trial in detail.trials if not trial.is_repeat]
    trial_by_number = {trial.number: trial for trial in searched}
    rows: list[Row] = [
        {
            "name": trial_by_number[point.number].name,
            "alternative": trial_by_number[point.number].alternative,
            "tokens": point.tokens,
            "core_hours": point.core_hours,
            "figure": objective.compute_figure(point.cost),
            "counted": trial_by_number[point.number].is_counted,
        }
        for point in detail.progress
        if parts.is_drawable(objective.compute_figure(point.cost))
    ]
    if not rows:
        return
    ends = {
        "tokens": sum(trial.usage.tokens for trial in searched),
        "core_hours": sum(trial.cpu_hours for trial in searched),
    }
    # Without their alternatives: the line joins all of them, whatever the reader has switched off.
    steps = [
        {name: row[name] for name in ("tokens", "core_hours", "figure")}
        for row in [*rows, {**rows[-1], **ends}]
    ]
    trained = [row["figure"] for row in rows if not row["counted"]]
    y = _place_rows(rows, parts.find_drawn_limit(trained, objective), ideal, objective)
    for quantity, name in (("tokens", detail.summary.unit), ("core_hours", "core hours")):
        if not ends[quantity]:
            continue
        unit = f"{name} of all trials"
        x = parts.place_amounts(quantity, [ends[quantity]], unit, starts_at_zero=True)
        line = parts.plot_rows("steps").mark_line(interpolate="step-after", color=parts.MUTED, clip=True)
        marks = parts.plot_rows("improvements")
        marks = marks.mark_point(filled=True, size=parts.HOLLOW_SIZE, opacity=1, clip=True)
        tooltip = [
            alt.Tooltip("name:N", title="trial"),
            parts.tell_figure(objective),
            alt.Tooltip(f"{quantity}:Q", title=unit, format=",.4~g"),
        ]
        layers = [*parts.draw_ideal(ideal, y), line.encode(x=x, y=y)]
        layers.append(marks.encode(**scales.encode(x, y, tooltip)))
        yield StudyChart(
            name=f"best_so_far_by_{quantity}",
            title=f"Best so far against {x['title']}",
            caption="The best validation of the search after each improvement, of single seeds of any "
            "length, as if one trial ran after the other, in the order of their numbers.",
            chart=alt.layer(*layers),
            tables={"steps": steps, "improvements": rows, "ideal": [{"figure": ideal}]},
        )


def draw_best_of(
    efforts: Sequence[AlternativeEffort], objective: Objective, scales: MarkScales
) -> StudyChart | None:
    """The expected best figure against the number of configurations; None below two of an alternative."""
    rows: list[Row] = [
        {"alternative": effort.name, "configurations": count, "figure": figure}
        for effort in efforts
        for count, figure in enumerate(effort.best_of, start=1)
        if parts.is_drawable(figure)
    ]
    most = max((row["configurations"] for row in rows), default=0)
    if most < 2:
        return None
    limit = parts.find_drawn_limit([row["figure"] for row in rows], objective)
    whole = [tick for tick in divide(0, most) if tick >= 1 and tick.is_integer()]
    scale = alt.Scale(domain=[0.9, most + 0.1], nice=False)
    x = alt.X("configurations:Q", scale=scale, title="configurations tried")
    x = x.axis(values=whole, format="d", grid=False)
    marks = {"x": x, "y": _place_rows(rows, limit, None, objective), "color": scales.colour()}
    tooltip = [alt.Tooltip("alternative:N"), alt.Tooltip("configurations:Q"), parts.tell_figure(objective)]
    expected = parts.plot_rows("expected")
    lines = expected.mark_line(clip=True).encode(**marks, strokeDash=scales.dash(), detail="alternative:N")
    points = expected.mark_point(filled=True, size=parts.HOLLOW_SIZE / 2, opacity=1, clip=True)
    return StudyChart(
        name="best_of",
        title="The best of fewer configurations",
        caption="The expected best of so many configurations of each alternative, drawn from those that have "
        "a validation: at equal numbers the effort is equal. Each counts with its best validation, one that "
        "was stopped early with that from before.",
        chart=alt.layer(lines, points.encode(**marks, shape=scales.shape(), tooltip=tooltip)),
        tables={"expected": rows},
    )
