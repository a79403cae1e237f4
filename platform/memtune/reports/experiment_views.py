"""Tables and figures of experiments: fingerprints, families at a larger budget, and rows of papers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from memtune.experiments.published_tables import PublishedTable, ScaleName
from memtune.experiments.table_run import ReproducedRow, RowState
from memtune.number_format import format_short_count
from memtune.objective import Objective
from memtune.reports.figure_files import DARK, LIGHT, make_figure, set_logarithmic
from memtune.reports.marks import assign_marks
from memtune.reports.text_console import WITHOUT_FRAME, make_table
from memtune.results.fingerprints import Fingerprint, ProbeResult
from memtune.results.study.scaling_laws import Prediction, ScalingReport
from memtune.results.study_conclusion import format_markdown_table
from memtune.toml_text import format_toml

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH_NAMES = {1: "", 2: ", twice the length", 4: ", four times the length"}
SURE_SHARE = 0.95
TABLE_COLUMNS = (
    *("row", "parameters", "published parameters", "validation", "published validation"),
    *("test", "published test", "difference", "reason"),
)


def make_fingerprint_table(fingerprint: Fingerprint) -> Table:
    """One row for each probe and tested length: accuracy with its interval over seeds, higher is better."""
    terms = fingerprint.terms
    seeds = "one seed" if terms.seeds == 1 else f"mean of {terms.seeds} seeds"
    seeds += " with 95 % interval" if terms.seeds > 2 else ""
    budget = f"epochs: {terms.epochs:g}, batches of {terms.batch_size}"
    title = f"{fingerprint.name}: test accuracy, {seeds}, {budget}"
    columns = ("probe", ">accuracy", ">chance", ">ceiling", ">rate", ">parameters", ">carried state")
    table = make_table(title, (*columns, "reference"), **WITHOUT_FRAME)
    for result in fingerprint.results:
        reference = f"mixer {result.reference} {100 * (result.reference_valid or 0.0):.1f} %"
        for times in result.test:
            table.add_row(
                f"{result.probe}{LENGTH_NAMES[times]}",
                format_accuracy(result, times),
                f"{100 * result.chance:.1f} %",
                f"{100 * result.ceiling:.4g} %",
                f"{result.rate:g}",
                f"{result.parameters:,}",
                "" if result.carried_state is None else f"{result.carried_state:,}",
                (reference if result.reference else "solved by the model") if times == 1 else "",
            )
    return table


def format_accuracy(result: ProbeResult, times: int = 1) -> str:
    """The accuracy with its interval, and whether the probe is not learnable at the budget."""
    figure = result.estimates[times].format(Objective.ACCURACY, 1)
    return figure if result.is_learnable else f"({figure}, not learnable at this budget)"


def draw_fingerprint(fingerprint: Fingerprint) -> "Figure":
    """Test accuracies as bars, with their interval over seeds, the chance and the ceiling.

    A probe that is not learnable at the budget has no bar but the words for it.
    """
    # Imported here: matplotlib takes about 1 s, and tables do not need it.
    from matplotlib.ticker import PercentFormatter

    rows = [(result, times) for result in fingerprint.results for times in result.test]
    figure = make_figure(7.5, 1.4 + 0.3 * len(rows))
    axes = figure.add_subplot()
    for place, (result, times) in enumerate(rows):
        for level, line in ((result.chance, ":"), (result.ceiling, "--")):
            axes.plot([level] * 2, [place - 0.4, place + 0.4], color="black", linestyle=line, zorder=3)
        if not result.is_learnable:
            words = format_accuracy(result, times)
            axes.text(0.02, place, words, va="center", fontsize=9, backgroundcolor="white", zorder=4)
            continue
        estimate = result.estimates[times]
        accuracy = 1 - estimate.cost
        axes.barh(place, accuracy, 0.7, color=LIGHT, edgecolor=DARK)
        if bounds := estimate.compute_interval(Objective.ACCURACY):
            sides = [[accuracy - bounds[0]], [bounds[1] - accuracy]]
            axes.errorbar(accuracy, place, xerr=sides, color=DARK, capsize=3)
    axes.set_yticks(range(len(rows)), [f"{result.probe}{LENGTH_NAMES[times]}" for result, times in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    lines = "lines: 95 % interval over seeds; dotted: chance; dashed: ceiling"
    axes.set_xlabel(f"test accuracy, higher is better\n({lines})")
    axes.set_title(fingerprint.name)
    return figure


def make_scaling_table(report: ScalingReport) -> Table:
    """One row per family, best at the larger budget first."""
    figures = (">now", f">at {report.factor:g} times the compute", ">parameters", ">tokens", ">best in")
    table = make_table(
        "Families by compute",
        ("family", *figures, ">irreducible", ">a (size)", ">b (data)", ">backtest"),
        overflow="ellipsis",
        caption="validation perplexity with 95 % intervals at each family's best size; best in: share of "
        "bootstrap draws; backtest: relative error of the nats predicted from a third of the compute",
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
    title = "marks: reports; lines: predictions at the best size; dotted: the study's compute"
    axes.set_title(title, fontsize=9)
    set_logarithmic(
        axes,
        x="multiply-adds of the forward passes of a training",
        y="validation perplexity (lower is better)",
    )
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8)
    return figure


def make_reproduction_table(table: PublishedTable, rows: Sequence[ReproducedRow], scale: ScaleName) -> Table:
    """One row per model: our figures next to the published ones.

    Lower perplexity and higher accuracy are better.
    """
    title = f"{table.title}, scale {_describe_scale(table, scale)}; {_describe_figures(rows)}"
    columns = (name if name in ("row", "reason") else f">{name}" for name in TABLE_COLUMNS)
    return make_table(title, columns, _list_rows(table, rows, scale), **WITHOUT_FRAME)


def make_estimate_table(table: PublishedTable, hours: Mapping[str, float], scale: ScaleName) -> Table:
    """One row per model: the core hours that its trainings still need."""
    cells = [(name, f"{each:.2g}") for name, each in {**hours, "all": sum(hours.values())}.items()]
    return make_table(
        f"{table.title}, scale {scale}",
        ("row", ">core hours, about"),
        cells,
        **WITHOUT_FRAME,
    )


def format_reproduction_page(
    table: PublishedTable, rows: Sequence[ReproducedRow], scale: ScaleName, command: str
) -> str:
    """The same table in Markdown, with command, seeds, settings, versions and machines."""
    found = [row for row in rows if row.state is RowState.TRAINED]
    trainings = [
        [
            row.name,
            str((row.configuration or {}).get("seed", "")),
            f"{row.tokens or 0:,}",
            f"{row.best_tokens or 0:,}",
            f"{row.tokens_per_second or 0.0:,.0f}",
            f"{row.cpu_hours or 0.0:.3g}",
        ]
        for row in found
    ]
    unit = table.make_trial(table.rows[0], scale).trial.task.prediction_unit
    columns = ("row", "seed", unit, f"{unit} at the best validation", f"{unit} per second", "core hours")
    hours = sum(row.cpu_hours or 0.0 for row in found)
    parts = [
        [f"## {table.title}", "", f"Scale {_describe_scale(table, scale)}; {hours:.3g} core hours:"],
        ["", "```", command, "```", "", f"{_describe_figures(rows).capitalize()}.", ""],
        [format_markdown_table(TABLE_COLUMNS, _list_rows(table, rows, scale))],
    ]
    if found:
        parts += [
            ["", "### Trainings", ""],
            [format_markdown_table(columns, trainings)],
            ["", "### Settings", "", *_format_settings(found)],
            ["", "### Versions and machines", "", *_format_environments(found)],
        ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _describe_figures(rows: Sequence[ReproducedRow]) -> str:
    """What the columns of validation and test have."""
    interval = ", with the 95 % interval over seeds" if any(row.test_interval for row in rows) else ""
    return f"validation and test: {' and '.join(dict.fromkeys(row.objective for row in rows))}{interval}"


def _describe_scale(table: PublishedTable, scale: ScaleName) -> str:
    """The scale, and how its trainings depart from the paper."""
    note = table.scales[scale].note
    return f"{scale} ({note})" if note else scale


def _format_settings(rows: Sequence[ReproducedRow]) -> list[str]:
    """The settings that all networks have as TOML, and those of each row by dotted name."""
    # By dotted name, as TOML.
    lines_of = {row.name: format_toml(row.configuration or {}).splitlines() for row in rows}
    settings = {
        name: dict(line.split(" = ", maxsplit=1) for line in lines) for name, lines in lines_of.items()
    }
    networks = [row.name for row in rows if (row.configuration or {}).get("training")]
    first, *others = [settings[name] for name in networks or settings]
    shared = {name: value for name, value in first.items() if all(own.get(name) == value for own in others)}
    corpora = dict.fromkeys(f"`{row.corpus}`, digest {row.corpus_digest}" for row in rows)
    lines = [
        f"Corpus {'; '.join(corpora)}. Of every {'network' if networks else 'row'}:",
        "",
        "```toml",
        *(f"{name} = {value}" for name, value in shared.items()),
        "```",
        "",
    ]
    for name, own in settings.items():
        is_other = networks and name not in networks
        different = [f"{field} = {value}" for field, value in own.items() if is_other or field not in shared]
        lines.append(f"- {name}: `{', '.join(different)}`" if different else f"- {name}: nothing else")
    return lines


def _format_environments(rows: Sequence[ReproducedRow]) -> list[str]:
    """The versions and machines with the rows that were trained with them."""
    names = defaultdict[str, list[str]](list)
    for row in rows:
        names[", ".join(f"{name} {value}" for name, value in row.trained_with.items())].append(row.name)
    return [f"- {environment}: {'; '.join(trained)}" for environment, trained in names.items()]


def _list_rows(table: PublishedTable, rows: Sequence[ReproducedRow], scale: ScaleName) -> list[list[str]]:
    """The cells of TABLE_COLUMNS for each row, with the reasons that the title does not have."""
    return [_list_cells(row, table.scales[scale].note) for row in rows]


def _list_cells(row: ReproducedRow, note: str) -> list[str]:
    unit = row.objective.unit
    printed = row.published_parameters or ""
    if row.has_published_size is False and row.computed_parameters is not None:
        printed += f" (our formula: {format_short_count(row.computed_parameters)})"
    state = "" if row.state is RowState.TRAINED else f"{row.state}: "
    interval = "" if row.test_interval is None else " [{:.1f}, {:.1f}]".format(*row.test_interval)
    return [
        row.name,
        "" if row.parameters is None else f"{row.parameters:,}",
        printed,
        _format(row.valid, unit),
        "" if row.published_valid is None else f"{row.published_valid}{unit}",
        _format(row.test, unit) + interval,
        "" if row.published_test is None else f"{row.published_test}{unit}",
        "" if row.difference is None else f"{row.difference:+z.1f} {row.objective.short_margin_unit}",
        f"{state}{row.reason.removesuffix(note).removesuffix('; ')}",
    ]


def _format(figure: float | None, unit: str) -> str:
    return "" if figure is None else f"{figure:.2f}{unit}"
