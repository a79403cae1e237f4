"""Charts of a figure against what a model takes: size, state, computation, memory and time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import altair as alt

from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.reports.report_page import chart_parts as parts
from memtune.reports.report_page.chart_parts import Axis, MarkScales, Row, StudyChart
from memtune.reports.report_page.trial_charts import choose_ideal, select_drawn
from memtune.reports.study_tables import describe_reference
from memtune.results.study.study_detail import StudyDetail
from memtune.results.study.study_front import describe_seeds
from memtune.results.study.study_leaderboard import (
    LeaderboardEntry,
    StudyLeaderboard,
    TradeOff,
    make_trade_off,
)
from memtune.search import QUANTITIES
from memtune.tracking import LeaderboardRow
from memtune.trial_state import TrialState

STRIP_PIXELS = 24
COUNTED_REMARK = " Lines with names are models that count: they have no parameters and read the text once."
OTHER_SIZE, OTHER_OPACITY = 30, 0.55
"""Marks of trials that do not compare: smaller and paler than those of configurations."""


@dataclass(frozen=True)
class _TradeOffChart:
    """A chart of a figure against an amount; every row has `name`, `alternative`, `amount` and `figure`."""

    trade_off: TradeOff
    objective: Objective
    scales: MarkScales
    rows: list[Row]
    """Configurations of full length, the best first, with `seeds`, `best` and `front`."""
    seeds: list[Row]
    ideal: float | None
    others: list[Row] = field(default_factory=list)
    """Trials of another number of tokens."""
    counted: list[Row] = field(default_factory=list)
    """The best model of each alternative that learns by counting, which has no amount."""

    def draw(self) -> StudyChart:
        """The chart; strips by alternative where all amounts are the same."""
        return self._draw_strips() if self.trade_off.is_equal else self._draw_points()

    def describe_rest(self) -> str:
        """What a caption says of models that count and of figures beyond the axis, after a space."""
        far = parts.describe_drawn_limit(self._trained, self._limit)
        return f"{COUNTED_REMARK if self.counted else ''}{far}"

    @property
    def _trained(self) -> list[float]:
        """The figures of trained models; an axis leaves out those that are far above the best."""
        return [row["figure"] for row in [*self.rows, *self.seeds, *self.others]]

    @property
    def _limit(self) -> float:
        return parts.find_drawn_limit(self._trained, self.objective)

    def _place_figures(self, channel: type[Axis]) -> Axis:
        """The axis of all figures that are not far above the best trained one, with the ideal."""
        figures = [*self._trained, *(row["figure"] for row in self.counted)]
        figures += [self.ideal] if self.ideal else []
        limit = self._limit
        return parts.place_figures(channel, (each for each in figures if each <= limit), self.objective)

    def _draw_points(self) -> StudyChart:
        amounts = [row["amount"] for row in [*self.rows, *self.others]]
        unit = self.trade_off.unit
        x = parts.place_amounts("amount", amounts, unit)
        y = self._place_figures(alt.Y)
        # Up to the next worse amount, the figure of a point of the front stays attainable.
        steps: Literal["step-before", "step-after"] = (
            "step-before" if QUANTITIES[self.trade_off.quantity].is_higher_better else "step-after"
        )
        front = parts.plot_rows("front").mark_line(interpolate=steps, color=parts.MUTED, strokeWidth=1.2)
        encoded = self._encode_marks(x, y)
        hollow = parts.plot_rows("points", "!datum.front").mark_point(size=parts.MARK_SIZE, filled=False)
        marked = parts.plot_rows("points", "datum.front")
        marked = marked.mark_point(size=parts.MARK_SIZE, filled=True, opacity=1)
        layers = [
            *parts.draw_ideal(self.ideal, y),
            front.encode(x=x, y=y),
            *self._draw_background(encoded),
            *self._draw_counted(y, {"x": alt.value("width")}, align="right", dx=-4, dy=-6),
            hollow.encode(**encoded),
            marked.encode(**encoded),
            parts.draw_ring("points", x, y),
        ]
        seeds = describe_seeds([row["seeds"] for row in self.rows if row["front"]])
        caption = (
            f"Over {self.trade_off.describe()}. Filled marks are on the Pareto front, which the line joins: "
            f"no other trained configuration is better in both{f'; {seeds}' if seeds else ''}."
            f"{' Dots are the seeds of a mean.' if self.seeds else ''}"
        )
        return self._make_chart(f"Against {parts.name_amounts(amounts, unit)}", caption, layers)

    def _draw_strips(self) -> StudyChart:
        # The leaderboard's order, so the first of an alternative is its best.
        names = list(dict.fromkeys(row["alternative"] for row in [*self.rows, *self.others]))
        x = self._place_figures(alt.X)
        y = alt.Y("alternative:N", sort=names, title=None).axis(domain=False, ticks=False, grid=True)
        encoded = self._encode_marks(x, y)
        marks = parts.plot_rows("points")
        marks = marks.mark_point(filled=True, size=parts.MARK_SIZE, opacity=0.85, clip=True)
        layers = [
            *parts.draw_ideal(self.ideal, x),
            *self._draw_background(encoded),
            *self._draw_counted(x, {"y": alt.value(0)}, align="center", dx=0, dy=-8),
            marks.encode(**encoded),
            parts.draw_ring("points", x, y),
        ]
        caption = (
            f"All have {self.trade_off.describe()}: a strip for each alternative, the best first. Marks are "
            "means over seeds, dots single seeds."
        )
        title, height = f"At equal {self.trade_off.unit}", STRIP_PIXELS * max(3, len(names))
        return self._make_chart(title, caption, layers, height)

    def _make_chart(self, title: str, caption: str, layers: list[Any], height: int = 300) -> StudyChart:
        # Without their alternatives: the line joins all of them, whatever the reader has switched off.
        front = [{name: row[name] for name in ("amount", "figure")} for row in self.rows if row["front"]]
        tables = {
            "points": self.rows,
            "seeds": self.seeds,
            "others": self.others,
            "counted": self.counted,
            "front": sorted(front, key=lambda row: row["amount"]),
            "ideal": [{"figure": self.ideal}],
        }
        ring = " The ring is the best configuration." if any(row["best"] for row in self.rows) else ""
        name, chart = f"validation_by_{self.trade_off.quantity}", alt.layer(*layers)
        return StudyChart(name, title, f"{caption}{ring}", chart, tables, height)

    def _encode_marks(self, x: alt.X, y: alt.Y) -> dict[str, Any]:
        tooltip = [
            alt.Tooltip("name:N", title="configuration"),
            parts.tell_figure(self.objective),
            alt.Tooltip("amount:Q", title=self.trade_off.unit, format=",.4~g"),
            alt.Tooltip("seeds:Q"),
        ]
        return self.scales.encode(x, y, tooltip)

    def _draw_background(self, encoded: dict[str, Any]) -> Iterator[alt.Chart]:
        """Seeds as dots, and trials that do not compare as small marks."""
        dots = parts.plot_rows("seeds").mark_circle(size=parts.SEED_SIZE, opacity=0.5, clip=True)
        yield dots.encode(x=encoded["x"], y=encoded["y"], color=self.scales.colour())
        if self.others:
            others = parts.plot_rows("others")
            pale = others.mark_point(size=OTHER_SIZE, filled=False, opacity=OTHER_OPACITY, clip=True)
            yield pale.encode(**encoded)

    def _draw_counted(self, along: alt.X | alt.Y, place: dict[str, Any], **text: Any) -> Iterator[alt.Chart]:
        """Models that count as lines at their figure, which `along` encodes, with their names at `place`."""
        if self.counted:
            lines = parts.plot_rows("counted").mark_rule(strokeWidth=1.4, clip=True)
            yield lines.encode(along, color=self.scales.colour(), strokeDash=self.scales.dash())
            names = parts.plot_rows("counted").mark_text(color=parts.MUTED, **text)
            yield names.encode(along, text="label:N", **place)


def draw_trade_offs(
    leaderboard: StudyLeaderboard, objective: Objective, ideal: float | None, best: int, scales: MarkScales
) -> Iterator[StudyChart]:
    """The figure against each quantity; strips by alternative where all amounts are the same."""
    trained = [entry for entry in leaderboard.entries if not entry.is_counted]
    near = select_drawn(trained, objective)
    counted = _label_best_of_alternatives(
        [
            _describe(entry, None, entry.figure)
            for entry in leaderboard.entries
            if entry.is_counted and parts.is_drawable(entry.figure)
        ],
        objective,
    )
    for trade_off in leaderboard.trade_offs:
        measured = [(entry, amount) for entry in near if (amount := entry.measure(trade_off.quantity))]
        if len(measured) < 2:
            continue
        rows = [
            {
                **_describe(entry, amount, entry.figure),
                "seeds": entry.estimate.seeds,
                "best": entry.number == best,
                "front": entry.number in trade_off.front,
            }
            for entry, amount in measured
        ]
        seeds = [
            _describe(entry, amount, figure)
            for entry, amount in measured
            for figure in map(objective.compute_figure, entry.cost_by_seed.values())
            # The mark of a configuration with one seed is that seed.
            if parts.is_drawable(figure) and entry.estimate.seeds > 1
        ]
        shown = choose_ideal(ideal, near)
        chart = _TradeOffChart(trade_off, objective, scales, rows, seeds, shown, counted=counted)
        missing = len(near) - len(measured)
        without = f"{format_count(missing, 'configuration')} without {trade_off.unit}"
        none = f" Left out: {without}." if missing else ""
        drawn = chart.draw()
        yield replace(drawn, caption=f"{drawn.caption}{chart.describe_rest()}{none}")


def draw_trials(rows: Sequence[LeaderboardRow], ideal: float | None) -> StudyChart | None:
    """All validated trials of one label of a corpus by parameters, as `memtune compare` ranks them.

    Configurations of full length are marks; trials of another number of tokens are small and pale. None
    without a trained model.
    """
    trained = [row for row in rows if row.parameter_count and parts.is_drawable(row.ranked_figure)]
    if not trained:
        return None
    objective = trained[0].objective
    full = [row for row in trained if row.estimate is not None]
    trade_off = make_trade_off(
        "parameters",
        [
            (number, row.estimate.cost if row.estimate else row.cost, row.parameter_count or 0)
            for number, row in enumerate(full or trained)
        ],
        trained[0].unit,
    )
    repeated = {row.configuration for row in full if row.estimate and row.estimate.seeds > 1}
    trainings = [row for row in trained if row.configuration in repeated and row.state is TrialState.COMPLETE]
    # A mean over repeats leaves out the trial that was selected.
    selected = {row.configuration for row in trainings if row.is_repeat}
    seeds = [row for row in trainings if row.is_repeat or row.configuration not in selected]
    known = {row.run_id for row in [*full, *trainings]}
    counted = [row for row in rows if not row.parameter_count and parts.is_drawable(row.ranked_figure)]
    counted.sort(key=lambda row: row.cost)
    chart = _TradeOffChart(
        trade_off,
        objective,
        MarkScales(row.alternative for row in rows),
        [
            {
                **_describe_row(row, row.ranked_figure),
                "seeds": row.estimate.seeds if row.estimate else 1,
                "best": row.place == 1,
                "front": number in trade_off.front,
            }
            for number, row in enumerate(full)
        ],
        [_describe_row(row, row.figure) for row in seeds],
        ideal,
        [_describe_row(row, row.ranked_figure) for row in trained if row.run_id not in known],
        _label_best_of_alternatives([_describe_row(row, row.ranked_figure) for row in counted], objective),
    )
    drawn = chart.draw()
    text = drawn.caption if full else f"Over {trade_off.describe()}."
    if chart.others:
        text += " Small pale marks have another number of tokens and do not compare."
    if ideal:
        text += " The dashed grey line is the ideal."
    return replace(drawn, caption=text + chart.describe_rest())


def _describe(entry: LeaderboardEntry, amount: float | None, figure: float) -> Row:
    name = entry.name
    return {"name": name, "alternative": entry.alternative, "amount": amount, "figure": figure}


def _describe_row(row: LeaderboardRow, figure: float | None) -> Row:
    return {
        "name": f"{row.study}: {row.name}",
        "alternative": row.alternative,
        "amount": row.parameter_count,
        "figure": figure,
    }


def _label_best_of_alternatives(rows: Sequence[Row], objective: Objective) -> list[Row]:
    """The first row of each alternative, with its alternative and figure as a label."""
    first = {row["alternative"]: row for row in reversed(rows)}
    return [
        {**row, "label": f"{name} {parts.format_figure(row['figure'], objective)}"}
        for name, row in first.items()
    ]


def draw_hypervolume(detail: StudyDetail) -> StudyChart | None:
    """The hypervolume against the tokens of all trials; None before it is above 0."""
    front = detail.front
    if front is None or not front.hypervolume or not front.hypervolume[-1].volume:
        return None
    rows: list[Row] = [{"tokens": point.tokens, "volume": point.volume} for point in front.hypervolume]
    title, end = f"{detail.summary.unit} of all trials", rows[-1]["tokens"]
    x = parts.place_amounts("tokens", [end], title, starts_at_zero=True)
    y = alt.Y("volume:Q", title="hypervolume (higher is better)").axis(tickCount=5)
    summary = detail.summary
    names = (QUANTITIES[name].name_unit(summary.unit) or summary.objective for name in front.objectives)
    line = parts.plot_rows("volumes").mark_line(interpolate="step-after", color=parts.MUTED)
    return StudyChart(
        name="hypervolume",
        title="Hypervolume",
        caption=f"What the Pareto front of {' and '.join(names)} dominates, measured from "
        f"{describe_reference(detail)}, after each trial of full length, by the search's single seeds.",
        chart=line.encode(x=x, y=y, tooltip=[alt.Tooltip("tokens:Q", format=","), "volume:Q"]),
        tables={"volumes": rows},
    )
