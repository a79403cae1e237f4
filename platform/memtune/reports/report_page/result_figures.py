"""The figures of a result as files and in a notebook, with title, legend and caption in them."""

import base64
import html
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import vl_convert

from memtune.arguments import check_type
from memtune.errors import did_you_mean
from memtune.reports.experiment_views import draw_scaling
from memtune.reports.figure_files import SUFFIXES, check_suffix, render_figure
from memtune.reports.report_page.chart_parts import MUTED, StudyChart, make_config, resolve_colours
from memtune.reports.report_page.page import PageContent, describe_page
from memtune.reports.report_page.trade_off_charts import draw_trials
from memtune.results.comparison import Comparison
from memtune.results.study.scaling_laws import ScalingReport
from memtune.results.study.study_detail import SearchResult, StudyDetail
from memtune.results.study.study_report import report_study
from memtune.settings import Settings
from memtune.storage.local_files import write_whole

WIDTH, WIDE_WIDTH = 420, 600
"""Pixels, without axes and legend: 72 to the inch, as in PDF."""
CHARACTER_PIXELS = 5.0
"""Of a letter of the caption, on average."""
PADDING = 24
"""Pixels around a chart: another program may draw the same letters wider."""
PNG_SCALE = 2.0


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure as SVG, with its title and its caption in it."""

    name: str
    title: str
    svg: str

    def write(self, path: str | Path) -> Path:
        """Write the figure in the format of the path's suffix, .svg, .png or .pdf; returns the path.

        Raises ConfigurationError for another suffix, and StorageError where the file cannot be written.
        """
        file, content = Path(path), self.svg.encode()
        suffix = check_suffix(file)
        if suffix == ".png":
            content = bytes(vl_convert.svg_to_png(self.svg, scale=PNG_SCALE))
        elif suffix == ".pdf":
            content = bytes(vl_convert.svg_to_pdf(self.svg))
        write_whole(file, content)
        return file

    def __repr__(self) -> str:
        return f"Figure({self.name}: {self.title})"

    def _repr_html_(self) -> str:
        # As an image: no script of an image runs, and the ids in one figure do not meet those of another.
        data = base64.b64encode(self.svg.encode()).decode()
        title = html.escape(self.title, quote=True)
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{title}" style="max-width: 100%">'


class Figures(dict[str, Figure]):
    """The figures of a result by name, in the order of a report."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        super().__init__({figure.name: figure for figure in figures})

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f'no figure "{name}"; {did_you_mean(name, self)}')

    def write(self, folder: str | Path) -> list[Path]:
        """Write each figure as SVG, PNG and PDF into a folder, which is made; returns the paths."""
        return [
            figure.write(Path(folder) / f"{name}{suffix}")
            for name, figure in self.items()
            for suffix in SUFFIXES
        ]

    def __repr__(self) -> str:
        return f"Figures({', '.join(self)})"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{figure._repr_html_()}</p>" for figure in self.values())


def draw_figures(
    result: str | SearchResult | StudyDetail | Comparison | ScalingReport, settings: Settings | None = None
) -> Figures:
    """The figures of a study, given by its id or name, or of a result.

    Results are those of run_search, show_study, compare and extrapolate_study. The figures are those of
    `memtune report`, `memtune compare` and `memtune study scaling`. `settings` are those of the study's home;
    a SearchResult has its own.
    """
    expected = "the name of a study, or a result of run_search, show_study, compare or extrapolate_study"
    check_type("result", result, (str, SearchResult, StudyDetail, Comparison, ScalingReport), expected)
    if isinstance(result, ScalingReport):
        svg = render_figure(draw_scaling(result), ".svg").decode()
        return Figures([Figure("scaling", "Validation perplexity by compute", svg)])
    if isinstance(result, Comparison):
        chart = draw_trials(result.rows, result.ideal_perplexity)
        return Figures([draw_chart(chart, result.pages.corpus)] if chart else [])
    if isinstance(result, SearchResult):
        return draw_charts(describe_page(report_study(result.id, result.resolved.settings)))
    study = result.summary.id if isinstance(result, StudyDetail) else result
    return draw_charts(describe_page(report_study(study, settings)))


def draw_charts(content: PageContent) -> Figures:
    """The charts of a page as figures."""
    return Figures(draw_chart(chart, content.subject) for chart in content.charts)


def draw_chart(chart: StudyChart, subject: str) -> Figure:
    """A chart as a figure; `subject`, the name of a study or a corpus, starts its title."""
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
    return Figure(chart.name, chart.title, str(vl_convert.vegalite_to_svg(resolve_colours(spec))))
