"""Results as data frames of pandas, and as tables of a notebook's page. pandas is imported on first use."""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

MAX_ROWS = 20
"""Of a table on a page; the data frame has all."""


class ResultList(list[T]):
    """A list of results that is also a data frame, and a table in a notebook."""

    def __init__(self, results: Iterable[T], title: str, describe: Callable[[T], Mapping[str, Any]]) -> None:
        """`describe` returns the columns of a result."""
        super().__init__(results)
        self._title, self._describe = title, describe

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each result."""
        return make_frame(self._describe(result) for result in self)

    def _repr_html_(self) -> str:
        return render_table(self._title, self.to_frame())


def make_frame(records: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Any:
    """A pandas data frame with a row for each record; `columns` for a frame that may have no rows.

    A column in which no row has a value holds NaN, as in a CSV file that pandas reads, and not None.
    """
    # Imported here: pandas takes half a second, and the terminal does not need it.
    import pandas

    frame = pandas.DataFrame(list(records), columns=columns)
    missing = frame.columns[frame.isna().all()] if len(frame) else ()
    return frame.astype({name: float for name in missing if frame[name].dtype == object})


def render_table(title: str, frame: Any) -> str:
    """The first rows of a data frame as HTML below a title; all texts are escaped."""
    hidden = len(frame) - MAX_ROWS
    rows = "row" if hidden == 1 else "rows"
    note = f"<p>{hidden:,} more {rows}: <code>to_frame()</code> has them.</p>" if hidden > 0 else ""
    table = frame.head(MAX_ROWS).to_html(
        index=False, escape=True, border=0, na_rep="", float_format=_format_number
    )
    return f"<p>{html.escape(title)}</p>{table if len(frame) else ''}{note}"


def _format_number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
