"""`memtune study ...` and `memtune schema`: files of studies, and the studies of a home."""

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from memtune.cli.search_commands import StudyFile
from memtune.cli.shell_completion import complete_packaged_study
from memtune.cli.terminal import AsJson, StudyName, Yes, figure_option, out
from memtune.library import FileKind, copy_packaged, find_packaged, list_packaged, read_question
from memtune.number_format import format_count

if TYPE_CHECKING:
    from memtune.results.study.study_detail import StudyDetail
    from memtune.results.study.study_view import StudyView

app = typer.Typer(
    help="Studies: new, list, show, cost, remove; ask and tell for programs.", no_args_is_help=True
)


@app.command()
def new(
    name: Annotated[
        str | None,
        typer.Argument(help="A packaged study; default: list them.", autocompletion=complete_packaged_study),
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(help="The new file, or its folder; default: NAME.toml here.")
    ] = None,
) -> None:
    """Copy a packaged study into a file of your own, to change it.

    Example: memtune study new demo my_study.toml
    """
    if name is None:
        for known in list_packaged(FileKind.STUDY):
            question = read_question(find_packaged(FileKind.STUDY, known))
            out.print_line(f"{known}: {question}")
        return
    copy = copy_packaged(FileKind.STUDY, name, path)
    out.print_line(f"wrote {copy}; check it with: memtune search {copy} --dry-run")


@app.command("list")
def list_all(json: AsJson = False) -> None:
    """The studies of this home, the latest first.

    Example: memtune study list
    """
    # Imported here, as in every command: torch and Optuna load for seconds, which help need not wait for.
    from memtune.reports.study_tables import make_study_list_table
    from memtune.results.study.study_catalogue import list_studies

    found = list_studies()
    if json:
        out.print_json(data=found)
    elif not found:
        out.print("no study yet; run: memtune search STUDY.toml")
    else:
        out.print(make_study_list_table(found))


@app.command()
def show(
    study: StudyName,
    why: Annotated[
        int | None, typer.Option(min=0, help="Explain why this trial was stopped, paused or failed.")
    ] = None,
    config: Annotated[
        int | None, typer.Option(min=0, help="Print this trial as a file for `memtune train`.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write the charts of `memtune report` into this folder.")
    ] = None,
    json: AsJson = False,
) -> None:
    """A study: best per alternative, progress, importance of parameters, front, what was stopped and why.

    Example: memtune study show ptb_all_families --figures figures

    Example: memtune study show ptb_all_families --config 7 > trial.toml
    """
    from memtune.results.study.study_detail import describe_study, explain_end, format_trial_file
    from memtune.results.study.study_view import open_view

    if config is not None:
        typer.echo(format_trial_file(study, config), nl=False)
        return
    if why is not None:
        end, compared = explain_end(study, why)
        if json:
            out.print_json(data={"end": end, "compared": compared})
            return
        from memtune.reports.study_tables import make_comparison_table

        out.print_line(f"trial {why}, {end.family}, {end.state.value}: {end.reason}")
        if compared:
            out.print(make_comparison_table(compared, end))
        return
    view = open_view(study)
    detail = describe_study(view)
    if json:
        out.print_json(data=detail)
    else:
        _print_detail(view, detail)
    if figures is not None:
        from memtune.reports.report_page.result_figures import draw_figures

        drawn = draw_figures(detail)
        drawn.write(figures)
        if not json:
            out.print_line(f"figures in {figures}: {', '.join(drawn) or 'none'}")


def _print_detail(view: "StudyView", detail: "StudyDetail") -> None:
    from memtune.reports import study_tables as tables
    from memtune.reports.trial_tables import make_alternatives_table

    summary = detail.summary
    out.print_line(f"study {summary.id}: {summary.question}")
    out.print(
        f"corpus {summary.corpus or 'unknown'}, trials: {summary.counts or 'none'}; "
        f"{tables.describe_spending(summary)}"
    )
    out.print_line(tables.explain_verdict(detail))
    if prior := tables.describe_prior(detail):
        out.print_line(prior)
    if view.ranking:
        out.print(make_alternatives_table(view, "best of each alternative"))
    for make_table in (
        tables.make_progress_table,
        tables.make_importance_table,
        tables.make_front_table,
        tables.make_ended_table,
    ):
        table = make_table(detail)
        if table.row_count:
            out.print(table)
    if not detail.importance:
        out.print_line(tables.NO_IMPORTANCE)


@app.command()
def cost(study: StudyName, json: AsJson = False) -> None:
    """What a study has spent, by state and family, and what early stopping has saved.

    Example: memtune study cost ptb_all_families
    """
    from memtune.reports.study_tables import make_cost_table
    from memtune.results.study.study_catalogue import study_cost

    found = study_cost(study)
    if json:
        out.print_json(data=found)
        return
    out.print(make_cost_table(found))
    out.print(f"drivers have run it for {found.seconds:,.0f} s")
    out.print(
        f"early stopping saved {found.saved_tokens:,} of {found.full_tokens:,} {found.unit} at full length "
        f"({found.saved_share:.1%})",
    )


@app.command()
def scaling(
    study: StudyName,
    factor: Annotated[float, typer.Option(min=1, max=1000, help="Of the study's compute.")] = 10.0,
    figure: Annotated[
        Path | None, figure_option("--figure", "Draw it into this file: .svg, .png or .pdf.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Which family wins at a larger budget: loss against size and data of a study over several sizes.

    Example: memtune study scaling grammar_sizes --factor 10 --figure scaling.svg
    """
    from memtune.reports.experiment_views import describe_extrapolation, draw_scaling, make_scaling_table
    from memtune.reports.figure_files import save_figure
    from memtune.results.study.scaling_laws import extrapolate_study

    report = extrapolate_study(study, factor)
    if json:
        out.print_json(data=report)
    else:
        out.print(make_scaling_table(report))
        out.print_line(describe_extrapolation(report))
    if figure is not None:
        save_figure(draw_scaling(report), figure)


@app.command()
def remove(
    study: StudyName,
    runs: Annotated[bool, typer.Option("--runs", help="Also delete the study's runs in MLflow.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a study's checkpoints and trials. MLflow's runs and registered models stay.

    Example: memtune study remove ptb_all_families-1a2b3c4d --runs
    """
    from memtune.results.study.study_catalogue import remove_study
    from memtune.results.study.study_view import open_view
    from memtune.storage.folder import Folder

    found = open_view(study)
    size = Folder.open(f"{found.settings.studies_folder}/{found.id}").measure_bytes()
    trials = format_count(len(found.stored.outcomes), "trial")
    content = f"{trials} and {size / 2**20:,.1f} MiB of checkpoints"
    if not yes:
        with_runs = ", and its runs in MLflow" if runs else ""
        typer.confirm(f"delete study {found.id} with {content}{with_runs}?", abort=True)
    removed = remove_study(found.id, with_runs=runs)
    deleted = "" if removed is None else f", {format_count(removed, 'run')} in MLflow"
    out.print_line(f"deleted study {found.id}: {content}{deleted}")


@app.command()
def ask(
    study: StudyFile,
    configuration: Annotated[
        Path | None, typer.Option(help="Fields of the trial as TOML; the sampler draws the others.")
    ] = None,
    open_trials: Annotated[
        bool, typer.Option("--open", help="List the trials that wait for values; start none.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Start the next trial of a study, which another program trains.

    Example: memtune study ask jobs/studies/demo.toml --json
    """
    from memtune.experiments import ask_tell
    from memtune.studies.definition.toml_files import read_toml

    given = None if configuration is None else read_toml(configuration)
    found = ask_tell.list_open_trials(study) if open_trials else [ask_tell.ask(study, given)]
    if json:
        out.print_json(data=found if open_trials else found[0])
        return
    for trial in found:
        out.print_line(f"trial {trial.number}: {trial.configuration}")


@app.command()
def tell(
    study: StudyFile,
    number: Annotated[int, typer.Option(min=0, help="The trial's number.")],
    tokens: Annotated[int, typer.Option(min=0, help="Predicted tokens trained on.")] = 0,
    value: Annotated[
        float | None, typer.Option(help="Validation: nats per token, or the share of wrong answers.")
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="The trial has ended.")] = False,
    failed: Annotated[str | None, typer.Option(help="The trial has failed for this reason.")] = None,
    json: AsJson = False,
) -> None:
    """Report a value of a trial; the study may stop the trial.

    Example: memtune study tell jobs/studies/demo.toml --number 0 --tokens 400000 --value 3.2
    """
    from memtune.experiments import ask_tell

    if value is None and failed is None:
        raise typer.BadParameter("needs --value, or --failed with the reason")
    if complete and failed is not None:
        raise typer.BadParameter("a trial has ended or failed; leave out --complete or --failed")
    told = ask_tell.tell(study, number, tokens, value, is_complete=complete, error=failed)
    if json:
        out.print_json(data=told)
        return
    reason = "" if told.end is None else f": {told.end}"
    out.print_line(f"trial {told.number} is {told.state.value}{reason}")


def schema(
    kind: Annotated[Literal["study", "trial", "space", "paper"], typer.Argument(help="The kind of file.")],
) -> None:
    """Print the JSON Schema of a kind of file, with which editors complete and check its fields.

    Example: memtune schema study > study.schema.json
    """
    from memtune.reports.json_schemas import make_schema

    typer.echo(dumps(make_schema(kind), indent=2, ensure_ascii=False))
