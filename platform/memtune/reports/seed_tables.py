"""Markdown tables of figures by seed, for result pages: values, mean and standard deviation."""

from collections.abc import Iterator, Sequence

from memtune.reports.answer_tables import group_answers
from memtune.results.question_answers import ModelAnswers
from memtune.results.seed_spread import SeedSpread, compute_mean_deviation

SPREAD_HEADER = (
    "| trial | parameters | best epoch | validation by seed | mean | test by seed | mean |\n"
    "|---|---|---|---|---|---|---|"
)


def format_spread_row(spread: SeedSpread) -> str:
    """One row below `SPREAD_HEADER`."""
    cells = [
        spread.name,
        f"{spread.parameter_count:,}",
        " ".join(f"{one.best_epoch:.0f}" for one in spread.seeds),
    ]
    for values in ([one.valid for one in spread.seeds], [one.test for one in spread.seeds]):
        mean, deviation = compute_mean_deviation(values)
        cells += [" ".join(f"{value:.2f}" for value in values), f"{mean:.2f} ± {deviation:.2f}"]
    return _format_row(cells)


def format_answer_spread(models: Sequence[ModelAnswers]) -> Iterator[str]:
    """The lines of a table with one row for each corpus and family; accuracies in percent.

    Models with the same registered name, apart from "@champion" and the version, and of one family differ by
    their seeds. Number agreement has a column for each number of attractors.
    """
    by_row: dict[tuple[str, str], list[ModelAnswers]] = {}
    for model in models:
        by_row.setdefault((_get_registered_name(model), model.family), []).append(model)
    first = next(iter(by_row.values()))[0]
    groups = [name for name, answers in group_answers(first.answers) if answers.question_count]
    header = ["corpus", "family", "seeds", *groups, "not asked", "unknown words"]
    yield _format_row(header)
    yield f"|---|---|{'---:|' * (len(header) - 2)}"
    for (corpus, family), seeds in by_row.items():
        yield _format_row([corpus, family, str(len(seeds)), *_format_accuracies(seeds, groups)])


def _format_accuracies(seeds: Sequence[ModelAnswers], groups: Sequence[str]) -> list[str]:
    by_seed = [dict(group_answers(model.answers)) for model in seeds]
    answers = seeds[0].answers
    return [
        *(_format_mean([100 * answered[name].accuracy for answered in by_seed]) for name in groups),
        f"{len(answers.names) - answers.question_count:,} of {len(answers.names):,}",
        f"{seeds[0].unknown_rate:.1%}",
    ]


def _format_mean(values: Sequence[float]) -> str:
    mean, deviation = compute_mean_deviation(values)
    return f"{mean:.1f} ± {deviation:.1f}" if len(values) > 1 else f"{mean:.1f}"


def _get_registered_name(model: ModelAnswers) -> str:
    """The name of the registered model, or the study of a trial."""
    if "#" in model.model_uri:
        return model.model_uri.partition("#")[0]
    return model.model_uri.removeprefix("models:/").rpartition("/")[0].partition("@")[0]


def _format_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
