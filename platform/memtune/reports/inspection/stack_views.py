"""Tables and figures of stacks: Yogatama et al. (2018), figures 3 to 5."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from memtune.reports.figure_files import DARK, LIGHT, LOG_SCALE, make_figure
from memtune.reports.text_console import make_table
from memtune.results.inspection.stack_use import SentenceStackUse, StackStatistics, StackStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure

ENDS = (("then stay", LIGHT, False), ("then push", DARK, True))
"""Label and colour of an action without and with a push after its pops."""
COLUMNS = 7
LARGEST_DOT_POINTS = 13


def make_stack_actions_table(found: StackStatistics) -> Table:
    """One row for each action."""
    means = f"mean peak {found.mean_peak:.3f}, mean contribution {found.mean_contribution:.3f}"
    return make_table(
        f"{found.model}: {found.words:,} words, {means}",
        ("action", ">pops", ">words", ">mean probability"),
        (
            (action.action, str(action.pops), f"{action.words:,}", f"{action.mean_probability:.4f}")
            for action in found.actions
        ),
    )


def draw_stack_statistics(found: StackStatistics) -> "Figure":
    """Words by their most probable action, on a logarithmic axis, and a histogram of its probability."""
    figure = make_figure(9.5, 3.4)
    figure.suptitle(f"{found.model}: {found.words:,} words, mean peak {found.mean_peak:.2f}", fontsize=9)
    left, right = figure.subplots(1, 2)
    for bars in _draw_bars(left, [(each.pops, each.is_push, each.words) for each in found.actions]):
        left.bar_label(
            bars, fmt=lambda words: f"{words:.0f}" if words else "", fontsize=6, rotation=90, padding=2
        )
    left.set_yscale("symlog", linthresh=1)
    left.margins(y=0.25)
    left.set_xticks(sorted({action.pops for action in found.actions}))
    left.set(xlabel="number of pops", ylabel=f"words with this likeliest action{LOG_SCALE}")
    left.legend(fontsize=8)
    right.bar(
        [peak.low for peak in found.peaks],
        [peak.words for peak in found.peaks],
        [peak.high - peak.low for peak in found.peaks],
        align="edge",
        color=LIGHT,
        edgecolor=DARK,
    )
    right.set(xlabel="largest action probability", ylabel="words", xlim=(0, 1))
    return figure


def _draw_bars(
    axes: "Axes", actions: Sequence[tuple[int, bool, float]], **style: Any
) -> "list[BarContainer]":
    """Bars of actions, each given as its pops, whether a push follows, and its height; grouped as `ENDS`."""
    drawn = []
    for place, (label, colour, is_push) in enumerate(ENDS):
        own = [(pops, height) for pops, pushes, height in actions if pushes == is_push]
        places = [pops + 0.4 * (place - 0.5) for pops, _ in own]
        heights = [height for _, height in own]
        drawn.append(axes.bar(places, heights, 0.4, color=colour, edgecolor=DARK, label=label, **style))
    return drawn


def make_stack_steps_table(use: SentenceStackUse) -> Table:
    """One row for each word read."""
    numbers = (">pops", ">probability", ">contribution", ">entropy of the next word in nats")
    table = make_table("likeliest action at each word", ("sentence", "word", "action", *numbers))
    for step in use.steps:
        best = step.likeliest
        entropy = "" if step.entropy is None else f"{step.entropy:.2f}"
        cells = f"{best.probability:.3f}", f"{step.contribution:.3f}", entropy
        table.add_row(str(use.number), step.word, best.action, str(best.pops), *cells)
    return table


def draw_sentence_stack(use: SentenceStackUse) -> "Figure":
    """A panel for each word read: the probability of each action, and a dot for the stack's contribution.

    The area of a dot is proportional to the norm of the stack's term in the prediction of the next word,
    which is written next to it; H is the entropy of that prediction in nats.
    """
    rows = -(-len(use.steps) // COLUMNS)
    columns = min(COLUMNS, len(use.steps))
    figure = make_figure(1.0 + 1.65 * columns, 0.9 + 1.75 * rows)
    signs = "dot: norm of the stack term; H: entropy of the next word in nats"
    figure.suptitle(f"{use.model}, sentence {use.number}\n{signs}", fontsize=9)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
    largest = max(step.contribution for step in use.steps) or 1.0
    for place, axes in enumerate(panels):
        if place < len(use.steps):
            _draw_step(axes, use.steps[place], largest)
        else:
            axes.set_axis_off()
        # Axes are shared, so matplotlib labels the last row only, which may be empty here.
        if place < len(use.steps) <= place + columns:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("pops", fontsize=8)
    for row in range(rows):
        panels[row * columns].set_ylabel("probability", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _draw_step(axes: "Axes", step: StackStep, largest: float) -> None:
    _draw_bars(axes, [(each.pops, each.is_push, each.probability) for each in step.actions], linewidth=0.6)
    pops = sorted({action.pops for action in step.actions})
    size = LARGEST_DOT_POINTS * (step.contribution / largest) ** 0.5
    axes.plot(pops[0], 1.22, "o", color="#2e7d32", markersize=max(0.5, size), clip_on=False)
    entropy = "" if step.entropy is None else f"   H {step.entropy:.1f}"
    axes.annotate(
        f"{step.contribution:.2f}{entropy}",
        (pops[0], 1.22),
        (9, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )
    axes.set_title(step.word, fontsize=9)
    axes.set_ylim(0, 1.42)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xticks(pops[:: max(1, len(pops) // 6)])
    axes.tick_params(labelsize=7)
