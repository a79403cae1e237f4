"""The report of a study and its charts as files of the study's run in the tracking store."""

from memtune.reports.report_page.chart_files import draw_svg
from memtune.reports.report_page.page import render_page
from memtune.reports.report_page.page_content import describe_page
from memtune.results.reporting.study_report import report_study
from memtune.settings import Settings

__all__ = ["REPORT_FILE", "draw_study_artifacts"]

REPORT_FILE = "report.html"
FIGURES_FOLDER = "figures"


def draw_study_artifacts(study: str, settings: Settings) -> dict[str, str]:
    """The report of a study, by its id, and each of its charts as SVG, by the name of the file."""
    report = report_study(study, settings)
    figures = {
        f"{FIGURES_FOLDER}/{chart.name}.svg": draw_svg(chart) for chart in describe_page(report).charts
    }
    return {REPORT_FILE: render_page(report), **figures}
