"""A renderable updated in place: on a terminal by rich, in a notebook by IPython, in a pipe not at all.

rich's own live display needs ipywidgets in a notebook. IPython's display handles need nothing more, and work
where a notebook is executed without a browser.
"""

import time
from abc import ABC, abstractmethod
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from memtune.reports.text_console import TextConsole

if TYPE_CHECKING:
    from memtune.training import Progress, Report

REFRESH_SECONDS = 0.5
COLUMNS = 110
"""Characters of a line: what fits between the margins of a notebook's page."""
PAGE = '<pre style="white-space: pre; overflow-x: auto; line-height: 1.2">{code}</pre>'


def render_as_html(renderable: RenderableType) -> str:
    """A renderable as preformatted HTML with its colours; texts are escaped."""
    console = TextConsole(
        record=True, file=StringIO(), width=COLUMNS, force_terminal=False, force_jupyter=False
    )
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=PAGE)


class LiveView(ABC):
    """A renderable that is shown as long as it is open as a context manager, and leaves its last state.

    It is rendered anew at each refresh, so it may change.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(self, console=console) if console.is_terminal else None
        self._is_in_notebook = console.is_jupyter and not console.quiet
        self._handle: Any = None
        """Of the output of a notebook's cell."""
        self._last_refresh = 0.0

    @abstractmethod
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is shown."""

    @property
    def is_shown_in_place(self) -> bool:
        """False in a pipe, where events are lines."""
        return self._live is not None or self._is_in_notebook

    def __enter__(self) -> Self:
        if self._live:
            self._live.start(refresh=True)
        if self._is_in_notebook:
            # Imported here: only a notebook has IPython.
            from IPython.display import HTML, display

            self._handle = display(HTML(render_as_html(self)), display_id=True)
            self._last_refresh = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        self._update_page()

    def refresh(self) -> None:
        """Show a change in a notebook, at most twice a second; a terminal refreshes itself."""
        if time.monotonic() - self._last_refresh >= REFRESH_SECONDS:
            self._update_page()

    def add_line(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _update_page(self) -> None:
        if self._handle is not None:
            from IPython.display import HTML

            self._handle.update(HTML(render_as_html(self)))
            self._last_refresh = time.monotonic()


class LineDisplay(LiveView):
    """One line that is replaced on a terminal and in a notebook. A pipe gets `add_line` alone."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._line = Text()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._line

    def replace(self, line: str) -> None:
        """Show a line in place of the one before."""
        self._line = Text(line)
        self.refresh()


def format_progress(now: "Progress", unit: str) -> str:
    """The state of a training between two reports in a line."""
    speed = f"{now.tokens_per_second:,.0f} {unit}/s"
    return f"{now.tokens:,} {unit}, {speed}, loss {now.loss:.3f}, {now.seconds_left:,.0f} s left"


def format_report(report: "Report", unit: str) -> str:
    """One line for a report: perplexities, or losses and accuracy for a classifier."""
    words = unit == "tokens"
    figures = [("train", report.train_perplexity if words else report.train_loss)]
    figures += [("validation", report.valid_perplexity if words else report.valid_loss)]
    name = "perplexity" if words else "loss"
    parts = [f"{split} {name} {value:.3f}" for split, value in figures if value is not None]
    parts += ["diverged"] if report.valid_loss is None else []
    parts += [] if report.valid_accuracy is None else [f"accuracy {100 * report.valid_accuracy:.2f} %"]
    parts.append(f"{report.tokens_per_second:,.0f} {unit}/s")
    return f"epoch {report.epoch:.2f}, {report.tokens:,} {unit}: {', '.join(parts)}"
