"""`memtune train`, `judge`, `probe` and `reproduce`: what trains here, outside a study."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from memtune.cli.shell_completion import complete_paper, complete_trial_file
from memtune.cli.terminal import (
    AsJson,
    Device,
    TrustCode,
    corpus_option,
    err,
    figure_option,
    out,
    print_registration,
    warn,
)
from memtune.errors import ConfigurationError, CorpusError, MemtuneError
from memtune.gc_pause import pause_gc
from memtune.storage.local_files import write_whole

if TYPE_CHECKING:
    from memtune.experiments.published_tables import PublishedRow, PublishedTable, ScaleName
    from memtune.experiments.single_trial import TrainResult
    from memtune.experiments.table_run import ReproducedRow, RowHooks
    from memtune.reports.live.live_view import LineDisplay
    from memtune.training import Progress, Report, TrialConfig

T = TypeVar("T")
EXIT_CODES = {"better": 0, "undecided": 4}
NOT_BETTER = 3
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="Threads of torch; 1 is fastest for small models on a busy machine."),
]
Judged = Annotated[
    str,
    typer.Argument(
        help="A trial as a TOML file, STUDY#7, or models:/NAME/VERSION.", autocompletion=complete_trial_file
    ),
]


def _set_threads(threads: int | None) -> None:
    if threads:
        # Imported here, as in every command: torch loads for seconds, which help need not wait for.
        import torch

        torch.set_num_threads(threads)


@contextmanager
def _explain_interrupt(message: str) -> Iterator[None]:
    """End an interrupted command with a warning that its trainings are not lost."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"stopped; the same command {message} from the last checkpoint")
        raise typer.Exit(1) from None


def train(
    trial: Annotated[
        Path,
        typer.Argument(
            help="A trial: corpus, model, protocol, training as TOML; or the name of a packaged one.",
            autocompletion=complete_trial_file,
        ),
    ],
    corpus: Annotated[str | None, corpus_option("Train on this corpus instead of the file's.")] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Use this seed instead of the file's. Several give their means."),
    ] = None,
    threads: Threads = None,
    device: Device = "cpu",
) -> None:
    """Train one configuration here, recorded like a trial; a second call resumes it.

    The mean of validation over all its seeds, those of earlier calls included, decides whether it becomes the
    champion; a single seed has to be better than the champion's weights. With several seeds, the means of
    validation and test follow, from three seeds on with 95 % intervals.

    Example: memtune train jobs/trials/tran2016_ptb_rm.toml --seed 0 --seed 1
    """
    seeds = seed or []
    if len(set(seeds)) < len(seeds):
        raise typer.BadParameter("a seed is named twice; name each seed once", param_hint="--seed")
    from memtune.library import FileKind, find_file
    from memtune.studies.definition.toml_files import check_document

    file = find_file(FileKind.TRIAL, trial)
    check_document(file, () if corpus else ("corpus",))
    from memtune.api import train as train_trial

    _set_threads(threads)
    fixed: dict[str, object] = {} if corpus is None else {"corpus": corpus}
    trained = []
    for overrides in [{**fixed, "seed": number} for number in seeds] or [fixed]:
        with _explain_interrupt("resumes"):
            result = train_trial(file, overrides, device=device, console=out)
        trained.append(result)
        if result.best is None:
            problem = f"{file} reached no validation: {result.curve[-1].end}"
            if len(seeds) < 2:
                raise MemtuneError(problem)
            warn(problem)
            continue
        best, objective = result.best, result.best.objective
        figure = f"{objective} {objective.format_cost(best.cost or 0.0, 3)}"
        out.print(f"best: validation {figure} at {best.tokens:,} {result.unit}")
        print_registration(result.registration, result.has_test_split)
    if len(trained) > 1:
        _print_means(trained, device)


def _print_means(trained: "Sequence[TrainResult]", device: str) -> None:
    """Print the means over seeds; the test split is read once for each model."""
    from memtune.experiments.single_trial import read_test_figure
    from memtune.seed_statistics import estimate_cost
    from memtune.settings import Settings

    stable = [each for each in trained if each.cost is not None]
    if not stable:
        raise MemtuneError(
            f"all {len(trained)} seeds diverged, so that there is no mean; lower the learning rate"
        )
    if len(stable) < len(trained):
        out.print(f"{len(trained) - len(stable)} of {len(trained)} seeds diverged and are in no mean")
    objective = trained[0].curve[-1].objective
    costs = {"validation": [each.cost for each in trained if each.cost is not None]}
    if trained[0].has_test_split:
        settings = Settings.from_environment()
        read = [read_test_figure(each, objective, settings, device)[1] for each in stable]
        found = [objective.scale * figure for figure in read if figure is not None]
        costs["test"] = [objective.compute_target_cost(figure) for figure in found]
    for split, own in costs.items():
        if own:
            out.print(f"{split} {objective} {estimate_cost(own).describe(objective, 3)}")


def judge(
    baseline: Judged,
    candidate: Judged,
    indifference: Annotated[
        float, typer.Option(help="Differences within it are equal; 0.005 is 0.5 % of perplexity.")
    ] = 0.005,
    max_seeds: Annotated[int, typer.Option(min=3, max=30, help="Seeds of each.")] = 30,
    threads: Threads = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    json: AsJson = False,
) -> None:
    """Is the second configuration better than the first? Train both under equal seeds until that is decided.

    Exit code: 0 better, 3 not better (worse, equal, or the same configuration), 4 undecided.

    Example: memtune judge jobs/trials/grammar_lstm.toml my_network.toml
    """
    from memtune.api import judge as judge_watched

    _set_threads(threads)
    judged = judge_watched(
        baseline,
        candidate,
        indifference=indifference,
        max_seeds=max_seeds,
        device=device,
        trust_code=trust_code,
        console=err if json else out,
    )
    if json:
        out.print_json(data=judged)
    else:
        out.print_line(judged.text)
        cost = f"{judged.tokens:,} tokens, {judged.cpu_hours:.3g} core h"
        out.print(f"the trainings took {cost}" if judged.tokens else "nothing was trained")
    raise typer.Exit(EXIT_CODES.get(judged.outcome, NOT_BETTER))


def probe(
    model: Annotated[
        str,
        typer.Argument(help="A family, a mixer such as gla or mixer=lstm, or a TOML file with [model]."),
    ],
    probes: Annotated[
        str,
        typer.Option(
            "--set",
            help="mad, recall, state, language, all, or one probe; recall takes hours at the default terms.",
        ),
    ] = "recall",
    parameters: Annotated[
        int, typer.Option(min=1_000, help="Size of a model without a width, and of the references.")
    ] = 100_000,
    epochs: Annotated[float, typer.Option(help="Passes over the rows of each probe.")] = 10.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 64,
    rates: Annotated[
        str, typer.Option(help="Learning rates, of which validation chooses one.")
    ] = "0.001,0.003,0.01",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings at the chosen rate.")] = 3,
    setting: Annotated[
        list[str] | None, typer.Option(help="Of the rows, such as rows=4096; may be repeated.")
    ] = None,
    figure: Annotated[Path | None, figure_option("--figure", "Also draw it: .svg, .png or .pdf.")] = None,
    threads: Threads = None,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Train a model on probes, rows with known answers, and print its fingerprint.

    Validation chooses the rate, and the test rows are read once. A probe that a reference does not solve
    under the same terms is not learnable at this budget. A second call trains nothing again.

    Example: memtune probe lstm --set parity --parameters 10000 --epochs 4 --batch-size 32 --rates 0.003,0.01
    """
    with pause_gc():
        from memtune.api import probe as take_fingerprint
        from memtune.reports.experiment_views import draw_fingerprint, make_fingerprint_table
        from memtune.reports.figure_files import save_figure
    _set_threads(threads)
    terms = {
        "parameters": parameters,
        "epochs": epochs,
        "batch_size": batch_size,
        "rates": _parse_rates(rates),
        "seeds": seeds,
        "settings": dict(map(_parse_setting, setting or ())),
    }
    with _explain_interrupt("continues"):
        found = take_fingerprint(model, probes, terms, device=device, console=err)
    if json:
        out.print_json(found.model_dump_json())
    else:
        out.print(make_fingerprint_table(found))
    if figure is not None:
        save_figure(draw_fingerprint(found), figure)


def _parse_rates(text: str) -> list[float]:
    with suppress(ValueError):
        rates = [float(rate) for rate in text.split(",")]
        if all(0 < rate < inf for rate in rates):
            return rates
    raise typer.BadParameter(f"{text} is not a number above 0, such as 0.003", param_hint="--rates")


def _parse_setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(
            f'"{text}" sets nothing; write NAME=NUMBER, such as rows=4096', param_hint="--setting"
        ) from None


def reproduce(
    paper: Annotated[
        str, typer.Argument(help="tran2016, cheng2016, benes2017, ...", autocompletion=complete_paper)
    ],
    table: Annotated[
        str | None, typer.Option(help="One table, such as 2, or its part, such as 2-de; default: all.")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option(help="Train this row only; may be repeated. Default: all rows.")
    ] = None,
    scale: Annotated[
        Literal["paper", "cpu", "tiny"],
        typer.Option(help="The paper's trainings, those that a CPU can do, or a check that takes seconds."),
    ] = "cpu",
    corpus: Annotated[str | None, corpus_option("Train on this corpus instead of the tables' own.")] = None,
    max_core_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Train only rows that are estimated to fit into this time, and name the others."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print about how many core hours each row needs; train nothing.")
    ] = False,
    write_to: Annotated[Path | None, typer.Option("--out", help="Also write the tables as Markdown.")] = None,
    threads: Threads = None,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Train the rows of a paper's tables under its protocol, and print ours next to the published values.

    A second call continues: a row that is trained is not trained again. The exit code is 1 where a row has
    failed.

    Example: memtune reproduce tran2016 --table ptb --scale cpu --out tran2016.md
    """
    if dry_run and write_to is not None:
        raise typer.BadParameter("--dry-run trains nothing; leave --out away")
    _set_threads(threads)
    tables, chosen = _choose_tables(paper, table, row or [], corpus)
    if dry_run:
        _print_estimates(tables, chosen, scale, device, json=json)
        return
    found = _train_tables(tables, chosen, paper, scale, max_core_hours, device)
    options = _format_options(row or [], scale, corpus, threads, device)
    _print_tables(
        found, f"memtune reproduce {shlex.quote(paper)} --table", options, scale, write_to, json=json
    )


def _choose_tables(
    paper: str, table: str | None, rows: Sequence[str], corpus: str | None
) -> "tuple[list[PublishedTable], frozenset[str] | None]":
    """The chosen tables of a paper that have chosen rows, and the names of these; None for all rows."""
    from memtune.experiments.published_tables import load_paper, select_rows, select_tables

    tables = select_tables(load_paper(paper), table)
    chosen = select_rows(tables, rows)
    tables = [one for one in tables if chosen is None or any(row.name in chosen for row in one.rows)]
    return tables if corpus is None else [one.on_corpus(corpus) for one in tables], chosen


def _train_tables(
    tables: "Sequence[PublishedTable]",
    chosen: frozenset[str] | None,
    paper: str,
    scale: "ScaleName",
    max_core_hours: float | None,
    device: str,
) -> "Iterator[tuple[PublishedTable, list[ReproducedRow]]]":
    from memtune.experiments.table_run import CoreHours, reproduce_table
    from memtune.reports.live.live_view import LineDisplay
    from memtune.settings import Settings

    settings = Settings.from_environment()
    core_hours = CoreHours(inf if max_core_hours is None else max_core_hours)

    def train(table: "PublishedTable") -> "list[ReproducedRow]":
        with LineDisplay(err) as display, _explain_interrupt("continues"):
            found = reproduce_table(
                table,
                scale,
                settings,
                rows=chosen,
                device=device,
                name=f"{paper}_{table.name}",
                hooks=_show_rows(display),
                core_hours=core_hours,
            )
        return [row for row in found if chosen is None or row.name in chosen]

    return _visit_tables(tables, train)


def _visit_tables(
    tables: "Sequence[PublishedTable]", visit: "Callable[[PublishedTable], T]"
) -> "Iterator[tuple[PublishedTable, T]]":
    """Each table with what `visit` makes of it.

    Warns at the end of tables that lack their corpus or the scale; raises the last error where all lack it.
    """
    missing: list[MemtuneError] = []
    for one in tables:
        try:
            found = visit(one)
        except (ConfigurationError, CorpusError) as error:
            missing.append(error)
        else:
            yield one, found
    fatal = missing.pop() if len(missing) == len(tables) else None
    for problem in missing:
        warn(f"not run: {problem}")
    if fatal is not None:
        raise fatal


def _print_tables(
    tables: "Iterable[tuple[PublishedTable, list[ReproducedRow]]]",
    command: str,
    options: str,
    scale: "ScaleName",
    write_to: Path | None,
    *,
    json: bool,
) -> None:
    """Print each table when its rows are trained; ends with exit code 1 where a row has failed."""
    with pause_gc():
        from memtune.experiments.table_run import RowState
        from memtune.reports.experiment_views import format_reproduction_page, make_reproduction_table

    rows: list[ReproducedRow] = []
    pages: list[str] = []
    for one, found in tables:
        rows += found
        pages.append(format_reproduction_page(one, found, scale, f"{command} {one.name} {options}"))
        if not json:
            out.print(make_reproduction_table(one, found, scale))
    if json:
        out.print_json(data=rows)
    if write_to is not None:
        write_whole(write_to, "\n".join(pages).encode())
    if any(row.state is RowState.FAILED for row in rows):
        raise typer.Exit(1)


def _print_estimates(
    tables: "Sequence[PublishedTable]",
    chosen: frozenset[str] | None,
    scale: "ScaleName",
    device: str,
    *,
    json: bool,
) -> None:
    from memtune.experiments.table_run import estimate_table
    from memtune.reports.experiment_views import make_estimate_table
    from memtune.settings import Settings

    settings = Settings.from_environment()

    def estimate(table: "PublishedTable") -> dict[str, float]:
        return estimate_table(table, scale, settings, rows=chosen, device=device)

    rows = []
    for one, hours in _visit_tables(tables, estimate):
        rows += [{"table": one.name, "row": row, "core_hours": each} for row, each in hours.items()]
        if not json:
            out.print(make_estimate_table(one, hours, scale))
    if json:
        out.print_json(data=rows)


def _show_rows(display: "LineDisplay") -> "RowHooks":
    from memtune.experiments.table_run import RowHooks
    from memtune.reports.live.live_view import format_progress, format_report

    def show(row: "PublishedRow", trial: "TrialConfig", now: "Progress") -> None:
        display.replace(f"{row.name}: {format_progress(now, trial.task.prediction_unit)}")

    def tell(row: "PublishedRow", trial: "TrialConfig", report: "Report") -> None:
        display.add_line(f"{row.name}: {format_report(report, trial.task.prediction_unit)}")

    return RowHooks(show, tell)


def _format_options(
    rows: Sequence[str], scale: str, corpus: str | None, threads: int | None, device: str
) -> str:
    """The options that decide what a table's rows are trained with, as words of a command."""
    options = [("--row", name) for name in rows] + [("--scale", scale)]
    options += [(name, str(value)) for name, value in (("--corpus", corpus), ("--threads", threads)) if value]
    options += [("--device", device)] if device != "cpu" else []
    return shlex.join(word for option in options for word in option)
