"""All charts of a study's report, in the order of its page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from memtune.reports.report_page.chart_parts import FamilyScales, StudyChart
from memtune.reports.report_page.curve_charts import draw_learning_curves, draw_progress
from memtune.reports.report_page.leaderboard_charts import draw_seeds
from memtune.reports.report_page.parameter_charts import (
    draw_importance,
    draw_parallel_coordinates,
    draw_slices,
)
from memtune.reports.report_page.trade_off_charts import draw_hypervolume, draw_trade_offs
from memtune.results.study.study_report import CorpusReport, StudyReport

__all__ = ["ChartSection", "list_corpus_sections", "list_families", "list_sections"]


class ChartSection(NamedTuple):
    """Charts under one heading."""

    key: str
    """Of the section's element."""
    title: str
    charts: tuple[StudyChart, ...]


def list_families(report: StudyReport) -> list[str]:
    """The families of the study's trials, by name."""
    return sorted({trial.family for trial in report.detail.trials})


def list_sections(report: StudyReport) -> list[ChartSection]:
    """The sections that have a chart."""
    detail, leaderboard, ideal = report.detail, report.leaderboard, report.ideal
    objective, scales = detail.summary.objective, FamilyScales(list_families(report))
    best = detail.best.number if detail.best else -1
    slices = draw_slices(detail, scales)
    drawn: list[tuple[str, str, Sequence[StudyChart | None]]] = [
        ("seeds", "Leaderboard", [draw_seeds(leaderboard, objective, ideal, best, scales)]),
        (
            "trade-offs",
            "At what size and cost",
            [*draw_trade_offs(leaderboard, objective, ideal, best, scales), draw_hypervolume(detail)],
        ),
        ("curves", "Learning curves", [draw_learning_curves(detail, ideal, scales)]),
        ("progress", "Best so far", list(draw_progress(detail, ideal, scales))),
        (
            "parameters",
            "Parameters",
            [
                draw_parallel_coordinates(detail, scales),
                draw_importance(detail),
                *slices,
            ],
        ),
    ]
    found = [
        ChartSection(key, title, tuple(chart for chart in charts if chart is not None))
        for key, title, charts in drawn
    ]
    return [section for section in found if section.charts]


def list_corpus_sections(report: CorpusReport) -> list[ChartSection]:
    """A section for each label of a corpus with a configuration of full length."""
    scales = FamilyScales(
        family for label in report.labels for study in label.studies for family in list_families(study)
    )
    found = []
    for place, label in enumerate(report.labels):
        ideal = report.ideal if label.objective.has_ideal else None
        drawn = [
            draw_seeds(label.leaderboard, label.objective, ideal, 1, scales),
            *draw_trade_offs(label.leaderboard, label.objective, ideal, 1, scales),
        ]
        charts = tuple(replace(chart, name=f"{chart.name}_{place}") for chart in drawn if chart is not None)
        found.append(ChartSection(f"label-{place}", f"Protocol {label.label}", charts))
    return [section for section in found if section.charts]
