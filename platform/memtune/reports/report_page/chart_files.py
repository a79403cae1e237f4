"""The charts of a report as SVG and PDF files for papers, with legends and without interaction."""

from collections.abc import Sequence
from pathlib import Path

import vl_convert

from memtune.reports.report_page.chart_parts import StudyChart, make_config, resolve_colours

__all__ = ["draw_svg", "write_figures"]

WIDTH, WIDE_WIDTH = 360, 560
"""Pixels, without axes and legend: 72 to the inch, as in PDF."""


def draw_svg(chart: StudyChart) -> str:
    """A chart as SVG."""
    spec = chart.to_spec(WIDE_WIDTH if chart.is_wide else WIDTH)
    return str(vl_convert.vegalite_to_svg(resolve_colours({**spec, "config": make_config(has_legend=True)})))


def write_figures(charts: Sequence[StudyChart], folder: Path) -> list[Path]:
    """Write each chart as SVG and PDF into a folder, which is made; returns the paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts:
        picture = draw_svg(chart)
        for suffix, content in (("svg", picture.encode()), ("pdf", vl_convert.svg_to_pdf(picture))):
            path = folder / f"{chart.name}.{suffix}"
            path.write_bytes(content)
            written.append(path)
    return written
