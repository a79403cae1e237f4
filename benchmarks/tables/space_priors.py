"""Priors of a space's parameters from recorded trainings of its families.

A prior is what the best fifth of a family's trainings, at least MIN_TRAININGS, have in common: the median of
a number, on its scale, and the most frequent choice. The confidence is the firmest whose draws spread at
least as much as the trainings; a parameter whose values spread as uniform draws do has no prior. What a model
is, its size and the axes of its memory, has none either: that is what a study asks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median, pstdev

from benchmarks.tables.curve_table import Curve
from memtune.spaces import Scalar, Space
from memtune.spaces.space_points import PRIOR_SPREADS, find_nearest_value
from memtune.spaces.space_tree import (
    Branch,
    Categorical,
    Confidence,
    Group,
    Integer,
    Node,
    Parameter,
    Prior,
    Real,
    join_name,
)

__all__ = ["add_priors", "derive_priors"]

GOOD_SHARE, MIN_TRAININGS = 0.2, 5
MIN_VALUES, MIN_FIRM_VALUES = 4, 8
"""Values that a prior needs, and one of high confidence: few trainings have the parameters of a branch."""
LARGEST_SPREADS: Mapping[Confidence, float] = {"low": 0.28, "medium": 0.2, "high": 0.08}
"""Standard deviations of the trainings, as shares of a range, up to which a prior has a confidence; a uniform
draw has 0.29."""


def derive_priors(space: Space, known: Sequence[Curve]) -> dict[str, Prior]:
    """The priors by name of the parameter; `known` are trainings by rank on their table, the best first."""
    families = {curve.family for curve in known}
    good = [c for family in families for c in _select_good([c for c in known if c.family == family])]
    found = {p.name: _derive_prior(p, good) for p in space.parameters() if _is_no_size(p)}
    return {name: prior for name, prior in found.items() if prior}


def _select_good(curves: Sequence[Curve]) -> Sequence[Curve]:
    return curves[: max(MIN_TRAININGS, round(GOOD_SHARE * len(curves)))]


def _is_no_size(parameter: Parameter) -> bool:
    """Whether a parameter may have a prior: of the training, or of how strongly the model is regularised."""
    return parameter.field.startswith("training.") or "dropout" in parameter.field


def _derive_prior(parameter: Parameter, good: Sequence[Curve]) -> Prior | None:
    values = [c.parameters[parameter.name] for c in good if parameter.name in c.parameters]
    if len(values) < MIN_VALUES:
        return None
    if isinstance(parameter.leaf, Categorical):
        return _derive_choice(parameter.leaf, values)
    assert isinstance(parameter.leaf, Integer | Real)
    return _derive_number(parameter.leaf, [float(value) for value in values if value is not None])


def _derive_choice(leaf: Categorical, values: Sequence[Scalar]) -> Prior | None:
    best = max(leaf.choices, key=values.count)
    others = len(leaf.choices) - 1
    if not others:
        return None
    # How often any choice is drawn, so that the best one has its share of the trainings.
    random_share = (1 - values.count(best) / len(values)) * len(leaf.choices) / others
    fitting = [c for c, spread in PRIOR_SPREADS.items() if random_share <= spread]
    return Prior(best, fitting[-1]) if fitting else None


def _derive_number(leaf: Integer | Real, values: Sequence[float]) -> Prior | None:
    scale, invert = (math.log, math.exp) if leaf.log else (float, float)
    scaled = [scale(value) for value in values]
    spread = pstdev(scaled) / (scale(leaf.high) - scale(leaf.low))
    is_firm = len(values) >= MIN_FIRM_VALUES
    fitting = [c for c, most in LARGEST_SPREADS.items() if spread <= most and (is_firm or c != "high")]
    nearest = find_nearest_value(leaf, float(f"{invert(median(scaled)):.2g}"))
    return Prior(nearest, fitting[-1]) if fitting else None


def add_priors(space: Space, priors: Mapping[str, Prior]) -> Space:
    """The space whose parameters have these priors."""
    root = _add_below(space.root, "", priors)
    assert isinstance(root, Group | Branch)
    return replace(space, root=root)


def _add_below(node: Node, name: str, priors: Mapping[str, Prior]) -> Node:
    match node:
        case Group():
            return _add_to_members(node, name, priors)
        case Branch(key, options):
            groups = {o: _add_to_members(group, join_name(name, o), priors) for o, group in options.items()}
            return replace(node, options=groups, prior=priors.get(join_name(name, key)))
        case Integer() | Real() | Categorical():
            return replace(node, prior=priors.get(name))
    return node


def _add_to_members(group: Group, name: str, priors: Mapping[str, Prior]) -> Group:
    return Group({key: _add_below(node, join_name(name, key), priors) for key, node in group.members.items()})
