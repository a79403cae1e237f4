"""Answers as tables and a figure: accuracy by group with its interval, and the overlap of mistakes."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from memtune.analysis import Region
from memtune.execution.asking import Asked
from memtune.tasks import Answers

__all__ = ["answer_groups", "answers_table", "overlap_figure", "overlap_table"]

MOST_ATTRACTORS = 5


def answers_table(asked: Sequence[Asked], title: str) -> Table:
    """One row a model and group: questions asked, share of right answers, 95 % bootstrap interval.

    Number agreement is counted by attractors, five and more together; what a model could not be asked, for a
    word that is not in its vocabulary, is counted beside.
    """
    table = Table(title=title, title_justify="left")
    for name in ("model", "family", "group"):
        table.add_column(name)
    for name in ("asked", "not asked", "accuracy", "95 % interval", "unknown words"):
        table.add_column(name, justify="right")
    for one in asked:
        groups = answer_groups(one.answers)
        for place, (name, answers) in enumerate(groups):
            own = [one.model, one.family] if place == 0 else ["", ""]
            rate = f"{one.unknown_rate:.2%}" if place == 0 else ""
            table.add_row(*own, name, *_figures(answers), rate, end_section=place == len(groups) - 1)
    return table


def answer_groups(answers: Answers) -> list[tuple[str, Answers]]:
    """All answers, and those of number agreement by attractors too, five and more together."""
    if answers.kind != "agreement":
        return [("all", answers)]
    counted = [(str(number), answers.group(number, number)) for number in range(MOST_ATTRACTORS)]
    many = (f"{MOST_ATTRACTORS}+", answers.group(MOST_ATTRACTORS))
    return [("all", answers), *(pair for pair in (*counted, many) if pair[1].names)]


def _figures(answers: Answers) -> list[str]:
    left = len(answers.names) - answers.questions
    if not answers.questions:
        return ["0", f"{left:,}", "", ""]
    low, high = answers.interval()
    return [f"{answers.questions:,}", f"{left:,}", f"{answers.accuracy:.2%}", f"{low:.2%} to {high:.2%}"]


def overlap_table(regions: Sequence[Region]) -> Table:
    """One row a set of models: how many questions they, and no others, answered wrongly."""
    table = Table(title="mistakes made by these models and no others", title_justify="left")
    table.add_column("models", overflow="fold")
    table.add_column("mistakes", justify="right")
    for region in regions:
        table.add_row(" and ".join(region.models), f"{region.mistakes:,}")
    return table


def overlap_figure(regions: Sequence[Region], models: Sequence[str], path: Path) -> None:
    """Write a PNG: a bar for each set of models, and below it which models make up the set."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5, 0.7 * len(regions) + 3), 4.5), layout="constrained")
    bars, sets = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.4 + 0.3 * len(models)])
    drawn = bars.bar(range(len(regions)), [region.mistakes for region in regions], color="tab:blue")
    bars.bar_label(drawn)
    bars.margins(y=0.1)
    figure.suptitle("mistakes by the set of models that make them")
    bars.set(ylabel="questions answered wrongly")
    for place, region in enumerate(regions):
        rows = [models.index(model) for model in region.models]
        sets.plot([place] * len(rows), rows, "o-", color="black")
    sets.set(yticks=range(len(models)), yticklabels=models, xticks=[])
    sets.set_ylim(-0.5, len(models) - 0.5)
    sets.grid(visible=True, axis="y", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=150)
