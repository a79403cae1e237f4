"""Fingerprints as a table and as a figure."""

from typing import TYPE_CHECKING

from rich.table import Table

from memtune.objective import Objective
from memtune.reports.inspection.figure_files import DARK, LIGHT, make_figure
from memtune.reports.text_console import WITHOUT_FRAME, make_table
from memtune.results.fingerprints import Fingerprint, ProbeResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH_NAMES = {1: "", 2: ", twice the length", 4: ", four times the length"}
COLUMNS = ("probe", "accuracy", "chance", "ceiling", "rate", "parameters", "reference")


def make_fingerprint_table(fingerprint: Fingerprint) -> Table:
    """One row for each probe and tested length: accuracy with its interval over seeds, higher is better."""
    terms = fingerprint.terms
    seeds = "one seed" if terms.seeds == 1 else f"mean of {terms.seeds} seeds with 95 % interval"
    budget = f"epochs: {terms.epochs:g}, batches of {terms.batch_size}"
    title = f"{fingerprint.name}: test accuracy, {seeds}, {budget}"
    columns = (name if name in ("probe", "reference") else f">{name}" for name in COLUMNS)
    return make_table(title, columns, list_fingerprint_rows(fingerprint), **WITHOUT_FRAME)


def list_fingerprint_rows(fingerprint: Fingerprint) -> list[tuple[str, ...]]:
    """The cells of COLUMNS for each probe and tested length."""
    return [
        (
            f"{result.probe}{LENGTH_NAMES[times]}",
            format_accuracy(result, times),
            f"{100 * result.chance:.1f} %",
            "100 %",
            f"{result.rate:g}",
            f"{result.parameters:,}",
            (reference if result.reference else "solved by the model") if times == 1 else "",
        )
        for result in fingerprint.results
        for reference in [f"{result.reference} {100 * (result.reference_valid or 0.0):.1f} %"]
        for times in result.test
    ]


def format_accuracy(result: ProbeResult, times: int = 1) -> str:
    """The accuracy with its interval, or that the probe is not learnable at the budget."""
    if not result.is_learnable:
        return "not learnable at this budget"
    return result.estimates[times].format(Objective.ACCURACY, 1)


def draw_fingerprint(fingerprint: Fingerprint) -> "Figure":
    """Test accuracies as bars, with their interval over seeds and the chance.

    A probe that is not learnable at the budget has no bar but the words for it.
    """
    rows = [(result, times) for result in fingerprint.results for times in result.test]
    figure = make_figure(7.5, 1.4 + 0.3 * len(rows))
    axes = figure.add_subplot()
    for place, (result, times) in enumerate(rows):
        axes.plot([result.chance] * 2, [place - 0.4, place + 0.4], color="black", linestyle=":", zorder=3)
        if not result.is_learnable:
            axes.text(result.chance + 0.01, place, format_accuracy(result), va="center", fontsize=9)
            continue
        estimate = result.estimates[times]
        accuracy = 1 - estimate.cost
        axes.barh(place, accuracy, 0.7, color=LIGHT, edgecolor=DARK)
        low, high = estimate.compute_interval(Objective.ACCURACY) or (accuracy, accuracy)
        axes.errorbar(accuracy, place, xerr=[[accuracy - low], [high - accuracy]], color=DARK, capsize=3)
    axes.set_yticks(range(len(rows)), [f"{result.probe}{LENGTH_NAMES[times]}" for result, times in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("test accuracy, higher is better\n(lines: 95 % interval over seeds; dotted: chance)")
    axes.set_title(fingerprint.name)
    return figure
