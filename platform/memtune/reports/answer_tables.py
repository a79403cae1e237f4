"""Answers as tables and a figure: accuracy by group, means over seeds, and the mistakes that models share.

Yogatama et al. (2018), figure 2, has the mistakes of three models.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from memtune.number_format import format_count, format_p
from memtune.reports.figure_files import DARK, LIGHT, make_figure
from memtune.reports.text_console import make_table
from memtune.results.question_answers import ModelAnswers, SharedMistakes
from memtune.tasks import Answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ATTRACTORS = 5
MAX_REGIONS = 24
MCNEMAR_TITLE = "McNemar's exact test, corrected for all pairs (Holm)"


def make_answers_table(model_answers: Sequence[ModelAnswers], title: str) -> Table:
    """One row for each model and group: questions, ties, accuracy with its exact 95 % interval.

    Number agreement has one group for each number of attractors, and one for five or more. "not asked" counts
    the questions that the accuracy omits: a word is outside of the vocabulary, or the answer is unknown. The
    last rows have the means of models that differ by their seeds.
    """
    counts = (">asked", ">not asked", ">ties", ">accuracy", ">95 % interval", ">unknown words")
    group = "attractors" if any(model.answers.kind == "agreement" for model in model_answers) else "group"
    table = make_table(title, ("model", "family", group, *counts), overflow="ellipsis")
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
    """Rows with the mean accuracy and the standard deviation of models that differ by their seeds alone."""
    by_configuration = defaultdict[str, dict[int, ModelAnswers]](dict)
    for model in model_answers:
        by_configuration[model.configuration].setdefault(model.seed, model)
    for seeds in by_configuration.values():
        first, *others = seeds.values()
        by_seed = [dict(group_answers(model.answers)) for model in seeds.values()]
        for group, answers in by_seed[0].items() if others else ():
            if answers.question_count:
                values = [answered[group].accuracy for answered in by_seed]
                shown = f"{statistics.mean(values):.2%} ± {statistics.stdev(values):.2%}"
                name = re.split("[#@/]", first.model_uri.removeprefix("models:/"))[0]
                title = f"{name}, mean ± standard deviation of {len(seeds)} seeds"
                yield [title, first.family, group, "", "", "", shown]


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


def make_mistakes_table(found: SharedMistakes) -> Table:
    """One row for each set of models that make the same mistakes, then the total of each model."""
    title = f"mistakes on {_name_questions(found)}, by the models that make them and no others"
    table = make_table(title, ("models", ">mistakes"))
    for region in found.regions:
        table.add_row(" and ".join(region.models), _format_mistakes(region.mistakes))
    table.add_section()
    for model in found.models:
        table.add_row(f"all of {model.name}", _format_mistakes(model.mistakes))
    return table


def make_mcnemar_table(found: SharedMistakes) -> Table:
    """One row for each pair of models."""
    columns = ("first", "second", ">only first correct", ">only second correct", ">ties", ">p")
    table = make_table(MCNEMAR_TITLE, columns)
    for test in found.tests:
        counts = (f"{count:,}" for count in (test.first_only, test.second_only, test.ties))
        table.add_row(test.first, test.second, *counts, format_p(test.p).removeprefix("= "))
    return table


def draw_mistakes(found: SharedMistakes) -> "Figure":
    """A bar for each set of models that make the same mistakes, below it the models of the set.

    Each model has its family's name and its total. Below them is the test of each pair.
    """
    regions, names = found.regions[:MAX_REGIONS], [model.name for model in found.models]
    height = 3.0 + 0.34 * len(names) + 0.16 * len(found.tests)
    figure = make_figure(max(5.5, 0.62 * len(regions) + 3.4), height)
    title = f"{_name_questions(found)}, {found.correct_for_all:,.0f} answered correctly by all"
    figure.suptitle(title, fontsize=9)
    tests = (f"{test.first} and {test.second}: p {format_p(test.p)}" for test in found.tests)
    figure.supxlabel("\n".join([MCNEMAR_TITLE, *tests]), fontsize=8)
    bars, sets = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.4 + 0.36 * len(names)])
    heights = [region.mistakes for region in regions]
    drawn = bars.bar(range(len(regions)), heights, color=LIGHT, edgecolor=DARK)
    bars.bar_label(drawn, [_format_mistakes(height) for height in heights], fontsize=8)
    bars.margins(y=0.12)
    bars.set(ylabel="mistakes of these and no others")
    for place, region in enumerate(regions):
        rows = [names.index(model) for model in region.models]
        sets.plot([place] * len(rows), rows, "o-", color="black")
    labels = [f"{model.name}: {_format_mistakes(model.mistakes)}" for model in found.models]
    sets.set(yticks=range(len(names)), yticklabels=labels, xticks=[])
    sets.set_ylim(len(names) - 0.5, -0.5)
    sets.grid(visible=True, axis="y", alpha=0.3)
    return figure


def _name_questions(found: SharedMistakes) -> str:
    return f"{format_count(found.questions, 'question')} of {found.corpus}, {found.split}"


def _format_mistakes(count: float) -> str:
    """Ties make fractions, which have one decimal place."""
    return f"{count:,.1f}".removesuffix(".0")
