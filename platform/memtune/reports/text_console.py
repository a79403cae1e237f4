"""The console that memtune prints to: users' texts appear literally, without markup or escape sequences."""

import json as json_module
import re
from typing import Any

from rich.console import Console
from rich.text import Text

__all__ = ["TextConsole", "show_control_characters"]

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 control characters except tab and newline: a terminal would act on them."""
C1_CHARACTERS = re.compile(r"[\x80-\x9f]")
"""The control characters that JSON does not escape."""


class TextConsole(Console):
    """A rich console that prints plain strings literally.

    Questions, names and words of corpora come from users and files. rich would read "[red]" in them as a
    style, ":smile:" as an emoji and fail on "[/b]"; a terminal would execute escape sequences. Styles are
    given as `rich.text.Text` or by the `style` argument.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of rich's Console, without markup, emoji codes and automatic highlighting."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string with its control characters written out."""
        return super().render_str(show_control_characters(text), **options)

    def print_json(self, json: str | None = None, *, data: Any = None, **options: Any) -> None:
        """Print JSON; where a text has C1 control characters, everything beyond ASCII is escaped."""
        content = data if json is None else json_module.loads(json)
        has_controls = C1_CHARACTERS.search(json_module.dumps(content, ensure_ascii=False)) is not None
        super().print_json(data=content, ensure_ascii=has_controls, **options)


def show_control_characters(text: str) -> str:
    r"""The text with control characters as escapes such as `\x1b`."""
    return CONTROL_CHARACTERS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
