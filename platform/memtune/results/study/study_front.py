"""The Pareto front of a study: which configurations no other one beats in every objective."""

from collections.abc import Iterator, Sequence

from memtune.objective import Objective
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView
from memtune.search import DEFAULT_OBJECTIVES, QUANTITIES, ObjectiveName
from memtune.values import Value

EQUAL_SIZES_RATIO = 1.1
"""A size that is solved for a width misses its target by some per cent, because the width is an integer."""
Point = Sequence[float]
Quantities = dict[ObjectiveName, float]
"""The cost and the sizes of a trial by objective."""


def find_front(points: Sequence[Point]) -> list[int]:
    """The places of the points that no other point dominates, in the order of their first coordinate.

    A point dominates another if it is nowhere higher and somewhere lower. Of equal points the first counts.
    """
    order = sorted(range(len(points)), key=lambda place: (*points[place], place))
    front: list[int] = []
    for place in order:
        # A point that dominates this one, or equals it, comes before it in this order.
        before = (zip(points[other], points[place], strict=True) for other in front)
        if not any(all(own <= later for own, later in pairs) for pairs in before):
            front.append(place)
    return front


def are_equal_sizes(sizes: Sequence[float]) -> bool:
    """Whether the largest size is at most 1.1 times the smallest one."""
    return max(sizes) <= EQUAL_SIZES_RATIO * min(sizes)


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


def describe_seeds(seeds: Sequence[int]) -> str:
    """How many configurations of a front are single seeds, from the seeds of each; empty where none is.

    A front has the lowest costs, so a lucky seed gets there before a mean that is as good.
    """
    single = list(seeds).count(1)
    if single == len(seeds):
        return "all are single seeds" if single else ""
    return f"{single} of {len(seeds)} are single seeds, which luck favours over means" if single else ""


class ParetoPoint(Value):
    """A configuration of full length, with the mean over its repeats where it has some."""

    number: int
    name: str
    family: str
    seeds: int
    """Over which its value is the mean."""
    values: dict[ObjectiveName, float]
    """In the units that users read: perplexity or accuracy, and sizes."""
    is_on_front: bool


class HypervolumePoint(Value):
    """The hypervolume after one more trial of full length that did not diverge."""

    trial: int
    tokens: int
    """Of all trials up to this one, by number."""
    volume: float


class StudyFront(Value):
    """Configurations by their objectives, and how the front has advanced.

    Models without trained parameters are not points.
    """

    objectives: tuple[ObjectiveName, ...]
    points: tuple[ParetoPoint, ...]
    """Those on the front first, each in the order of the first objective, best first."""
    unmeasured: tuple[str, ...] = ()
    """The configurations of full length that are no points, because a size of theirs is not known here."""
    reference: dict[ObjectiveName, float]
    """The worst value of each objective among the trials of full length that did not diverge: the corner from
    which the volume is measured."""
    hypervolume: tuple[HypervolumePoint, ...]
    """Of single seeds, in nats per token (or share of wrong answers) times doublings of each size. Empty for
    a study of one objective."""

    @property
    def front(self) -> tuple[ParetoPoint, ...]:
        """The points that no other one dominates."""
        return tuple(point for point in self.points if point.is_on_front)


def find_study_front(view: StudyView) -> StudyFront | None:
    """The front over all configurations of full length; None before there is one.

    None also where the study has one objective and all have equal parameters, which leave nothing to trade.
    """
    ranking, trials, objective = view.ranking, view.trials, view.objective
    if ranking is None:
        return None
    objectives = view.terms.objectives if len(view.terms.objectives) > 1 else DEFAULT_OBJECTIVES
    found = [(own, _measure(own.best, own.estimate.cost, objectives)) for own in ranking.configurations]
    measured = [(own, quantities) for own, quantities in found if quantities is not None]
    has_one = len(view.terms.objectives) == 1
    if (
        has_one
        and len(measured) > 1
        and are_equal_sizes([quantities["parameters"] for _, quantities in measured])
    ):
        return None
    places = [_place(quantities) for _, quantities in measured]
    front = find_front(places)
    others = sorted(set(range(len(places))) - set(front), key=lambda index: places[index])
    points = [
        ParetoPoint(
            number=own.best.number,
            name=f"{own.best.alternative} #{own.best.number}",
            family=own.best.family,
            seeds=own.estimate.seeds,
            values=_read_values(quantities, objective),
            is_on_front=index in front,
        )
        for index in [*front, *others]
        for own, quantities in [measured[index]]
    ]
    # The single seeds of the search. The validation of a diverged trial may be thousands of times the others'
    # and would set the scale.
    costs = {
        trial.identity: cost
        for own in ranking.configurations
        for trial, cost in zip(own.trials, own.costs, strict=True)
    }
    converged = [trial for trial in trials if not trial.is_repeat and not trial.has_diverged]
    single = [
        (trial, quantities)
        for trial in converged
        if trial.identity in costs
        and (quantities := _measure(trial, costs[trial.identity], objectives)) is not None
    ]
    worst: Quantities = {}
    for name in objectives if single else ():
        worst[name] = max((own[name] for _, own in single), key=QUANTITIES[name].compute_coordinate)
    return StudyFront(
        objectives=tuple(objectives),
        points=tuple(points),
        unmeasured=tuple(own.title for own, known in found if known is None and not own.best.is_counted),
        reference=_read_values(worst, objective),
        hypervolume=() if has_one else tuple(_trace_hypervolume(single, _place(worst), trials)),
    )


def _measure(trial: StudyTrial, cost: float, objectives: Sequence[ObjectiveName]) -> Quantities | None:
    """None for a trial that lacks an objective: a size of a corpus that is gone, or a model that counts."""
    if trial.sizes is None or trial.is_counted:
        return None
    known: dict[str, float | None] = {
        "value": cost,
        "tokens_per_second": trial.tokens_per_second,
        **trial.sizes.model_dump(),
    }
    if any(known[name] is None for name in objectives):
        return None
    return {name: float(known[name] or 0.0) for name in objectives}


def _place(quantities: Quantities) -> tuple[float, ...]:
    return tuple(QUANTITIES[name].compute_coordinate(amount) for name, amount in quantities.items())


def _trace_hypervolume(
    measured: Sequence[tuple[StudyTrial, Quantities]], reference: Point, trials: Sequence[StudyTrial]
) -> Iterator[HypervolumePoint]:
    front: list[Point] = []
    for own, quantities in measured:
        front.append(_place(quantities))
        front = [front[index] for index in find_front(front)]
        yield HypervolumePoint(
            trial=own.number,
            tokens=sum(t.usage.tokens for t in trials if not t.is_repeat and t.number <= own.number),
            volume=compute_hypervolume(front, reference),
        )


def _read_values(quantities: Quantities, objective: Objective) -> Quantities:
    """The quantities with the cost as perplexity or accuracy."""
    return {
        name: objective.compute_figure(amount) if name == "value" else amount
        for name, amount in quantities.items()
    }
