"""The reported study of the tests of pages, and its charts."""

import pytest

from memtune.reports.report_page.chart_parts import StudyChart
from memtune.reports.report_page.page import describe_page
from memtune.results.study.study_report import StudyReport
from tests.reported_study import home, report

__all__ = ["home", "report"]


@pytest.fixture(scope="module")
def charts(report: StudyReport) -> dict[str, StudyChart]:
    """The charts of the report by their names."""
    return {chart.name: chart for chart in describe_page(report).charts}
