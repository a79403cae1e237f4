"""Trials in few words, and tables of trials: the leaderboard of a corpus, the spread over seeds, samples."""

import csv
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import StringIO
from itertools import zip_longest
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.table import Table

from memtune.corpora.batching.sentence_protocol import LENGTH_FIELDS
from memtune.data_frames import make_frame
from memtune.models import MODELS
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.reports.text_console import WITHOUT_FRAME, make_table
from memtune.results.comparison import TokenisationRow, describe_row
from memtune.results.study.ranking import DIGITS, ShortTrial
from memtune.results.study.study_leaderboard import (
    describe_model,
    describe_settings,
    format_fields,
    list_searched_fields,
)
from memtune.results.study.study_view import StudyView
from memtune.spaces import FAMILY_FIELD, Parameter, Scalar, SizeKind
from memtune.studies.definition.toml_files import override_fields
from memtune.tracking import NO_STUDY, LeaderboardRow
from memtune.training import TrialConfig
from memtune.trial_state import StopReason

MODEL_PREFIX, TRAINING_PREFIX = "model.", "training."
CONFIGURATION_PREFIXES = (MODEL_PREFIX, "task.", "protocol.", TRAINING_PREFIX)
VARIANT_FIELDS = tuple(f"protocol.{name}" for name in LENGTH_FIELDS)
"""Fields that only protocol.variant = "tran2016" has."""
BUDGET_FIELDS = ("training.tokens", "training.epochs", "training.report_every")
"""Fields that belong to the study's budget; the table has a column of tokens instead."""


def format_leaderboard_csv(rows: Sequence[LeaderboardRow], ideal: float | None) -> str:
    """One line per trial under a header, in the order of the rows, with the columns of `describe_row`.

    The recorded parameters follow by their dotted names. A value that a trial lacks is empty.
    """
    records = [describe_row(row, ideal) for row in rows]
    parameters = sorted({name for row in rows for name in row.parameters})
    written = StringIO()
    writer = csv.DictWriter(written, [*(records[0] if records else ()), *parameters], lineterminator="\n")
    writer.writeheader()
    for row, record in zip(rows, records, strict=True):
        writer.writerow(record | row.parameters)
    return written.getvalue()


def format_latex(table: Table) -> str:
    """The cells of a table as a `tabular` of LaTeX, with the lines of the package booktabs.

    Its title and caption are comments above.
    """
    alignment = "".join("r" if column.justify == "right" else "l" for column in table.columns)
    names = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    cells = ([str(cell).replace("\n", "; ") for cell in row] for row in rows)
    frame = make_frame((dict(zip(names, row, strict=True)) for row in cells), names)
    fitting = r"needs booktabs; as wide as a page in \resizebox{\textwidth}{!}{...} of graphicx"
    remarks = "".join(f"% {text}\n" for text in (table.title, table.caption, fitting) if text)
    return f"{remarks}{frame.to_latex(index=False, escape=True, column_format=alignment)}"


def make_leaderboard_table(
    rows: Sequence[LeaderboardRow],
    ideal: float | None,
    title: str,
    *,
    is_stacked: bool = True,
) -> Table:
    """One row per trial, best first: validation perplexity per token (lower is better), or accuracy (higher
    is better). With a known ideal, a column has the relative distance of the perplexity from it.

    A configuration of several seeds has its mean with the 95 % interval in the row of its best seed. Trials
    without a place did not reach full length or lack seeds; their rows say so.

    A row shows the fields in which these trials differ, or the key parameters of its family where none does;
    further seeds of a configuration do not repeat them. Trials of several studies have different budgets, so
    their rows name the study. With `is_stacked`, a trial takes several short lines, for a terminal; otherwise
    one.
    """
    has_several_studies = len({row.study for row in rows}) > 1
    objective = rows[0].objective if rows else Objective.PERPLEXITY
    unit = "examples" if {row.unit for row in rows} == {"examples"} else "tokens"
    sizes = _stack((("parameters", "carried state", "memory"), (unit, "hours")), is_stacked)
    figures = (objective, "above") if ideal else (objective,)
    notes = [f"ideal perplexity {ideal:.3f}"] if ideal else []
    if (intervals := max((row.estimate.intervals for row in rows if row.estimate), default=1)) > 1:
        notes.append(f"95 % intervals of {intervals} configurations, all at once")
    table = make_table(
        title,
        (">", "trial", *(f">{name}" for name in (*sizes, *figures, "seeds")), "state"),
        overflow="ellipsis",
        caption="; ".join(notes) or None,
        **WITHOUT_FRAME,
    )
    table.columns[1].overflow, table.columns[1].ratio = "fold", 1
    separator = "\n" if is_stacked else "  "
    recorded = {name for row in rows for name in row.parameters if name.startswith(CONFIGURATION_PREFIXES)}
    differing = {name for name in recorded if _is_distinguishing(name, rows)}
    described = set[tuple[str, str]]()
    for row in rows:
        lines = [row.name]
        if has_several_studies:
            lines.append(row.study if row.study != NO_STUDY else "no study")
        if (row.study, row.configuration) not in described:
            lines.append(_describe_model(row, differing))
        if row.configuration:  # earlier versions recorded none
            described.add((row.study, row.configuration))
        trial = separator.join(lines)
        table.add_row(
            "" if row.place is None else str(row.place),
            trial,
            *_stack(_format_size_cells(row), is_stacked),
            *_format_figure_cells(row, ideal),
            str(row.estimate.seeds) if row.estimate else "",
            _describe_state(row),
            style="bold" if row.place == 1 else None,
        )
    return table


def _stack(groups: Sequence[Sequence[str]], is_stacked: bool) -> list[str]:
    """A cell for each group, with as many lines in each; a cell for each line if not `is_stacked`."""
    if not is_stacked:
        return [cell for group in groups for cell in group]
    return ["\n".join(lines) for lines in zip(*zip_longest(*groups, fillvalue=""), strict=True)]


def _format_size_cells(row: LeaderboardRow) -> tuple[tuple[str, ...], ...]:
    """Parameters, carried state and memory; tokens and hours."""
    count = "" if row.parameter_count is None else f"{row.parameter_count:,}"
    state = "" if row.carried_state is None else f"{row.carried_state:,}"
    memory = "" if row.peak_memory_bytes is None else f"{row.peak_memory_bytes / 2**20:,.0f} MiB"
    return (count, state, memory), (f"{row.tokens:,}", "" if row.hours is None else f"{row.hours:.3g} h")


def _format_figure_cells(row: LeaderboardRow, ideal: float | None) -> list[str]:
    figure = row.ranked_figure
    if figure is None:
        return ["", ""] if ideal else [""]
    own = row.objective.format_figure(figure, DIGITS)
    shown = own if row.estimate is None else row.estimate.format(row.objective, DIGITS)
    return [shown, f"{100 * (figure / ideal - 1):,.1f} %"] if ideal else [shown]


def _describe_state(row: LeaderboardRow) -> str:
    """The trial's state, the reason of its end unless that is its budget or early stopping, and its notes."""
    unnamed = (None, StopReason.BUDGET, StopReason.EARLY_STOPPING)
    state = row.state.label
    if (row.end and row.end.reason) not in unnamed:
        state += f": {row.end}"
    lines = [state, *([row.note] if row.note else [])]
    if row.test_accesses:
        lines.append(f"test split read {format_count(row.test_accesses, 'time')}")
    return "\n".join(lines)


def _is_distinguishing(name: str, rows: Sequence[LeaderboardRow]) -> bool:
    """Whether trials differ in a field: its values differ, or only some trials of one family have it.

    A field that another family does not have is not a difference.
    """
    if name in BUDGET_FIELDS:
        return False
    having = [row for row in rows if _has_field(row, name)]
    families = {row.family for row in having}
    is_common = all(_has_field(row, name) for row in rows if row.family in families)
    return not is_common or len({str(row.parameters[name]) for row in having}) > 1


def _has_field(row: LeaderboardRow, name: str) -> bool:
    """Whether the trial's family has the field.

    In a study of several families, a trial also records fields that only other families have; in earlier
    versions, a trial also records the lengths that only a variant of its protocol has.
    """
    family = MODELS.get(row.family)
    if name not in row.parameters or family is None:
        return False
    if name in VARIANT_FIELDS and row.parameters.get("protocol.variant") != "tran2016":
        return False
    if name.startswith(MODEL_PREFIX):
        return name.split(".")[1] in family.model_fields
    return not (name.startswith(TRAINING_PREFIX) and not family.is_trained_by_gradient)


def _describe_model(row: LeaderboardRow, differing: Collection[str]) -> str:
    """The differing fields, those of a model as its family describes them; key parameters without any."""
    family = MODELS.get(row.family)
    if family is None:
        return row.family
    fields: dict[str, Any] = {}
    override_fields(
        fields,
        {
            name.removeprefix(MODEL_PREFIX): value
            for name, value in row.parameters.items()
            if name.startswith(MODEL_PREFIX) and _has_field(row, name)
        },
    )
    try:
        config = family.model_validate(fields)
    except ValidationError:  # recorded by another version, or not by memtune
        return row.family
    names = [name for name in row.parameters if name in differing and _has_field(row, name)]
    if set(names) <= {FAMILY_FIELD}:
        return describe_model(config)
    described = {f"{MODEL_PREFIX}{name}": value for name, value in config.describe().items()}
    shown: dict[str, Any] = {
        name: value for name, value in described.items() if any(f"{n}.".startswith(f"{name}.") for n in names)
    }
    covered = tuple(f"{name}." for name in (FAMILY_FIELD, *described))
    shown |= {name: row.parameters[name] for name in names if not f"{name}.".startswith(covered)}
    return " ".join(format_fields(shown.items()))


def make_alternatives_table(view: StudyView, title: str) -> Table:
    """The best configuration of each alternative, best first, with the searched fields: a study's answer.

    One without a configuration of full length comes last, with its value at the last common milestone.
    """
    objective, unit = view.objective, view.trials[0].unit
    sizes = (">parameters", ">carried state", f">{unit}")
    columns = (">best", "configuration", *sizes, f">validation {objective}", ">seeds", ">trials")
    table = make_table(title, columns)
    for found in view.find_bests():
        best = found.best
        figure = found.estimate.format(objective, DIGITS)
        own = [trial for trial in view.trials if trial.alternative == best.alternative]
        table.add_row(
            best.reference,
            describe_settings(best.config, list_searched_fields(view, best)),
            *((f"{best.sizes.parameters:,}", f"{best.sizes.state:,}") if best.sizes else ("", "")),
            f"{best.tokens:,}",
            found.explain() if isinstance(found, ShortTrial) else figure,
            str(found.estimate.seeds),
            str(len({trial.configuration for trial in own})),
        )
    return table


def make_spread_table(view: StudyView) -> Table:
    """One row per repeated configuration, best first: mean with interval, and the figure of each seed."""
    objective = view.objective
    title = f"the best configurations under other seeds: validation {objective}"
    columns = (">trial", "configuration", ">seeds", ">mean [95 % interval]", ">per seed")
    table = make_table(title, columns)
    for found in view.ranking.configurations if view.ranking else ():
        if len(found.trials) > 1:
            seeds = sorted(found.cost_by_seed.items())
            table.add_row(
                f"#{found.best.number}",
                describe_settings(found.best.config, list_searched_fields(view, found.best)),
                str(found.estimate.seeds),
                found.estimate.format(objective, DIGITS),
                ", ".join(f"{seed}: {objective.format_cost(cost, 3)}" for seed, cost in seeds),
            )
    return table


def make_sample_table(
    samples: Sequence[TrialConfig],
    vocabulary_size: int,
    searched_fields: Collection[str] = (),
    refusals: Sequence[str | None] = (),
) -> Table:
    """One row per sampled configuration, with its sizes for this vocabulary size.

    Where the study would not start some of them, a column has the reasons.
    """
    kinds: tuple[SizeKind, ...] = ("parameters", "multiply_adds", "state")
    columns = [
        "configuration",
        ">parameters",
        ">multiply-adds",
        ">carried state",
        *(["refused"] * any(refusals)),
    ]
    table = make_table("configurations of the space", columns)
    for config, refusal in zip_longest(samples, refusals):
        sizes = (f"{config.measure_size(kind, vocabulary_size):,}" for kind in kinds)
        table.add_row(describe_settings(config, searched_fields), *sizes, *([refusal or ""] * any(refusals)))
    return table


def make_prior_table(parameters: Iterable[Parameter]) -> Table:
    """The priors of parameters, and the file and the line that state them."""
    table = make_table("prior", ("parameter", "value", "confidence", "stated in"))
    for parameter in parameters:
        if prior := getattr(parameter.leaf, "prior", None):
            table.add_row(parameter.name, str(prior.value), prior.confidence, Path(prior.place).name)
    return table


def make_points_table(points: Sequence[Mapping[str, Scalar]]) -> Table:
    """What the points of a prior say of each parameter: its most frequent choice, or its quartiles.

    Quartiles are by nearest rank, so each is the value of a point.
    """
    table = make_table("", ("parameter", "value"))
    for name in dict.fromkeys(name for point in points for name in point):
        values = [point[name] for point in points if name in point]
        numbers = sorted(v for v in values if isinstance(v, int | float) and not isinstance(v, bool))
        if len(numbers) == len(values):
            low, middle, high = (numbers[ceil(share * len(numbers)) - 1] for share in (0.25, 0.5, 0.75))
            table.add_row(name, f"{middle:.3g} ({low:.3g} to {high:.3g})")
        else:
            value, count = Counter(values).most_common(1)[0]
            table.add_row(name, f"{value} ({count} of {len(values)})")
    return table


def make_tokenisation_table(rows: Sequence[TokenisationRow]) -> Table:
    """One row per corpus: its best trial in bits per byte, per word and per token."""
    figures = (">bits per byte", ">per byte", ">per word", ">per token")
    table = make_table(
        "validation, bits per byte compare; perplexities per token do not",
        ("corpus", "tokens", ">vocabulary", "best trial", *figures),
        overflow="ellipsis",
    )
    for row in rows:
        bound = "at least " if row.lost_share else ""
        table.add_row(
            row.corpus,
            row.tokens,
            f"{row.vocabulary:,}",
            row.name,
            f"{bound}{row.bits_per_byte:.4f}",
            f"{bound}{row.byte_perplexity:.3f}",
            f"{bound}{row.word_perplexity:.2f}",
            f"{row.token_perplexity:.3f}",
        )
    if any(row.lost_share for row in rows):
        table.caption = "at least: words that became <unk> are counted as bytes, but not predicted"
    return table
