"""`memtune compare`, `best`, `report` and `ui`: the records of trials, and where to see them."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtune.cli.shell_completion import complete_study
from memtune.cli.terminal import STUDY_HELP, AsJson, corpus_option, out, print_pages, warn
from memtune.errors import MemtuneError
from memtune.number_format import format_count
from memtune.storage.local_files import write_whole

if TYPE_CHECKING:
    from memtune.results.comparison import Comparison
    from memtune.tracking import CorpusPages, RegisteredVersion, ServedPages

TOP = 20
"""Configurations that a table shows unless it is asked for more."""
MAX_CHARACTERS = 120
"""Longest line of the table in a pipe."""
SIGNAL_SECONDS = 0.5
"""Longest time until a stop signal is noticed that comes just before a wait."""


def compare(
    corpus: Annotated[str, corpus_option("Name of the corpus.")],
    protocol: Annotated[
        str | None, typer.Option(help="One protocol's trials; default: the champion's.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="One study's trials, by its name or id.", autocompletion=complete_study),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Configurations to show; default: 20, with --json and --csv all."),
    ] = None,
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
    # Imported here, as in every command: MLflow and torch load for seconds, which help need not wait for.
    from memtune.results.comparison import compare as compare_trials
    from memtune.results.comparison import compare_tokenisations

    if "," in corpus:
        if study or top or csv or latex:
            raise typer.BadParameter("several corpora go without --study, --top, --csv and --latex")
        several = compare_tokenisations(corpus.split(","), protocol)
        from memtune.reports.trial_tables import make_tokenisation_table

        if json:
            out.print_json(data=several)
        else:
            out.print(make_tokenisation_table(several))
        return
    found = compare_trials(corpus, protocol, study)
    from memtune.reports import trial_tables as tables

    top = top or (found.count_configurations() if json or csv else TOP)
    rows = found.select_top(top)
    for remark in found.remarks:
        warn(remark)
    if json:
        out.print_json(data=rows)
    elif csv:
        typer.echo(tables.format_leaderboard_csv(rows, found.ideal_perplexity), nl=False)
    elif latex:
        table = tables.make_leaderboard_table(rows, found.ideal_perplexity, found.title, is_stacked=False)
        typer.echo(tables.format_latex(table), nl=False)
    else:
        width = out.width if out.is_terminal else min(out.width, MAX_CHARACTERS)
        out.print(tables.make_leaderboard_table(rows, found.ideal_perplexity, found.title), width=width)
        if (count := found.count_configurations()) > top:
            out.print_line(f"{format_count(count - top, 'more configuration')}: --top {count}")
        _print_places(found, study)


def _print_places(found: "Comparison", study: str | None) -> None:
    """Draw the figure of a comparison, and print where it and other trials of the corpus are."""
    from memtune.reports.report_page.result_figures import draw_figures

    for figure in draw_figures(found).values():
        out.print_line(f"figure: {figure.write(found.figure_path)}")
    print_pages(found.pages)
    if found.champion is not None:
        out.print_line(_describe_champion(found.champion))
    out.print(_describe_accesses(found.test_accesses))
    scope = f"--corpus {found.pages.corpus} " + (f"--study {study} " if study else "")
    for protocol in found.other_protocols:
        out.print_line(
            "trials under another protocol do not compare with these: memtune compare "
            f"{scope}--protocol {shlex.quote(protocol)}"
        )


def best(
    corpus: Annotated[str | None, corpus_option("One corpus; default: all.")] = None,
    json: AsJson = False,
) -> None:
    """The champions of each corpus, one for each protocol and task, as the registry holds them.

    Example: memtune best --corpus ptb
    """
    from memtune.results.comparison import find_champions
    from memtune.settings import Settings
    from memtune.tracking import count_test_accesses

    found, uri = find_champions(corpus), Settings.from_environment().tracking_uri
    accesses = {name: count_test_accesses(uri, name) for name in {champion.corpus for champion in found}}
    if json:
        records = [
            champion.model_dump(mode="json") | {"test_accesses": accesses[champion.corpus]}
            for champion in found
        ]
        out.print_json(data=records)
        return
    for champion in found:
        out.print_line(f"{_describe_champion(champion)}; {_describe_accesses(accesses[champion.corpus])}")


def _describe_champion(champion: "RegisteredVersion") -> str:
    origin = f"study {champion.study}" if champion.is_of_study else "from memtune train"
    return (
        f"models:/{champion.corpus}@{champion.alias} is version {champion.version}: {champion.family}, "
        f"{champion.summary}, protocol {champion.protocol}, {origin}"
    )


def _describe_accesses(count: int) -> str:
    """How often the models of a corpus have read a test split, in words."""
    return f"test split read {format_count(count, 'time')} by models of this corpus"


def report(
    study: Annotated[str | None, typer.Argument(help=STUDY_HELP, autocompletion=complete_study)] = None,
    corpus: Annotated[str | None, corpus_option("All studies of this corpus instead.")] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="The HTML file to write; default: report.html.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the charts into this folder, as SVG, PNG and PDF.")
    ] = None,
    json: AsJson = False,
) -> None:
    """A study, or all studies of a corpus, as one HTML file that needs no network.

    The file answers which model is best, by how much, whether the difference is real, at what size and cost,
    and how to repeat it. With --json its values are printed, and a file is written for --out alone.

    Example: memtune report ptb_all_families --out ptb.html --figures figures
    """
    if (study is None) == (corpus is None):
        raise typer.BadParameter("needs a STUDY, or --corpus with the name of a corpus")
    from memtune.results.study.study_report import report_corpus, report_study

    found = report_corpus(corpus or "") if study is None else report_study(study)
    if json:
        out.print_json(data=found)
    target = file or (None if json else Path("report.html"))
    if target is None and figures is None:
        return
    from memtune.reports.report_page.page import describe_page, render_page
    from memtune.reports.report_page.result_figures import draw_charts

    content, messages = describe_page(found), []
    if target is not None:
        page = render_page(found, content).encode()
        write_whole(target, page)
        messages.append(f"report: {target} ({len(page) / 1e6:.1f} MB)")
    if figures is not None:
        drawn = {path.stem for path in draw_charts(content).write(figures)}
        messages.append(f"{format_count(len(drawn), 'chart')} as SVG, PNG and PDF in {figures}")
    for message in () if json else messages:
        out.print_line(message)


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000) -> None:
    """Serve MLflow's pages over the records of your searches, for you alone, on this machine.

    Each corpus has a table of its trials, their charts, and charts of the best trial of each alternative. The
    printed address holds a token, which is new at each start; requests without it are refused.

    Example: memtune ui --port 5001
    """
    from memtune.settings import Settings
    from memtune.tracking import link_corpora, serve_pages

    settings = Settings.from_environment()
    with serve_pages(port, settings) as pages:
        try:
            _print_links(pages, link_corpora(settings.tracking_uri, pages.url))
            # A wait without an end would miss a signal that comes just before it.
            while (code := pages.process.poll()) is None:
                time.sleep(SIGNAL_SECONDS)
        except KeyboardInterrupt:
            return  # also while the links are made, which takes seconds
    raise MemtuneError(f"MLflow's server ended with exit code {code}; its own message is above")


def _print_links(pages: "ServedPages", corpora: "Sequence[CorpusPages]") -> None:
    # A token in a log file would be readable to whoever reads the log.
    add_token = pages.add_token if out.is_terminal else str
    address = pages.address if out.is_terminal else f"the address in {pages.address_file}"
    out.print_line(f"open {address}")
    if corpora and not out.is_terminal:
        out.print("the browser needs that address first; then these open")
    for corpus in corpora:
        answer = f": {corpus.answer}" if corpus.answer else ""
        out.print_line(f"corpus {corpus.corpus}{answer}")
        for title, link in corpus.list_titled_links():
            out.print_line(f"  {title}: {add_token(link)}")
    out.print("MLflow takes some seconds to start; stop it with Ctrl-C")
