"""One mark for each family in a figure: a marker and a colour, which are told apart without colours too."""

from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["FamilyMark", "assign_marks"]

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8", "H", "$+$", "$x$", "$o$")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555")
"""Okabe and Ito (2008): distinguishable for colour-blind readers; without its yellow, which is too pale."""
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


class FamilyMark(NamedTuple):
    """How a family is drawn."""

    marker: str
    colour: str
    line: Any
    """A style of matplotlib."""


def assign_marks(families: Iterable[str]) -> dict[str, FamilyMark]:
    """A mark for each family, by name; the first eighteen differ in their markers."""
    return {
        family: FamilyMark(*(options[place % len(options)] for options in (MARKERS, COLOURS, LINES)))
        for place, family in enumerate(sorted(set(families)))
    }
