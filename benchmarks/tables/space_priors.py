"""Prior points of spaces: the best recorded trainings of each family.

A point has what a training searched, but for the width: the networks of the tables are smaller than those of
the spaces.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from benchmarks.tables.curve_table import Curve
from memtune.spaces import FAMILY_FIELD, Scalar, Space

__all__ = ["Points", "add_prior_points", "format_points", "list_good_points"]

POINTS = 5
"""Of each family."""
LEFT_OUT = {FAMILY_FIELD, "model.width"}

Points = Sequence[Mapping[str, Scalar]]


def list_good_points(spaces: Iterable[Space], known: Sequence[Curve]) -> dict[str, Points]:
    """The points by family; `known` are trainings by rank on their table, the best first."""
    fields = {found.name: found.field for space in spaces for found in space.parameters()}
    families = dict.fromkeys(curve.family for curve in known if f"{curve.family}.model.width" in fields)
    found = {family: [_make_point(c, fields) for c in known if c.family == family] for family in families}
    return {family: _drop_repeated(points)[:POINTS] for family, points in found.items()}


def _make_point(curve: Curve, fields: Mapping[str, str]) -> dict[str, Scalar]:
    values = {fields[name]: value for name, value in curve.parameters.items()}
    return {
        field: float(f"{value:.2g}") if isinstance(value, float) else value
        for field, value in values.items()
        if field not in LEFT_OUT
    }


def _drop_repeated(points: Points) -> Points:
    return [point for place, point in enumerate(points) if point not in points[:place]]


def add_prior_points(space: Space, points: Mapping[str, Points]) -> Space:
    """The space with these points by family."""
    listed = [{FAMILY_FIELD: family, **point} for family, own in points.items() for point in own]
    return replace(space, prior_points=tuple(listed))


def format_points(points: Points) -> str:
    """The points as a space file states them."""
    rows = (", ".join(f"{name} = {json.dumps(value)}" for name, value in point.items()) for point in points)
    return "prior_points = [\n" + "".join(f"    {{ {row} }},\n" for row in rows) + "]"
