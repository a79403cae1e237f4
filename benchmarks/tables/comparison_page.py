"""The page and the figure of a comparison."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.tables.comparison import (
    GOALS,
    WORKERS,
    Run,
    compute_ert,
    estimate_ratio,
    identify_configurations,
    open_landscape,
    read_runs,
)
from benchmarks.tables.curve_table import CurveTable
from benchmarks.tables.landscape import REFERENCE_POINTS, Landscape
from benchmarks.tables.methods import METHODS

__all__ = ["TableRuns", "draw_comparison", "format_comparison", "format_default_ratios", "read_compared"]

DEFAULT_METHOD = "memtune: TPE, promotion from a quarter"
REQUIRED_METHODS = (
    "Ray Tune, factor 3",
    "random",
    "random, constant budget",
    "Syne Tune ASHA, stopping",
    "Syne Tune ASHA, promotion",
    "Syne Tune MOBSTER",
)
"""The methods of others than which memtune's default must be no worse."""
FIGURE_METHODS = (
    "random",
    "Ray Tune, factor 3",
    "Syne Tune ASHA, promotion",
    "TPE, no early stopping",
    "memtune: TPE, halving from a quarter",
    DEFAULT_METHOD,
)


@dataclass(frozen=True)
class TableRuns:
    """The runs on one table, by method."""

    name: str
    table: CurveTable
    landscape: Landscape
    runs: Mapping[str, Sequence[Run]]
    max_trainings: int


def read_compared(tables: Sequence[Path], runs_folder: Path, max_trainings: int) -> list[TableRuns]:
    """The ended runs on each table that has any, by method: those of METHODS in their order, then others."""
    compared = []
    for path in tables:
        if not (runs := read_runs(runs_folder / f"{path.stem}.jsonl")):
            continue
        recorded = {run.method for run in runs}
        methods = [*(method for method in METHODS if method in recorded), *sorted(recorded - METHODS.keys())]
        ended = {method: [run for run in runs if run.method == method] for method in methods}
        compared.append(TableRuns(path.stem, *open_landscape(path), ended, max_trainings))
    return compared


def format_comparison(compared: Sequence[TableRuns], baseline: str) -> str:
    """The sections of all tables as Markdown; ratios are to the method `baseline`."""
    command = " ".join(["python -m benchmarks.tables", *sys.argv[1:]])
    runs = {each.name: each.runs for each in compared}
    ratios = format_default_ratios(runs, max(each.max_trainings for each in compared))
    shared = "\n".join(_describe_shared(*pair) for pair in combinations(compared, 2))
    tables = (_format_table(each, baseline) for each in compared)
    return "\n".join([f"`{command}`", "", ratios, shared, "", *tables])


def _describe_shared(first: TableRuns, second: TableRuns) -> str:
    shared = identify_configurations(first.table) & identify_configurations(second.table)
    return f"- {first.name} and {second.name} have {len(shared)} configurations in common."


def format_default_ratios(
    runs_by_table: Mapping[str, Mapping[str, Sequence[Run]]], max_trainings: int
) -> str:
    """The tokens of memtune's default over those of other methods, on each table to each goal.

    It has the methods that were run on all tables; empty without one.
    """
    compared = [
        method
        for method in REQUIRED_METHODS
        if all({method, DEFAULT_METHOD} <= runs.keys() for runs in runs_by_table.values())
    ]
    if not compared:
        return ""
    header = [f"{table}, to {goal:.1%}" for table in runs_by_table for goal in GOALS]
    rows = [
        [
            method,
            *(
                _format_ratio(runs[DEFAULT_METHOD], runs[method], max_trainings, place)
                for runs in runs_by_table.values()
                for place in range(len(GOALS))
            ),
        ]
        for method in compared
    ]
    lines = [["tokens of the default to those of", *header], *rows]
    first, *others = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([first, "|---" * len(lines[0]) + "|", *others, ""])


def _format_table(compared: TableRuns, baseline: str) -> str:
    heads = [f"to {goal:.1%}" for goal in GOALS]
    columns = [part for head in heads for part in (f"{head}: ERT, reached", "ratio [95 %]", "seconds")]
    header = ["method", *columns, "final regret, nats", "trials (complete)"]
    rows = [_format_row(method, compared, baseline) for method in compared.runs]
    return "\n".join(
        [
            f"## {compared.name}",
            "",
            _describe_table(compared),
            "",
            "| " + " | ".join(header) + " |",
            "|" + "---|" * len(header),
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
        ]
    )


def _describe_table(compared: TableRuns) -> str:
    landscape, table = compared.landscape, compared.table
    repeats = sum(curve.seed != 0 for curve in table.curves)
    minutes = sum(curve.seconds[-1] for curve in table.curves) / 60
    return (
        f"{len(table.curves) - repeats} configurations of {len({curve.family for curve in table.curves})} "
        f"families, {len(landscape.report_tokens)} reports of {landscape.report_tokens[0]:,} tokens each, "
        f"{repeats} under a second seed, {minutes:.0f} CPU minutes. Cross-validated Spearman correlation of "
        f"the landscape {landscape.cross_validate():.2f}; noise of a seed {landscape.noise_deviation:.3f} "
        f"nats; best of {REFERENCE_POINTS:,} random configurations {landscape.best_cost:.3f} nats. "
        f"{WORKERS} simulated workers, at most {compared.max_trainings} full trainings a run."
    )


def _format_row(method: str, compared: TableRuns, baseline: str) -> list[str]:
    runs, limit = compared.runs[method], compared.max_trainings
    cells = [method]
    for place in range(len(GOALS)):
        trainings = [run.trainings_to_goal[place] for run in runs]
        reached = sum(np.isfinite(trainings))
        cells.append(f"{compute_ert(trainings, limit):.1f}, {reached} of {len(runs)}")
        cells.append(_format_ratio(runs, compared.runs[baseline], limit, place))
        cells.append(f"{median(run.seconds_to_goal[place] for run in runs):.0f}")
    cells.append(f"{median(run.regret for run in runs):.4f}")
    cells.append(f"{median(run.trials for run in runs):.0f} ({median(run.complete for run in runs):.0f})")
    return cells


def _format_ratio(runs: Sequence[Run], base: Sequence[Run], max_trainings: int, place: int) -> str:
    first, second = ([run.trainings_to_goal[place] for run in each] for each in (runs, base))
    ratio, low, high = estimate_ratio(first, second, max_trainings)
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"


def draw_comparison(compared: Sequence[TableRuns], file: Path) -> None:
    """Draw the share of runs that reached each goal over the tokens that they spent."""
    figure = Figure(figsize=(5 * len(GOALS), 4 * len(compared)), layout="constrained")
    FigureCanvasAgg(figure)
    axes_TG = figure.subplots(len(compared), len(GOALS), squeeze=False, sharey=True)
    lines: dict[str, Line2D] = {}
    for each, row in zip(compared, axes_TG, strict=True):
        for place, axes in enumerate(row):
            for number, method in enumerate(FIGURE_METHODS):
                if method not in each.runs:
                    continue
                values = sorted(run.trainings_to_goal[place] for run in each.runs[method])
                reached = [value for value in values if np.isfinite(value)]
                shares = [count / len(values) for count in range(len(reached) + 1)]
                (lines[method],) = axes.step(
                    [0, *reached, each.max_trainings],
                    [*shares, shares[-1]],
                    where="post",
                    color=f"C{number}",  # the same on every table, whatever was run on it
                )
            axes.set(
                title=f"{each.name}, within {GOALS[place]:.1%}",
                xlabel="tokens, in full trainings",
                xlim=(0, each.max_trainings),
                ylim=(0, 1.02),
            )
            axes.grid(visible=True, alpha=0.3)
        row[0].set_ylabel("share of runs that reached it")
    names = [method for method in FIGURE_METHODS if method in lines]
    figure.legend([lines[name] for name in names], names, loc="outside lower center", ncols=3)
    figure.savefig(file, dpi=120)
