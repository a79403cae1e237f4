"""Charts as SVG, PNG and PDF files, with title, legend and caption and without interaction."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import vl_convert

from memtune.errors import StorageError
from memtune.reports.report_page.chart_parts import MUTED, StudyChart, make_config, resolve_colours

WIDTH, WIDE_WIDTH = 420, 600
"""Pixels, without axes and legend: 72 to the inch, as in PDF."""
CHARACTER_PIXELS = 5.0
"""Of a letter of the caption, on average."""
PADDING = 24
"""Pixels around a chart: another program may draw the same letters wider."""
PNG_SCALE = 2.0
SUFFIXES = (".svg", ".png", ".pdf")


def draw_svg(chart: StudyChart, subject: str) -> str:
    """A chart as SVG; `subject`, the name of a study or a corpus, starts its title."""
    width = WIDE_WIDTH if chart.is_wide else WIDTH
    title = {
        "text": f"{subject}: {chart.title[0].lower()}{chart.title[1:]}",
        "subtitle": textwrap.wrap(chart.caption, round(width / CHARACTER_PIXELS)),
        "subtitleColor": MUTED,
        "anchor": "start",
        "offset": PADDING,
    }
    config = make_config(has_legend=True)
    spec = {**chart.to_spec(width), "title": title, "padding": PADDING, "config": config}
    return str(vl_convert.vegalite_to_svg(resolve_colours(spec)))


def write_figure(chart: StudyChart, subject: str, path: Path) -> None:
    """Write a chart in the format of the path's suffix: .svg, .png or .pdf.

    Raises StorageError where it cannot be written.
    """
    write_picture(draw_svg(chart, subject), path)


def write_figures(charts: Sequence[StudyChart], subject: str, folder: Path) -> list[Path]:
    """Write each chart as SVG, PNG and PDF into a folder, which is made; returns the paths.

    Raises StorageError where one cannot be written.
    """
    written = []
    for chart in charts:
        picture = draw_svg(chart, subject)
        for suffix in SUFFIXES:
            path = folder / f"{chart.name}{suffix}"
            write_picture(picture, path)
            written.append(path)
    return written


def write_picture(picture: str, path: Path) -> None:
    """Write a picture, given as SVG, in the format of the path's suffix.

    Raises StorageError where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_convert(picture, path.suffix))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}; choose another place"
        ) from None


def _convert(picture: str, suffix: str) -> bytes:
    if suffix == ".png":
        return bytes(vl_convert.svg_to_png(picture, scale=PNG_SCALE))
    return bytes(vl_convert.svg_to_pdf(picture)) if suffix == ".pdf" else picture.encode()
