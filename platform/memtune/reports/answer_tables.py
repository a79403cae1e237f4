"""Tables and a figure of answers: accuracy by group with its interval, and the overlap of mistakes."""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from memtune.results.error_overlap import OverlapRegion
from memtune.results.question_answers import ModelAnswers
from memtune.tasks import Answers

MAX_ATTRACTORS = 5


def make_answers_table(model_answers: Sequence[ModelAnswers], title: str) -> Table:
    """One row for each model and group: questions, ties, accuracy with its exact 95 % interval.

    Number agreement has one group for each number of attractors, and one for five or more. "not asked" counts
    the questions that the accuracy omits: a word is outside of the vocabulary, or the answer is unknown. The
    last rows have the means of models that differ by their seeds.
    """
    table = Table(title=title, title_justify="left")
    for name in ("model", "family", "group"):
        table.add_column(name)
    for name in ("asked", "not asked", "ties", "accuracy", "95 % interval", "unknown words"):
        table.add_column(name, justify="right")
    for model in model_answers:
        groups = group_answers(model.answers)
        for place, (name, answers) in enumerate(groups):
            identity = [model.model_uri, model.family] if place == 0 else ["", ""]
            rate = f"{model.unknown_rate:.2%}" if place == 0 else ""
            table.add_row(
                *identity, name, *_format_accuracy_cells(answers), rate, end_section=place == len(groups) - 1
            )
    for row in _list_seed_means(model_answers):
        table.add_row(*row)
    return table


def _list_seed_means(model_answers: Sequence[ModelAnswers]) -> Iterator[list[str]]:
    """Rows with the mean accuracy and the standard deviation of models that differ by their seeds.

    These are of one family and of one registered name, or of one study.
    """
    by_kind = defaultdict[tuple[str, str], list[ModelAnswers]](list)
    for model in model_answers:
        by_kind[re.split("[#@/]", model.model_uri.removeprefix("models:/"))[0], model.family].append(model)
    for (name, family), seeds in by_kind.items():
        if len(seeds) < 2:
            continue
        by_seed = [dict(group_answers(model.answers)) for model in seeds]
        for group, answers in by_seed[0].items():
            if answers.question_count:
                values = [answered[group].accuracy for answered in by_seed]
                shown = f"{statistics.mean(values):.2%} ± {statistics.stdev(values):.2%}"
                yield [f"{name}, mean of {len(seeds)}", family, group, "", "", "", shown]


def group_answers(answers: Answers) -> list[tuple[str, Answers]]:
    """All answers; for number agreement also one group per number of attractors, and one for 5 or more."""
    if answers.kind != "agreement":
        return [("all", answers)]
    counted = [(str(number), answers.select_groups(number, number)) for number in range(MAX_ATTRACTORS)]
    many = (f"{MAX_ATTRACTORS}+", answers.select_groups(MAX_ATTRACTORS))
    return [("all", answers), *(pair for pair in (*counted, many) if pair[1].names)]


def _format_accuracy_cells(answers: Answers) -> list[str]:
    count = answers.question_count
    counts = [f"{number:,}" for number in (count, len(answers.names) - count, answers.tie_count)]
    if not count:
        return [*counts, "", ""]
    low, high = answers.compute_confidence_interval()
    return [*counts, f"{answers.accuracy:.2%}", f"{low:.2%} to {high:.2%}"]


def make_overlap_table(regions: Sequence[OverlapRegion]) -> Table:
    """One row for each set of models: the number of questions that they, and no others, answered wrongly."""
    table = Table(title="mistakes made by these models and no others", title_justify="left")
    table.add_column("models", overflow="fold")
    table.add_column("mistakes", justify="right")
    for region in regions:
        table.add_row(" and ".join(region.models), _format_mistakes(region.mistakes))
    return table


def _format_mistakes(mistakes: float) -> str:
    """Whole numbers without decimals; fractions, which ties cause, with two decimals.

    >>> _format_mistakes(1200.0), _format_mistakes(0.5)
    ('1,200', '0.50')
    """
    return f"{mistakes:,.0f}" if mistakes.is_integer() else f"{mistakes:,.2f}"


def write_overlap_png(regions: Sequence[OverlapRegion], models: Sequence[str], path: Path) -> None:
    """Write a PNG: a bar for each set of models, and below it which models make up the set."""
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5, 0.7 * len(regions) + 3), 4.5), layout="constrained")
    bars, sets = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.4 + 0.3 * len(models)])
    drawn = bars.bar(range(len(regions)), [region.mistakes for region in regions], color="tab:blue")
    bars.bar_label(drawn, [_format_mistakes(region.mistakes) for region in regions])
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
