"""Tables of answers: accuracy by group with its interval, and means over seeds."""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.table import Table

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
