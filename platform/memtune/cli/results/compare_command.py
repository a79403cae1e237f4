"""`memtune compare` and `memtune best`: the trials of a corpus, and its champions."""

import shlex
from typing import Annotated

import typer

from memtune.cli.shell_completion import complete_corpus, complete_study
from memtune.cli.terminal import AsJson, out, print_pages
from memtune.number_format import format_count

MAX_CHARACTERS = 120
"""Longest line of the table in a pipe."""
NARROW_CHARACTERS = 80
"""Below this width, the numbers of a trial take three columns; more would leave no room for its name."""


def compare(
    corpus: Annotated[str, typer.Option(help="Name of the corpus.", autocompletion=complete_corpus)],
    protocol: Annotated[
        str | None, typer.Option(help="One protocol's trials; default: the champion's.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="One study's trials, by its name or id.", autocompletion=complete_study),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20,
    json: AsJson = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, with a column for every recorded parameter.")
    ] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print the table for LaTeX, with the lines of booktabs.")
    ] = False,
) -> None:
    """The trials of a corpus, best first, as a table, a figure and a link into MLflow.

    Several corpora of one text in different tokens, with commas between their names, are compared by the bits
    per byte of their best trials.

    Example: memtune compare --corpus ptb --study ptb_recurrent_memory

    Example: memtune compare --corpus ptb_characters,ptb_bpe
    """
    if json + csv + latex > 1:
        raise typer.BadParameter("choose one of --json, --csv and --latex")
    if "," in corpus:
        _compare_tokenisations(corpus.split(","), protocol, json)
        return
    # Imported here: MLflow and torch load for seconds, which --help and refused options need not wait for.
    from memtune.results.comparison import compare as compare_trials
    from memtune.settings import Settings

    settings = Settings.from_environment()
    found = compare_trials(corpus, protocol, study, settings)
    rows = found.rows[:top]
    if json:
        out.print_json(data=rows)
        return
    if csv:
        from memtune.reports.trial_tables import format_leaderboard_csv

        typer.echo(format_leaderboard_csv(rows, found.ideal_perplexity), nl=False)
        return
    from memtune.reports.report_page.chart_files import write_figure
    from memtune.reports.report_page.trade_off_charts import draw_trials
    from memtune.reports.trial_tables import format_latex, make_leaderboard_table

    title = f"{corpus}, protocol {found.protocol}, {format_count(len(found.rows), 'trial')}"
    if latex:
        table = make_leaderboard_table(rows, found.ideal_perplexity, title, is_stacked=False)
        typer.echo(format_latex(table), nl=False)
        return
    width = out.width if out.is_terminal else min(out.width, MAX_CHARACTERS)
    is_narrow = width < NARROW_CHARACTERS
    out.print(make_leaderboard_table(rows, found.ideal_perplexity, title, is_narrow=is_narrow), width=width)
    if chart := draw_trials(found.rows, found.ideal_perplexity):
        write_figure(chart, corpus, found.figure_path)
        out.print(f"figure: {found.figure_path}", soft_wrap=True)
    print_pages(found.pages, settings.tracking_uri)
    out.print(_describe_accesses(found.test_accesses))
    for other in found.other_protocols:
        _print_compare_hint(corpus, study, other)


def _compare_tokenisations(corpora: list[str], protocol: str | None, json: bool) -> None:
    """The best trial of each corpus, by bits per byte of the one text that they hold."""
    from memtune.results.tokenisation_comparison import compare_tokenisations

    rows = compare_tokenisations(corpora, protocol)
    if json:
        out.print_json(data=rows)
        return
    from memtune.reports.trial_tables import make_tokenisation_table

    out.print(make_tokenisation_table(rows))


def _print_compare_hint(corpus: str, study: str | None, protocol: str) -> None:
    options = (
        f"--corpus {corpus} " + (f"--study {study} " if study else "") + f"--protocol {shlex.quote(protocol)}"
    )
    out.print(
        f"trials under another protocol do not compare with these: memtune compare {options}",
        soft_wrap=True,
    )


def best(
    corpus: Annotated[
        str | None, typer.Option(help="One corpus; default: all.", autocompletion=complete_corpus)
    ] = None,
    json: AsJson = False,
) -> None:
    """The champions of each corpus, one for each protocol and task, as the registry holds them.

    Example: memtune best --corpus ptb
    """
    from memtune.results.comparison import count_accesses, find_champions

    found = find_champions(corpus)
    accesses = count_accesses(found)
    if json:
        records = [
            champion.model_dump(mode="json") | {"test_accesses": accesses[champion.corpus]}
            for champion in found
        ]
        out.print_json(data=records)
        return
    for champion in found:
        out.print(
            f"models:/{champion.corpus}@{champion.alias} is version {champion.version}: {champion.family}, "
            f"{champion.summary}, protocol {champion.protocol}, {_describe_origin(champion.study)}; "
            f"{_describe_accesses(accesses[champion.corpus])}",
            soft_wrap=True,
        )


def _describe_accesses(count: int) -> str:
    """How often the models of a corpus have read a test split, in words."""
    return f"test split read {format_count(count, 'time')} by models of this corpus"


def _describe_origin(study: str) -> str:
    from memtune.tracking import NO_STUDY

    return "from memtune train" if study == NO_STUDY else f"study {study}"
