"""`memtune report`: a study or a corpus as one HTML file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memtune.cli.shell_completion import complete_corpus, complete_study
from memtune.cli.terminal import AsJson, out
from memtune.errors import ConfigurationError

if TYPE_CHECKING:
    from memtune.results.study.study_report import CorpusReport, StudyReport

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
