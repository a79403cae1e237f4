"""Tables and figures of reports and of parameters.

Beneš et al. (2017), figures 3 to 5, and Mirowski and Vlachos (2015), figure 2.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, mean
from typing import TYPE_CHECKING

from rich.table import Table

from memtune.objective import Objective
from memtune.reports.figure_files import DARK, draw_legend, make_figure, set_logarithmic
from memtune.reports.marks import assign_marks
from memtune.reports.text_console import make_table
from memtune.results.inspection.parameter_curves import ParameterCurves, ParameterTrial, TrialReports
from memtune.results.study.ranking import DIGITS
from memtune.spaces import Scalar
from memtune.trial_state import TrialState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line = tuple[str, list[tuple[float | None, float | None]]]
"""The label of a training, and two figures of each of its reports."""
LOGARITHMIC_RATIO = 20
"""From this ratio of the largest to the smallest value on, an axis of positive values is logarithmic."""
MAX_VALUE_TICKS = 8
"""Up to so many different values each has a tick on a linear axis; the labels of more would overlap."""


def draw_parameter(found: ParameterCurves) -> "Figure":
    """The best validation figure of each trial against the parameter, and the means of each family as a line.

    A configuration counts once in a mean, with that of its repeats where it has some. Means are taken over
    costs, as those of the ranking. Trials that did not run to the end are hollow and not in the means; those
    that diverged without a validation have a cross above all.
    """
    # Imported here, as below: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.ticker import PercentFormatter

    figure = make_figure(6.5, 4)
    axes = figure.add_subplot()
    shown = [trial for trial in found.trials if trial.best is not None or trial.has_diverged]
    places = _place_values(axes, shown)
    trials = [trial for trial in shown if trial.best is not None]
    diverged = [places[trial.number, trial.seed] for trial in shown if trial.best is None]
    for family, mark in assign_marks(trial.family for trial in trials).items():
        own = [trial for trial in trials if trial.family == family]
        for is_complete, fill, label in (
            (True, mark.colour, family),
            (False, "none", f"{family}, ended early"),
        ):
            group = [trial for trial in own if (trial.state is TrialState.COMPLETE) == is_complete]
            if group:
                axes.scatter(
                    [places[trial.number, trial.seed] for trial in group],
                    [trial.best or 0.0 for trial in group],
                    marker=mark.marker,
                    facecolors=fill,
                    edgecolors=mark.colour,
                    label=label,
                    zorder=3,
                )
        if means := _compute_means(own, places, found.objective):
            axes.plot(
                *zip(*means, strict=True),
                color=mark.colour,
                linewidth=1,
                label=f"mean over configurations of {family}",
            )
    if diverged:
        # As far above the highest value as a mark needs; these trials have no figure of their own.
        height = 1.1 * max((trial.best or 0.0 for trial in trials), default=1.0)
        axes.scatter(diverged, [height] * len(diverged), marker="x", color=DARK, label="diverged")
    axes.set(xlabel=found.parameter, ylabel=f"best validation {found.objective.axis_title}")
    if axes.get_xscale() == "log":
        set_logarithmic(axes, x=found.parameter)
    if not found.objective.is_ratio:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title(found.study, fontsize=9)
    axes.grid(visible=True, alpha=0.3)
    draw_legend(figure)
    return figure


def _compute_means(
    trials: Sequence[ParameterTrial], places: Mapping[tuple[int, int], float], objective: Objective
) -> list[tuple[float, float]]:
    """The mean over the configurations of complete trials at each place, each with the mean of its repeats.

    The trial that is repeated was selected by its luck, and counts where none of its repeats is complete.
    """
    average = geometric_mean if objective.is_ratio else mean  # that of perplexities has the mean cost
    by_configuration = defaultdict[tuple[float, int], list[ParameterTrial]](list)
    for trial in trials:
        if trial.state is TrialState.COMPLETE and trial.best is not None:
            by_configuration[places[trial.number, trial.seed], trial.number].append(trial)
    by_place = defaultdict[float, list[float]](list)
    for (place, _), own in by_configuration.items():
        seeds = [trial for trial in own if trial.is_repeat] or own
        by_place[place].append(average([trial.best or 0.0 for trial in seeds]))
    return [(place, average(figures)) for place, figures in sorted(by_place.items())]


def _place_values(axes: "Axes", trials: Sequence[ParameterTrial]) -> dict[tuple[int, int], float]:
    """The place on the axis of each trial; texts and flags are placed side by side."""
    values = [trial.value for trial in trials]
    keys = [(trial.number, trial.seed) for trial in trials]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        names = sorted({str(value) for value in values})
        axes.set_xticks(range(len(names)), names)
        return {key: float(names.index(str(value))) for key, value in zip(keys, values, strict=True)}
    different = sorted(set(numbers))
    if different and different[0] > 0 and different[-1] / different[0] >= LOGARITHMIC_RATIO:
        axes.set_xscale("log")
    elif len(different) <= MAX_VALUE_TICKS:
        axes.set_xticks(different, [f"{value:g}" for value in different])
    return {key: float(value) for key, value in zip(keys, numbers, strict=True)}


def draw_trajectories(found: ParameterCurves) -> "Figure":
    """Validation against training perplexity, a line for each trial; training leads from right to left.

    The last report of a trial has a ring.
    """
    figure, lines = make_figure(7, 4.8), list[Line]()
    axes = figure.add_subplot()
    for trial in found.trials:
        points = [(report.train_perplexity, report.valid_perplexity) for report in trial.reports]
        lines.append((_label_trial(trial, found.trials), points))
    _draw_reports(axes, lines)
    set_logarithmic(axes, x="training perplexity", y="validation perplexity (lower is better)")
    axes.set_title(f"{found.study}: training leads from right to left, the ring is its end", fontsize=9)
    axes.grid(visible=True, which="both", alpha=0.3)
    draw_legend(figure, found.parameter)
    return figure


def _label_trial(trial: ParameterTrial, trials: Sequence[ParameterTrial]) -> str:
    """The value of a trial, with its number and seed where others have the same value."""
    value = _format_value(trial.value)
    several = sum(other.value == trial.value for other in trials) > 1
    return f"{value}, trial {trial.number} seed {trial.seed}" if several else value


def _format_value(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _draw_reports(axes: "Axes", lines: Sequence[Line]) -> None:
    """A line through the reports of each training that have both figures, with a ring around the last."""
    marks = assign_marks(label for label, _ in lines)
    for label, reports in lines:
        points = [(x, y) for x, y in reports if x is not None and y is not None]
        if points:
            mark = marks[label]
            style = {"marker": mark.marker, "linestyle": mark.line, "color": mark.colour}
            axes.plot(*zip(*points, strict=True), **style, markersize=5, linewidth=1.2, label=label)
            axes.plot(*points[-1], "o", markersize=11, markerfacecolor="none", color=mark.colour)


def draw_accuracies(models: Sequence[TrialReports]) -> "Figure":
    """Validation accuracy against validation perplexity, a line for each model through its reports.

    Training leads from right to left; the ring is the last report.
    """
    from matplotlib.ticker import PercentFormatter

    figure, lines = make_figure(7, 4.6), list[Line]()
    axes = figure.add_subplot()
    for model in models:
        points = [(point.valid_perplexity, point.valid_accuracy) for point in model.points]
        lines.append((f"{model.family} ({model.model})", points))
    _draw_reports(axes, lines)
    axes.set(
        xlabel="validation perplexity (lower is better)", ylabel="validation accuracy (higher is better)"
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("one point per report; the ring is the last one", fontsize=9)
    axes.grid(visible=True, alpha=0.3)
    draw_legend(figure)
    return figure


def make_parameter_table(found: ParameterCurves) -> Table:
    """One row for each trial."""
    numbers = (">seed", ">tokens", f">best {found.objective}", ">last training perplexity")
    table = make_table(found.question or found.study, (found.parameter, "family", "trial", "state", *numbers))
    for trial in found.trials:
        last = trial.reports[-1].train_perplexity if trial.reports else None
        best = "" if trial.best is None else found.objective.format_figure(trial.best, DIGITS)
        figures = best, "" if last is None else f"{last:.4g}"
        texts = _format_value(trial.value), trial.family, str(trial.number), trial.state.label
        table.add_row(*texts, str(trial.seed), f"{trial.tokens:,}", *figures)
    return table


def make_accuracies_table(models: Sequence[TrialReports]) -> Table:
    """One row for each report."""
    table = make_table("reports", ("model", "family", ">tokens", ">perplexity", ">accuracy"))
    for model in models:
        for point in model.points:
            perplexity = "" if point.valid_perplexity is None else f"{point.valid_perplexity:.2f}"
            accuracy = "" if point.valid_accuracy is None else f"{point.valid_accuracy:.2%}"
            table.add_row(model.model, model.family, f"{point.tokens:,}", perplexity, accuracy)
    return table
