"""The table and the figure of families at a larger budget."""

from typing import TYPE_CHECKING

from rich.table import Table

from memtune.number_format import format_short_count
from memtune.objective import Objective
from memtune.reports.family_marks import assign_marks
from memtune.reports.inspection.figure_files import make_figure
from memtune.reports.text_console import make_table
from memtune.results.study.scaling_laws import Prediction, ScalingReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURE_SHARE = 0.95


def make_scaling_table(report: ScalingReport) -> Table:
    """One row per family, best at the larger budget first."""
    figures = (">now", f">at {report.factor:g} times the compute", ">parameters", ">tokens", ">best in")
    table = make_table(
        "Families by compute",
        ("family", *figures, ">irreducible", ">a (size)", ">b (data)", ">backtest"),
        overflow="ellipsis",
        caption="validation perplexity with 95 % intervals at each family's best size; best in: share of "
        "bootstrap draws; backtest: error in nats of predictions from a third of the compute",
    )
    for each in report.families:
        table.add_row(
            each.family,
            format_prediction(each.present),
            format_prediction(each.larger),
            format_short_count(each.larger.parameters),
            format_short_count(each.larger.tokens),
            f"{each.best_share:.0%}",
            f"{Objective.PERPLEXITY.compute_figure(each.irreducible):.1f}",
            f"{each.size_exponent:.2f}",
            f"{each.data_exponent:.2f}",
            "-" if each.backtest_error is None else f"{each.backtest_error:+.1%}",
        )
    return table


def format_prediction(prediction: Prediction) -> str:
    """Perplexity with its interval."""
    return "{perplexity:.1f} [{low:.1f}, {high:.1f}]".format(**prediction.list_figures())


def describe_extrapolation(report: ScalingReport) -> str:
    """Which family wins at the larger budget, and how sure that is, in a sentence."""
    best = report.families[0]
    present = min(report.families, key=lambda each: each.present.cost)
    now = "is best as now" if present.family == best.family else f"is best, now {present.family}"
    sure = "" if best.best_share >= SURE_SHARE else "; the intervals do not separate the families"
    return (
        f"at {report.factor:g} times the compute {best.family} {now}: perplexity "
        f"{format_prediction(best.larger)}, best in {best.best_share:.0%} of the draws{sure}"
    )


def draw_scaling(report: ScalingReport) -> "Figure":
    """Perplexity against compute, with reports as marks and predictions as lines with their intervals."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    figure = make_figure(8, 4.8)
    axes = figure.subplots()
    marks = assign_marks(each.family for each in report.families)
    for each in report.families:
        mark = marks[each.family]
        computes = [prediction.compute for prediction in each.predictions]
        figures = [prediction.list_figures() for prediction in each.predictions]
        line, lows, highs = ([own[name] for own in figures] for name in ("perplexity", "low", "high"))
        axes.plot(computes, line, linestyle=mark.line, color=mark.colour)
        axes.fill_between(computes, lows, highs, color=mark.colour, alpha=0.15, lw=0)
        axes.plot(
            [compute for compute, _ in each.reports],
            [Objective.PERPLEXITY.compute_figure(cost) for _, cost in each.reports],
            linestyle="",
            marker=mark.marker,
            color=mark.colour,
            ms=4,
            alpha=0.5,
        )
        axes.plot((), (), linestyle=mark.line, marker=mark.marker, color=mark.colour, label=each.family)
    axes.axvline(report.compute, color="#555555", lw=0.8, ls=":")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="multiply-adds of the forward passes of a training",
        ylabel="validation perplexity (lower is better)",
        title="marks: reports; lines: predictions at the best size; dotted: the study's compute",
    )
    axes.title.set_fontsize(9)
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.yaxis.set_tick_params(which="minor", labelsize=7)
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)
    axes.xaxis.set_minor_formatter(NullFormatter())
    return figure
