"""One mark for each alternative in a figure: a shape, a colour and a dash, distinct without colours too.

Every figure takes its marks from here: those of matplotlib as polygons, those of Vega as SVG paths.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

from memtune.tracking.runs.run_tags import COLOURS

Point = tuple[float, float]
Polygon = tuple[Point, ...]
"""Corners within the square from -1 to 1, with y upwards."""

DARK_COLOURS = (
    *("#4FA3DC", "#FF8A3D", "#2CC295", "#E394C0", "#8FD3FF", "#FFC04D", "#BBBBBB"),
    *("#A050F5", "#C95068", "#7A8010", "#4960C0"),
)
"""The colours of alternatives on a dark page."""
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 2), (2, 2), (8, 2, 2, 2), (5, 1, 1, 1, 1, 1))
"""Lengths of strokes and gaps in pixels; none for a line without gaps. Their number and that of colours have
no factor in common, so that lines differ as long as possible."""


class Mark(NamedTuple):
    """How an alternative is drawn."""

    polygon: Polygon
    colour: str
    dash: tuple[int, ...]

    @property
    def marker(self) -> Any:
        """The shape as a marker of matplotlib."""
        return [*self.polygon, self.polygon[0]]

    @property
    def line(self) -> Any:
        """The dash as a line style of matplotlib."""
        return (0, self.dash) if self.dash else "-"

    @property
    def path(self) -> str:
        """The shape as an SVG path within the square from -1 to 1, as Vega takes it."""
        corners = " L".join(f"{x:.3g},{-y:.3g}" for x, y in self.polygon)
        return f"M{corners} Z"


def assign_marks(names: Iterable[str]) -> dict[str, Mark]:
    """A mark for each name; the first twenty differ in their shapes, the first eleven in their colours."""
    marks = zip(cycle(SHAPES.values()), cycle(COLOURS), cycle(DASHES), strict=False)
    return {name: Mark(*mark) for name, mark in zip(sorted(set(names)), marks, strict=False)}


def _place(radii: Sequence[float]) -> Polygon:
    """Corners at these radii, evenly around the centre, from the top."""
    angles = [math.tau * (0.25 + place / len(radii)) for place in range(len(radii))]
    return tuple((r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True))


def _rotate(polygon: Polygon, quarters: int) -> Polygon:
    for _ in range(quarters):
        polygon = tuple((-y, x) for x, y in polygon)
    return polygon


_TRIANGLE: Polygon = ((0, 1), (-0.95, -0.75), (0.95, -0.75))
_PLUS: Polygon = tuple(
    (sign * x, sign * y)
    for sign in (1, -1)
    for x, y in ((0.36, 1), (-0.36, 1), (-0.36, 0.36), (-1, 0.36), (-1, -0.36), (-0.36, -0.36))
)
_CROSS: Polygon = tuple(((x - y) * 0.72, (x + y) * 0.72) for x, y in _PLUS)
_HOURGLASS: Polygon = ((-0.85, 1), (0.85, 1), (0.12, 0), (0.85, -1), (-0.85, -1), (-0.12, 0))
_HALF_DISC: Polygon = tuple((x, 1.1 * y - 0.5) for x, y in _place([1.0] * 24) if y > -0.01)
_ARROW: Polygon = ((0, 1), (-0.95, 0.05), (-0.38, 0.05), (-0.38, -1), (0.38, -1), (0.38, 0.05), (0.95, 0.05))
_CHEVRON: Polygon = ((0, 0.8), (-1, -0.2), (-1, -0.9), (0, 0.1), (1, -0.9), (1, -0.2))
_BAR: Polygon = ((-0.38, 1), (0.38, 1), (0.38, -1), (-0.38, -1))

SHAPES: dict[str, Polygon] = {
    "disc": _place([0.9] * 24),
    "square": ((-0.8, 0.8), (0.8, 0.8), (0.8, -0.8), (-0.8, -0.8)),
    "triangle up": _TRIANGLE,
    "diamond": _place([1.0] * 4),
    "plus": _PLUS,
    "star": _place([1.0, 0.42] * 5),
    "triangle down": _rotate(_TRIANGLE, 2),
    "cross": _CROSS,
    "hourglass": _HOURGLASS,
    "bar": _BAR,
    "triangle right": _rotate(_TRIANGLE, 3),
    "bow tie": _rotate(_HOURGLASS, 1),
    "arrow up": _ARROW,
    "four-pointed star": _place([1.0, 0.3] * 4),
    "half disc": _HALF_DISC,
    "triangle left": _rotate(_TRIANGLE, 1),
    "chevron": _CHEVRON,
    "wide bar": _rotate(_BAR, 1),
    "arrow down": _rotate(_ARROW, 2),
    "half disc down": _rotate(_HALF_DISC, 2),
}
"""By name, in the order in which they are assigned."""
