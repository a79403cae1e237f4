"""The figures of a result for a program: shown in a notebook, or written as SVG, PNG and PDF files."""

import base64
import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memtune.arguments import check_type
from memtune.errors import ConfigurationError, did_you_mean
from memtune.reports.inspection.figure_files import draw_matplotlib_svg
from memtune.reports.scaling_report import make_scaling_figure
from memtune.results.comparison import Comparison
from memtune.results.study.scaling_laws import ScalingReport
from memtune.results.study.study_detail import SearchResult, StudyDetail
from memtune.settings import Settings


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
        # Imported here, as below: Altair and vl-convert take a second.
        from memtune.reports.report_page.chart_files import SUFFIXES, write_picture

        file = Path(path)
        if file.suffix not in SUFFIXES:
            raise ConfigurationError(f'no figure format "{file.suffix}" ({file}); use {", ".join(SUFFIXES)}')
        write_picture(self.svg, file)
        return file

    def __repr__(self) -> str:
        """The figure's name and title."""
        return f"Figure({self.name}: {self.title})"

    def _repr_html_(self) -> str:
        # As an image: no script of an image runs, and the ids in one figure do not meet those of another.
        data = base64.b64encode(self.svg.encode()).decode()
        title = html.escape(self.title, quote=True)
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{title}" style="max-width: 100%">'


class Figures(Mapping[str, Figure]):
    """The figures of a result by name."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = {figure.name: figure for figure in figures}

    def __getitem__(self, name: str) -> Figure:
        """A figure by its name. Raises KeyError that suggests the nearest name."""
        if name not in self._figures:
            raise KeyError(f'no figure "{name}"; {did_you_mean(name, self._figures)}')
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of a report."""
        return iter(self._figures)

    def __len__(self) -> int:
        """The number of figures."""
        return len(self._figures)

    def write(self, folder: str | Path) -> list[Path]:
        """Write each figure as SVG, PNG and PDF into a folder, which is made; returns the paths."""
        from memtune.reports.report_page.chart_files import SUFFIXES

        return [
            figure.write(Path(folder) / f"{name}{suffix}")
            for name, figure in self.items()
            for suffix in SUFFIXES
        ]

    def __repr__(self) -> str:
        """The names."""
        return f"Figures({', '.join(self)})"

    def _repr_html_(self) -> str:
        return "".join(f"<p>{figure._repr_html_()}</p>" for figure in self.values())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)


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
        svg = draw_matplotlib_svg(make_scaling_figure(result))
        return Figures([Figure("scaling", "Validation perplexity by compute", svg)])
    if isinstance(result, Comparison):
        return Figures(_draw_comparison(result))
    if isinstance(result, SearchResult):
        return Figures(_draw_study(result.id, result.resolved.settings))
    study = result.summary.id if isinstance(result, StudyDetail) else result
    return Figures(_draw_study(study, Settings.resolve(settings)))


def _draw_study(study: str, settings: Settings) -> Iterator[Figure]:
    from memtune.reports.report_page.chart_files import draw_svg
    from memtune.reports.report_page.page_content import describe_page
    from memtune.results.study.study_report import report_study

    content = describe_page(report_study(study, settings))
    for chart in content.charts:
        yield Figure(chart.name, chart.title, draw_svg(chart, content.subject))


def _draw_comparison(comparison: Comparison) -> Iterator[Figure]:
    from memtune.reports.report_page.chart_files import draw_svg
    from memtune.reports.report_page.trade_off_charts import draw_trials

    if chart := draw_trials(comparison.rows, comparison.ideal_perplexity):
        yield Figure(chart.name, chart.title, draw_svg(chart, comparison.pages.corpus))
