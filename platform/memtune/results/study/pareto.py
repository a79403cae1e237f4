"""Pareto fronts and hypervolumes of points that are better the lower they are in every coordinate."""

from collections.abc import Sequence

__all__ = ["compute_hypervolume", "find_front"]

Point = Sequence[float]


def find_front(points: Sequence[Point]) -> list[int]:
    """The places of the points that no other point dominates, in the order of their first coordinate.

    A point dominates another if it is nowhere higher and somewhere lower. Of equal points the first counts.
    """
    order = sorted(range(len(points)), key=lambda place: (*points[place], place))
    front: list[int] = []
    for place in order:
        # A point that dominates this one, or equals it, comes before it in this order.
        if not any(_is_nowhere_higher(points[other], points[place]) for other in front):
            front.append(place)
    return front


def _is_nowhere_higher(first: Point, second: Point) -> bool:
    return all(a <= b for a, b in zip(first, second, strict=True))


def compute_hypervolume(points: Sequence[Point], reference: Point) -> float:
    """The volume that is dominated by the points and bounded by `reference`; higher is better.

    Points that are not below the reference everywhere add nothing. The volume is cut into slices along the
    last coordinate (While et al., 2006, "A Faster Algorithm for Calculating Hypervolume", section III.A).
    """
    inside = [point for point in points if all(c < bound for c, bound in zip(point, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in inside)
    ordered = sorted(inside, key=lambda point: point[-1])
    tops = [*(point[-1] for point in ordered[1:]), reference[-1]]
    volume, slice_points = 0.0, list[Point]()
    for point, top in zip(ordered, tops, strict=True):
        slice_points.append(point[:-1])
        if top > point[-1]:
            slice_points = [slice_points[place] for place in find_front(slice_points)]
            volume += (top - point[-1]) * compute_hypervolume(slice_points, reference[:-1])
    return volume
