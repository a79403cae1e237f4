"""The console that memtune prints to, where users' texts appear without markup, and its tables."""

import json as json_module
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import zip_longest
from typing import Any, Literal

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text


def make_json_data(data: Any) -> Any:
    """The data as JSON has them: mappings for pydantic's values, None for numbers that are not finite.

    >>> make_json_data({"perplexity": float("inf"), "tokens": [10, float("nan")]})
    {'perplexity': None, 'tokens': [10, None]}
    """
    # Imported here: help needs no pydantic.
    from pydantic_core import to_jsonable_python

    # A value keeps its infinities, whatever the mode; as mappings they have none.
    return to_jsonable_python(to_jsonable_python(data), inf_nan_mode="null")


CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 control characters except tab and newline: a terminal would act on them."""
C1_CHARACTERS = re.compile(r"[\x80-\x9f]")
"""The control characters that JSON does not escape."""
UNBOUNDED_CHARACTERS = 10_000
"""Width of an output that is not a terminal: a row of a table stays on its line."""

NARROW_CHARACTERS = 80
"""On a narrower output, a column of a table may have room for a part of a word only."""
WITHOUT_FRAME: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False}
"""Options of a table that has a line below its header only."""


def make_table(
    title: str,
    columns: Iterable[str],
    rows: Iterable[Iterable[RenderableType]] = (),
    *,
    overflow: Literal["fold", "ellipsis"] = "fold",
    **options: Any,
) -> Table:
    """A table, with its title and its caption on the left unless the options of rich's Table say otherwise.

    A column whose name begins with ">" holds numbers: it has the rest as its name and is aligned on the
    right.
    """
    table = Table(title=title or None, **{"title_justify": "left", "caption_justify": "left", **options})
    for name in columns:
        justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify, overflow=overflow)
    for row in rows:
        table.add_row(*row)
    return table


class TextConsole(Console):
    """A rich console that prints plain strings literally, and tables without lines outside a terminal.

    Questions, names and words of corpora come from users and files. rich would read "[red]" in them as a
    style, ":smile:" as an emoji and fail on "[/b]"; a terminal would execute escape sequences. Styles are
    given as `rich.text.Text` or by the `style` argument.

    A file or a pipe gets rows of columns that are separated by spaces, as wide as they are; the variable
    COLUMNS limits their width. A character that the output's encoding lacks is printed as an escape.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of rich's Console, without markup, emoji codes and automatic highlighting."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)
        is_bounded = self.is_terminal or self.is_jupyter or "width" in options or "COLUMNS" in os.environ
        if not is_bounded:
            self.width = UNBOUNDED_CHARACTERS

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects as rich does; outside of a terminal, tables have no lines.

        A number that is wider than its column goes on in the next line: a part of it would be another number.
        On a narrow output, a table whose words do not fit is a list.
        """
        if isinstance(self.file, TextIOWrapper) and self.file.errors != "backslashreplace":
            self.file.reconfigure(errors="backslashreplace")
        for table in objects:
            if isinstance(table, Table):
                for column in table.columns:
                    if column.justify == "right" and column.overflow == "ellipsis":  # numbers
                        column.overflow = "fold"
                if not self.is_terminal:
                    table.box, table.pad_edge = None, False
                    table.expand = False
        if self.width < NARROW_CHARACTERS:
            objects = tuple(
                _list_cells(each) if isinstance(each, Table) and self._breaks_words(each) else each
                for each in objects
            )
        super().print(*objects, **options)

    def print_line(self, text: str | Text) -> None:
        """Print a text without wrapping it, so that its paths and commands can be copied."""
        self.print(text, soft_wrap=True)

    def _breaks_words(self, table: Table) -> bool:
        unbounded = self.options.update(width=UNBOUNDED_CHARACTERS)
        return self.measure(table, options=unbounded).minimum > self.width

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string with its control characters written out."""
        return super().render_str(show_control_characters(text), **options)

    def print_json(self, json: str | None = None, *, data: Any = None, **options: Any) -> None:
        """Print JSON; where a text has C1 control characters, everything beyond ASCII is escaped.

        So it is for an output that is not in UTF-8. JSON has no infinity, which a diverged trial may have for
        a cost: it is printed as null.
        """
        content = make_json_data(data if json is None else json_module.loads(json))
        has_controls = C1_CHARACTERS.search(json_module.dumps(content, ensure_ascii=False)) is not None
        is_ascii = has_controls or not self.encoding.startswith("utf")
        super().print_json(data=content, ensure_ascii=is_ascii, **options)

    @contextmanager
    def keep_file(self) -> Iterator[None]:
        """Print to the present file within the block, also while `sys.stdout` is another."""
        self.file = self.file
        try:
            yield
        finally:
            self._file = None

    def on_broken_pipe(self) -> None:
        """The program that read the output has ended: ask this one to end as a closed terminal does.

        A study then leaves its trials with checkpoints. Under nohup, which ignores SIGHUP, SIGTERM asks for
        it. Without a handler of either, raises SystemExit.
        """
        self.quiet = True
        discarded = os.open(os.devnull, os.O_WRONLY)
        os.dup2(discarded, self.file.fileno())
        os.close(discarded)
        for number in (signal.SIGHUP, signal.SIGTERM):
            if callable(signal.getsignal(number)):
                signal.raise_signal(number)
                return
        raise SystemExit(1)


def _list_cells(table: Table) -> Text:
    """The rows of a table, a line for each cell that is not empty, after the name of its column."""
    rows = ["\n".join(filter(None, (str(table.title or ""), str(table.caption or ""))))]
    names = [_read_text(column.header).split("\n") for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        lines = [
            f"{name} {value}".strip()
            for own, cell in zip(names, cells, strict=True)
            for name, value in zip_longest(own, _read_text(cell).split("\n"), fillvalue="")
            if value
        ]
        rows.append("\n".join(lines))
    return Text("\n\n".join(filter(None, rows)))


def _read_text(cell: object) -> str:
    return show_control_characters(cell.plain if isinstance(cell, Text) else str(cell))


def show_control_characters(text: str) -> str:
    r"""The text with control characters as escapes such as `\x1b`."""
    return CONTROL_CHARACTERS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
