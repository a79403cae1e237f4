"""`memtune compare`, `best`, `report` and `ui`: the records of trials, and where to see them."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtune.cli.shell_completion import complete_corpus, complete_study
from memtune.cli.terminal import AsJson, out, print_pages
from memtune.errors import ConfigurationError, MemtuneError
from memtune.number_format import format_count

if TYPE_CHECKING:
    from memtune.results.study.study_report import CorpusReport, StudyReport
    from memtune.tracking import CorpusPages, ServedPages


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
    from memtune.results.comparison import compare_tokenisations

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


DEFAULT_FILE = Path("report.html")


def report(
    study: Annotated[
        str | None,
        typer.Argument(
            help="A study's id, or its name where that names one study only.", autocompletion=complete_study
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="All studies of this corpus instead.", autocompletion=complete_corpus),
    ] = None,
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
    found = _read(study, corpus)
    if json:
        out.print_json(data=found)
    target = file or (None if json else DEFAULT_FILE)
    if target is not None or figures is not None:
        _write(found, target, figures, is_quiet=json)


def _read(study: str | None, corpus: str | None) -> "StudyReport | CorpusReport":
    # Imported here: torch, Optuna and MLflow load for seconds, which --help need not wait for.
    from memtune.results.study.study_report import report_corpus, report_study

    return report_corpus(corpus or "") if study is None else report_study(study)


def _replace_file(target: Path, page: str) -> None:
    """Write a page whole or not at all: a disk that fills leaves the report that is there."""
    is_device = target.exists() and not target.is_file()  # such as /dev/stdout
    place = target if is_device else target.with_name(f"{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(page, encoding="utf-8")
        place.replace(target)
    except OSError as error:
        if not is_device:
            place.unlink(missing_ok=True)
        raise ConfigurationError(
            f"{target} cannot be written: {error.strerror or error}; choose another place with --out"
        ) from None


def _write(
    found: "StudyReport | CorpusReport", target: Path | None, figures: Path | None, *, is_quiet: bool
) -> None:
    """Write the page and the charts, and name them unless JSON is printed."""
    from memtune.reports.report_page.chart_files import write_figures
    from memtune.reports.report_page.page import render_page
    from memtune.reports.report_page.page_content import describe_page

    messages = []
    if target is not None:
        page = render_page(found)
        _replace_file(target, page)
        messages.append(f"report: {target} ({len(page.encode()) / 1e6:.1f} MB)")
    if figures is not None:
        content = describe_page(found)
        written = write_figures(content.charts, content.subject, figures)
        messages.append(f"figures in {figures}: {', '.join(path.name for path in written) or 'none'}")
    if not is_quiet:
        for message in messages:
            out.print(message, soft_wrap=True)


def ui(port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000) -> None:
    """Serve MLflow's pages over the records of your searches, for you alone, on this machine.

    Each corpus has a table of its trials, their charts, and charts of the best trial of each family. The
    printed address holds a token, which is new at each start; requests without it are refused.

    Example: memtune ui --port 5001
    """
    # Imported here: pydantic and MLflow take up to a second, and help needs neither.
    from memtune.settings import Settings
    from memtune.tracking import link_corpora, serve_pages

    settings = Settings.from_environment()
    with serve_pages(port, settings) as pages:
        try:
            _print_links(pages, link_corpora(settings.tracking_uri, pages.url))
            code = pages.process.wait()
        except KeyboardInterrupt:
            return  # also while the links are made, which takes seconds
    raise MemtuneError(f"MLflow's server ended with exit code {code}; its own message is above")


def _print_links(pages: "ServedPages", corpora: "Sequence[CorpusPages]") -> None:
    # A token in a log file would be readable to whoever reads the log.
    add_token = pages.add_token if out.is_terminal else str
    address = pages.address if out.is_terminal else f"the address in {pages.address_file}"
    out.print(f"open {address}", soft_wrap=True)
    if corpora and not out.is_terminal:
        out.print("the browser needs that address first; then these open")
    for corpus in corpora:
        answer = f": {corpus.answer}" if corpus.answer else ""
        out.print(f"corpus {corpus.corpus}{answer}", soft_wrap=True)
        for title, link in corpus.list_titled_links():
            out.print(f"  {title}: {add_token(link)}", soft_wrap=True)
    out.print("MLflow takes some seconds to start; stop it with Ctrl-C")
