"""Points of a space given by fields: settings of a paper, or those that a study tries first.

A point maps dotted fields of a configuration to values, and may leave fields out::

    { "model.width" = 128, "training.optimiser.kind" = "sgd", "training.optimiser.learning_rate" = 1.0 }

A study samples parameters by name, options of branches included. A point chooses the option of a branch by
the branch's field, or by a field that only one option has.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import cycle, zip_longest
from random import Random
from statistics import NormalDist

from memtune.errors import SpaceError, did_you_mean
from memtune.spaces.choosers import RandomChooser, Scalar
from memtune.spaces.space import FAMILY_FIELD, Space
from memtune.spaces.space_tree import Categorical, Confidence, Integer, Leaf, Parameter, Real
from memtune.values import flatten

PRIOR_SPREADS: Mapping[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.1}
"""Standard deviation around a prior as a share of the range; of a choice, how often any choice is drawn."""


def pin_point(space: Space, point: Mapping[str, Scalar], where: str) -> dict[str, Scalar]:
    """The parameters of a space, by name, that give the fields of a point their values.

    Raises SpaceError, which names the field, the value and the nearest allowed one, for a value outside of
    the space. `where` names the point in messages.
    """
    pinned: dict[str, Scalar] = {}
    for field, value in _put_branches_first(space, point):
        found, nearest = _pin_field(space, field, value, pinned, where)
        is_other = nearest is None or nearest != value or isinstance(nearest, bool) != isinstance(value, bool)
        if found and is_other:
            allowed = describe_allowed(found.leaf, nearest)
            raise SpaceError(f"{where}: {field} = {value!r} is not in the space; {allowed}")
        pinned |= {**found.conditions, found.name: nearest} if found else {}
    return pinned


def adapt_point(space: Space, point: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """As `pin_point`, with the nearest allowed values.

    A field without an allowed value is left out. With the field of a branch, all fields of the branch are
    left out: a learning rate of one optimiser says nothing about another's.
    """
    pinned: dict[str, Scalar] = {}
    left_out: tuple[str, ...] = ()
    for field, value in _put_branches_first(space, point):
        if field.startswith(left_out):
            continue
        try:
            found, nearest = _pin_field(space, field, value, pinned, space.source)
        except SpaceError:
            found, nearest = None, None
            left_out += (field.removesuffix("kind"),) if field.endswith(".kind") else ()
        if found and nearest is not None:
            pinned |= {**found.conditions, found.name: nearest}
    return pinned


def find_nearest_value(leaf: Leaf, value: Scalar) -> Scalar:
    """The value of a parameter that is nearest to the given one; None where none is of its kind."""
    if isinstance(leaf, Categorical):
        same = [choice for choice in leaf.choices if choice == value and type(choice) is type(value)]
        return same[0] if same else None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    if not isinstance(leaf, Integer | Real):
        return None
    inside = min(max(value, leaf.low), leaf.high)
    if leaf.step:
        inside = leaf.low + leaf.step * round((inside - leaf.low) / leaf.step)
    if isinstance(leaf, Integer):
        return round(inside)
    return float(f"{inside:.12g}") if leaf.step else float(inside)


def _pin_field(
    space: Space, field: str, value: Scalar, pinned: Mapping[str, Scalar], where: str
) -> tuple[Parameter | None, Scalar]:
    """The parameter of a field and its value nearest to the given one; no parameter for a fixed field.

    Raises SpaceError for a field that the space lacks, fixes at another value or has in several branches.
    """
    candidates = [
        found
        for found in space.parameters()
        if found.field == field
        and all(pinned.get(name, option) == option for name, option in found.conditions.items())
    ]
    if not candidates:
        fixed = dict(flatten(space.root.sample(RandomChooser(0, pinned), "")))
        if field not in fixed:
            known = {found.field for found in space.parameters()}
            raise SpaceError(f"{where}: the space has no field {field}; {did_you_mean(field, known)}")
        if fixed[field] != value:
            raise SpaceError(f"{where}: {field} = {value!r}, and the space fixes it at {fixed[field]!r}")
        return None, None
    if len(candidates) > 1:
        branches = [name for found in candidates for name in found.conditions if name not in pinned]
        fields = [found.field for found in space.parameters() if found.name in branches]
        raise SpaceError(f"{where}: {field} is in several branches; add {' or '.join(dict.fromkeys(fields))}")
    return candidates[0], find_nearest_value(candidates[0].leaf, value)


def _put_branches_first(space: Space, point: Mapping[str, Scalar]) -> list[tuple[str, Scalar]]:
    """The family, then the other fields that choose options, then the rest."""
    names = {name for found in space.parameters() for name in found.conditions}
    branches = {found.field for found in space.parameters() if found.name in names}
    return sorted(point.items(), key=lambda item: (item[0] != FAMILY_FIELD, item[0] not in branches))


def describe_allowed(leaf: Leaf, nearest: Scalar) -> str:
    """What to write in place of a value that a parameter may not have."""
    if isinstance(leaf, Categorical):
        return f"allowed: {', '.join(repr(choice) for choice in leaf.choices)}"
    return "it takes a number" if nearest is None else f"the nearest allowed value is {nearest!r}"


def draw_prior_points(space: Space, count: int) -> list[dict[str, Scalar]]:
    """Values by name that the priors of a space say are good, the best first; empty without a prior.

    They are the prior points of the space, with draws from the priors of its parameters in them. Those of
    several families are joined, the best of each first, and choose no family.
    """
    by_family = defaultdict[Scalar, list[dict[str, Scalar]]](list)
    chosen = {name for choice in space.family_choices() for name in choice}
    for point in space.prior_points:
        pinned = {name: value for name, value in adapt_point(space, point).items() if name not in chosen}
        by_family[point.get(FAMILY_FIELD)].append(pinned)
    turns = zip_longest(*by_family.values(), fillvalue={})
    joined = [{name: value for point in turn for name, value in point.items()} for turn in turns]
    drawn = _draw_from_priors(space, count)
    if joined and drawn:
        return [{**good, **own} for good, own in zip(cycle(joined), drawn, strict=False)]
    return joined[:count] or drawn


def _draw_from_priors(space: Space, count: int) -> list[dict[str, Scalar]]:
    """Values of the parameters with a prior: the priors, then draws from them; empty without any.

    A number is normal around its prior on each side, within its range and on its scale.
    """
    generator = Random(0)
    leaves = {
        found.name: found.leaf
        for found in space.parameters()
        if isinstance(found.leaf, Categorical | Integer | Real) and found.leaf.prior
    }
    if not leaves:
        return []
    priors = {name: leaf.prior.value for name, leaf in leaves.items() if leaf.prior}
    drawn = {name: _draw_near_prior(leaf, generator, count - 1) for name, leaf in leaves.items()}
    return [priors, *({name: drawn[name][place] for name in leaves} for place in range(count - 1))]


def _draw_near_prior(leaf: Categorical | Integer | Real, generator: Random, count: int) -> list[Scalar]:
    assert leaf.prior is not None
    value, spread = leaf.prior.value, PRIOR_SPREADS[leaf.prior.confidence]
    if isinstance(leaf, Categorical):
        return [
            value if generator.random() > spread else generator.choice(leaf.choices) for _ in range(count)
        ]
    assert isinstance(value, int | float)
    scale, invert = (math.log, math.exp) if leaf.log else (float, float)
    low, high = scale(leaf.low), scale(leaf.high)
    normal = NormalDist(scale(value), spread * (high - low))
    shares = [(place + 0.5) / count for place in range(count)]
    generator.shuffle(shares)
    # Half of them are on each side, so that a prior near an end of its range is their median.
    ends = (normal.cdf(low), normal.cdf(high))
    quantiles = (0.5 + (2 * abs(share - 0.5)) * (ends[share > 0.5] - 0.5) for share in shares)
    return [find_nearest_value(leaf, invert(normal.inv_cdf(quantile))) for quantile in quantiles]
