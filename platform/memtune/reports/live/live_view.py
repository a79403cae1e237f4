"""A renderable updated in place: on a terminal by rich, in a notebook by IPython, in a pipe not at all.

rich's own live display needs ipywidgets in a notebook. IPython's display handles need nothing more, and work
where a notebook is executed without a browser.
"""

import time
from collections.abc import Callable
from io import StringIO
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live

from memtune.reports.text_console import TextConsole

REFRESH_SECONDS = 0.5
COLUMNS = 110
"""Characters of a line: what fits between the margins of a notebook's page."""
PAGE = '<pre style="white-space: pre; overflow-x: auto; line-height: 1.2">{code}</pre>'


class NotebookDisplay:
    """Shows a renderable in the output of the cell that runs, at most twice a second."""

    def __init__(self, renderable: RenderableType, clock: Callable[[], float] = time.monotonic) -> None:
        self._renderable, self._clock = renderable, clock
        self._handle: Any = None
        self._last_refresh = 0.0

    def start(self) -> None:
        """Show the renderable below what the cell has printed."""
        # Imported here: only a notebook has IPython.
        from IPython.display import HTML, display

        self._handle = display(HTML(render_as_html(self._renderable)), display_id=True)
        self._last_refresh = self._clock()

    def refresh(self, *, is_last: bool = False) -> None:
        """Show the renderable as it is now, unless it was shown within the last half second."""
        from IPython.display import HTML

        if is_last or self._clock() - self._last_refresh >= REFRESH_SECONDS:
            self._handle.update(HTML(render_as_html(self._renderable)))
            self._last_refresh = self._clock()


def render_as_html(renderable: RenderableType) -> str:
    """A renderable as preformatted HTML with its colours; texts are escaped."""
    console = TextConsole(
        record=True, file=StringIO(), width=COLUMNS, force_terminal=False, force_jupyter=False
    )
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=PAGE)


class LiveView:
    """A context manager that shows a renderable as long as it is open, and leaves its last state."""

    def __init__(self, renderable: RenderableType, console: Console) -> None:
        """`renderable` is rendered anew at each refresh, so it may change."""
        self._live = Live(renderable, console=console) if console.is_terminal else None
        self._notebook = NotebookDisplay(renderable) if console.is_jupyter and not console.quiet else None

    def __bool__(self) -> bool:
        """Whether anything is shown in place: false in a pipe, where events are lines."""
        return self._live is not None or self._notebook is not None

    def __enter__(self) -> Self:
        """Show the renderable."""
        if self._live:
            self._live.start(refresh=True)
        if self._notebook:
            self._notebook.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the renderable once more and stop updating it."""
        if self._live:
            self._live.stop()
        if self._notebook:
            self._notebook.refresh(is_last=True)

    def refresh(self) -> None:
        """Show a change in a notebook; a terminal refreshes itself four times a second."""
        if self._notebook:
            self._notebook.refresh()
