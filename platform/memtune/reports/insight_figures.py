"""Figures of a study: learning curves, best so far, importance of parameters, Pareto front, hypervolume."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtune.objective import Objective, better_direction, compute_figure
from memtune.reports.family_marks import assign_marks
from memtune.reports.study_tables import MIN_SHOWN_IMPORTANCE, describe_reference
from memtune.results.study_detail import StudyDetail
from memtune.search import SIZE_UNITS, ObjectiveName
from memtune.trial_state import TrialState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "draw_curves",
    "draw_front",
    "draw_hypervolume",
    "draw_importance",
    "draw_progress",
    "write_figures",
]

MAX_BARS = 15
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MIN_LOGARITHMIC_FACTOR = 4.0
"""Between the largest and the smallest value of an axis with a logarithmic scale."""
PNG_DOTS_PER_INCH = 150
MAX_DRAWN_FACTOR = 4.0
"""Perplexities above this multiple of the best are beyond the axis: the first reports of bad trials."""


def write_figures(detail: StudyDetail, folder: Path) -> list[str]:
    """Write every figure that the study has data for as SVG and PNG; returns their names."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in FIGURES.items():
        figure = draw(detail)
        if figure is None:
            continue
        FigureCanvasAgg(figure)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", dpi=PNG_DOTS_PER_INCH)
        written.append(name)
    return written


def draw_curves(detail: StudyDetail) -> "Figure | None":
    """Validation against tokens: a line for each trial of the search, one mark per family.

    Trials that trained to their end are opaque with a filled mark; those that ended early are pale with a
    hollow one. None before the first validation.
    """
    trials = [trial for trial in detail.trials if trial.curve and not trial.is_repeat]
    if not trials:
        return None
    figure, axes = _make_figure()
    objective = detail.summary.objective
    marks = assign_marks(trial.family for trial in trials)
    for trial in trials:
        mark, is_complete = marks[trial.family], trial.state is TrialState.COMPLETE
        points = [(tokens, compute_figure(objective, cost)) for tokens, cost in trial.curve.items()]
        tokens, figures = zip(*points, strict=True)
        axes.plot(
            tokens, figures, linestyle=mark.line, color=mark.colour, alpha=0.9 if is_complete else 0.35, lw=1
        )
        axes.plot(
            tokens[-1],
            figures[-1],
            marker=mark.marker,
            color=mark.colour,
            markerfacecolor=mark.colour if is_complete else "none",
        )
    for family, mark in marks.items():
        axes.plot((), (), linestyle=mark.line, marker=mark.marker, color=mark.colour, label=family)
    _limit_perplexity(
        axes, objective, [compute_figure(objective, t.cost) for t in trials if t.cost is not None]
    )
    _finish(axes, detail, "tokens of a trial", _name_value(objective))
    axes.xaxis.set_major_formatter(_count_formatter())
    _add_legend(axes, "hollow: ended early")
    return figure


def draw_progress(detail: StudyDetail) -> "Figure | None":
    """The lowest validation so far against tokens and core hours of all trials; None before the first."""
    if not detail.progress:
        return None
    figure, (by_tokens, by_hours) = _make_figure(columns=2)
    objective = detail.summary.objective
    marks = assign_marks(trial.family for trial in detail.trials)
    family = {trial.number: trial.family for trial in detail.trials}
    searched = [trial for trial in detail.trials if not trial.is_repeat]
    ends = sum(trial.tokens for trial in searched), sum(trial.cpu_hours for trial in searched)
    figures = [compute_figure(objective, point.cost) for point in detail.progress]
    columns: list[list[float]] = [
        [point.tokens for point in detail.progress],
        [point.core_hours for point in detail.progress],
    ]
    for axes, places, end in zip((by_tokens, by_hours), columns, ends, strict=True):
        axes.step([*places, end], [*figures, figures[-1]], where="post", color="#555555", lw=1.2)
        shown = set[str]()
        for point, place, value in zip(detail.progress, places, figures, strict=True):
            name = family[point.number]
            mark = marks[name]
            label = None if name in shown else name
            shown.add(name)
            axes.plot(place, value, marker=mark.marker, ls="", color=mark.colour, label=label)
        _limit_perplexity(axes, objective, figures)
        axes.set_xscale("log")
    _finish(by_tokens, detail, "tokens of all trials", f"{_name_value(objective)}, single seeds")
    _finish(by_hours, detail, "core hours of all trials", "")
    by_hours.set_title("")
    by_tokens.xaxis.set_major_formatter(_count_formatter())
    by_hours.xaxis.set_major_formatter("{x:g}")
    _add_legend(by_hours)
    return figure


def draw_importance(detail: StudyDetail) -> "Figure | None":
    """The share of each parameter of a family or branch, with the trials that have it; None without."""
    found = [p for p in detail.importance if p.importance >= MIN_SHOWN_IMPORTANCE][:MAX_BARS]
    if not found:
        return None
    figure, axes = _make_figure(height=1.2 + 0.32 * len(found))
    labels = [parameter.label for parameter in found]
    bars = axes.barh(labels, [parameter.importance for parameter in found], color="#0072B2")
    axes.bar_label(bars, [f" {p.importance:.0%}, {p.trials} trials have it" for p in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.7 * found[0].importance)
    axes.set_xticks([share for share in SHARES if share <= 1.7 * found[0].importance])
    axes.xaxis.set_major_formatter(_share_formatter())
    _finish(axes, detail, "share of importance (PED-ANOVA)", "")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelsize=8)
    return figure


def draw_front(detail: StudyDetail) -> "Figure | None":
    """The second objective against the first, over all configurations of full length.

    Filled marks are on the front, which a line joins; a ring marks the study's best configuration. None
    without two configurations.
    """
    front = detail.front
    if front is None or len(front.points) < 2:
        return None
    figure, axes = _make_figure()
    objective = detail.summary.objective
    vertical, horizontal = front.objectives[:2]
    marks = assign_marks(point.family for point in front.points)
    for family, mark in marks.items():
        for is_on_front in (False, True):
            own = [p for p in front.points if p.family == family and p.is_on_front == is_on_front]
            axes.plot(
                [point.values[horizontal] for point in own],
                [point.values[vertical] for point in own],
                marker=mark.marker,
                linestyle="",
                color=mark.colour,
                markerfacecolor=mark.colour if is_on_front else "none",
                alpha=1.0 if is_on_front else 0.7,
                zorder=3 if is_on_front else 2,
            )
        axes.plot((), (), marker=mark.marker, ls="", color=mark.colour, label=family)
    joined = sorted((point.values[horizontal], point.values[vertical]) for point in front.front)
    if len(front.objectives) == 2:
        rises = horizontal == "tokens_per_second" or vertical == "tokens_per_second"
        where = "pre" if rises else "post"
        axes.step(*zip(*joined, strict=True), where=where, color="#555555", lw=1, zorder=1, label="front")
    best = next((p for p in front.points if detail.best and p.number == detail.best.number), None)
    if best is not None:
        place = best.values[horizontal], best.values[vertical]
        axes.plot(*place, "o", ms=15, mfc="none", mec="black", label=f"best: {best.name}")
    _finish(axes, detail, _name_objective(horizontal, objective), _name_objective(vertical, objective))
    scales = ((axes.xaxis, axes.set_xscale, horizontal), (axes.yaxis, axes.set_yscale, vertical))
    for axis, set_scale, name in scales:
        if not (name == "value" and objective == "accuracy"):
            _scale_logarithmically(axis, set_scale, [point.values[name] for point in front.points])
    _add_legend(axes, "hollow: dominated")
    return figure


def draw_hypervolume(detail: StudyDetail) -> "Figure | None":
    """The hypervolume against the tokens of all trials; None before it is above 0."""
    front = detail.front
    if front is None or not front.hypervolume or not front.hypervolume[-1].volume:
        return None
    figure, axes = _make_figure()
    tokens = [point.tokens for point in front.hypervolume]
    axes.step(
        tokens, [point.volume for point in front.hypervolume], where="post", marker=".", color="#0072B2"
    )
    _finish(axes, detail, "tokens of all trials", "hypervolume (higher is better)")
    axes.annotate(
        f"measured from {describe_reference(detail)}",
        (0.98, 0.03),
        xycoords="axes fraction",
        ha="right",
        fontsize=8,
    )
    axes.xaxis.set_major_formatter(_count_formatter())
    return figure


FIGURES: Mapping[str, Callable[[StudyDetail], "Figure | None"]] = {
    "learning_curves": draw_curves,
    "best_so_far": draw_progress,
    "importance": draw_importance,
    "front": draw_front,
    "hypervolume": draw_hypervolume,
}
"""The figures of a study by the name of their file."""


def _make_figure(height: float = 4.5, columns: int = 1) -> tuple["Figure", Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 if columns == 1 else 10, height), layout="constrained")
    return figure, figure.subplots(1, columns, sharey=columns > 1)


def _finish(axes: "Axes", detail: StudyDetail, horizontal: str, vertical: str) -> None:
    axes.set(title=detail.summary.name, xlabel=horizontal, ylabel=vertical)
    axes.grid(visible=True, alpha=0.3)


def _add_legend(axes: "Axes", title: str = "") -> None:
    """A legend beside the axes, where it covers no point."""
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), title=title or None, fontsize=8, title_fontsize=8
    )


def _limit_perplexity(axes: "Axes", objective: Objective, figures: list[float]) -> None:
    if objective == "perplexity" and figures:
        best = min(figures)
        axes.set_ylim(bottom=best * 0.97, top=min(max(axes.get_ylim()), best * MAX_DRAWN_FACTOR))


def _name_value(objective: Objective) -> str:
    return f"validation {objective} ({better_direction(objective)} is better)"


def _name_objective(name: ObjectiveName, objective: Objective) -> str:
    return _name_value(objective) if name == "value" else SIZE_UNITS[name]


def _scale_logarithmically(axis: Any, set_scale: Callable[[str], None], values: list[float]) -> None:
    """A logarithmic axis with few labels; a linear one where the values are close to each other."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_formatter(_count_formatter())
    if max(values) < MIN_LOGARITHMIC_FACTOR * min(values):
        return
    set_scale("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(_count_formatter())
    axis.set_minor_formatter(NullFormatter())


def _share_formatter() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0)


def _count_formatter() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")
