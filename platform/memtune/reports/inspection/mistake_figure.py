"""The figure of shared mistakes: Yogatama et al. (2018), figure 2, for any number of models."""

from typing import TYPE_CHECKING

from memtune.reports.inspection.figure_files import DARK, LIGHT, make_figure
from memtune.results.inspection.shared_mistakes import SharedMistakes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_mistakes"]

MAX_REGIONS = 24


def draw_mistakes(found: SharedMistakes) -> "Figure":
    """A bar for each set of models that make the same mistakes, below it the models of the set.

    Each model has its family's name and its total.
    """
    regions, names = found.regions[:MAX_REGIONS], [model.name for model in found.models]
    figure = make_figure(max(5.5, 0.62 * len(regions) + 3.4), 3.0 + 0.34 * len(names))
    figure.suptitle(
        f"{found.questions:,} questions, {found.correct_for_all:,.0f} answered correctly by all", fontsize=9
    )
    bars, sets = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.4 + 0.36 * len(names)])
    drawn = bars.bar(
        range(len(regions)), [region.mistakes for region in regions], color=LIGHT, edgecolor=DARK
    )
    bars.bar_label(drawn, [_format_count(region.mistakes) for region in regions], fontsize=8)
    bars.margins(y=0.12)
    bars.set(ylabel="mistakes of these and no others")
    for place, region in enumerate(regions):
        rows = [names.index(model) for model in region.models]
        sets.plot([place] * len(rows), rows, "o-", color="black")
    labels = [f"{model.name}: {_format_count(model.mistakes)}" for model in found.models]
    sets.set(yticks=range(len(names)), yticklabels=labels, xticks=[])
    sets.set_ylim(len(names) - 0.5, -0.5)
    sets.grid(visible=True, axis="y", alpha=0.3)
    return figure


def _format_count(mistakes: float) -> str:
    return f"{mistakes:,.0f}" if float(mistakes).is_integer() else f"{mistakes:,.1f}"
