"""A renderable updated in place: on a terminal by rich, in a notebook by IPython, in a pipe not at all."""

from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

from memtune.reports.live.notebook_display import NotebookDisplay

__all__ = ["LiveView"]


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
