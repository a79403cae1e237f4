"""Seeds: the estimate of a cost, tests under equal seeds, and the decision which need more seeds.

Welch's t-test compares two configurations by their costs under equal seeds. It needs no equal deviations: one
network varies more than another, and a model that counts does not vary. Few seeds tell little of a deviation:
those of the other alternatives of a study count too, as the prior of a variance in Smyth (2004), "Linear
Models and Empirical Bayes Methods for Assessing Differential Expression", until there are seven seeds, unless
they are of another size.

Seeds are added until a difference is decided, so the test is corrected for its LOOKS: Jennison and Turnbull
(2000), "Group Sequential Methods with Applications to Clinical Trials", chapters 7 and 9. The p-value of the
t-test is divided by the weight of its look and read in the distribution of its smallest value over all looks
without a difference (`benchmarks.sequential_tests` simulates it).

Mean and interval are taken over costs and then transformed: a mean perplexity is the geometric mean.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, mean, stdev, variance
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import stdtr, stdtrit

from memtune.number_format import format_count, format_p
from memtune.objective import Objective
from memtune.values import Value

CONFIDENCE_LEVEL = 0.95
MIN_EQUAL_SEEDS = 5
"""Seeds from which on one and the same accuracy of two alternatives says that these are equal."""
ROUNDING = 1e-9
"""Relative deviation of costs that are equal: sums in another order differ by less."""


class Estimate(Value):
    """A mean cost over seeds, lower is better, and the bounds of its 95 % interval from three seeds on.

    Seeds of equal costs have no interval.
    """

    cost: float
    seeds: int = Field(default=1, ge=1)
    low: float | None = None
    """The lower bound of the cost; None without an interval."""
    high: float | None = None
    intervals: int = 1
    """The configurations whose intervals hold at once, so that each is wider than one alone."""

    def compute_interval(self, objective: Objective | str) -> tuple[float, float] | None:
        """The bounds of the perplexity or accuracy, the smaller one first; None without an interval."""
        if self.low is None or self.high is None:
            return None
        objective = Objective.from_name(objective)
        bounds = max(0.0, self.low), min(objective.max_cost, self.high)
        low, high = sorted(map(objective.compute_figure, bounds))
        return low, high

    def describe(self, objective: Objective | str, digits: int, *, is_counted: bool = False) -> str:
        """The figure with its interval, or with the number of seeds that are too few for one.

        A model that is counted has the same figure under every seed.

        >>> Estimate(cost=0.25, seeds=3, low=0.24, high=0.26).describe("accuracy", 1)
        '75.0 % (mean of 3 seeds, 95 % interval 74.0 % to 76.0 %)'
        """
        objective = Objective.from_name(objective)
        figure, bounds = objective.format_cost(self.cost, digits), self.compute_interval(objective)
        if bounds is None:
            single = "the same under every seed" if is_counted else "decided by a single seed"
            seeds = single if self.seeds == 1 else f"mean of {self.seeds} seeds"
            return f"{figure} ({seeds})"
        low, high = (objective.format_figure(bound, digits) for bound in bounds)
        return f"{figure} (mean of {self.seeds} seeds, 95 % interval {low} to {high})"

    def format(self, objective: Objective | str, digits: int) -> str:
        """The figure with its interval in brackets, for tables.

        >>> Estimate(cost=0.25, seeds=3, low=0.24, high=0.26).format("accuracy", 1)
        '75.0 % [74.0 %, 76.0 %]'
        """
        objective = Objective.from_name(objective)
        figure, bounds = objective.format_cost(self.cost, digits), self.compute_interval(objective)
        if bounds is None:
            return figure
        low, high = (objective.format_figure(bound, digits) for bound in bounds)
        return f"{figure} [{low}, {high}]"


def estimate_cost(costs: Sequence[float], intervals: int = 1) -> Estimate:
    """The mean of the costs of several seeds with its t-interval; without one below three seeds.

    That of two is thirteen standard errors wide, and says nothing; nor do equal costs, of an accuracy for
    instance, of which there is none either. In 95 % of studies all of so many `intervals` hold at once
    (Bonferroni), so that the interval of the best of them holds too.
    """
    center = mean(costs)
    if len(costs) < MIN_PAIRED_SEEDS or (deviation := stdev(costs)) <= ROUNDING * abs(center):
        return Estimate(cost=center, seeds=len(costs))
    quantile = float(stdtrit(len(costs) - 1, 1 - (1 - CONFIDENCE_LEVEL) / (2 * intervals)))
    half = quantile * deviation / math.sqrt(len(costs))
    bounds = {"low": center - half, "high": center + half}
    return Estimate(cost=center, seeds=len(costs), **bounds, intervals=intervals)


LOOKS = {3: 0.005, 4: 0.01, 5: 0.02, 8: 0.1, 12: 0.42, 20: 0.15, 30: 1.0}
"""The seeds after which a difference is tested, with the level of that test as a share of the last one's.

Each look takes power from the others. These find two standard deviations with 12 seeds as well as they can
where 30 still find one. The first three are for large differences among many alternatives.
"""
PRIOR_FREEDOM = 6
"""The degrees of freedom that a deviation has at least, as far as other alternatives can lend them."""
MAX_LENT_RATIO = 10.0
"""The variance of another alternative, as a multiple of that of a pair, beyond which it does not count: it
would hide differences of many of the pair's own deviations."""
MIN_PAIRED_SEEDS, MAX_SEEDS = min(LOOKS), max(LOOKS)
MAX_REPLACED = 2
"""Configurations of an alternative that give their place to the next one, for lack of seeds with a result."""
NULL_QUANTILES = (
    (2.762e-06, 1e-05),
    (2.99e-05, 0.0001),
    (0.000197, 0.0005),
    (0.0004539, 0.001),
    (0.001263, 0.0025),
    (0.002765, 0.005),
    (0.005824, 0.01),
    (0.01021, 0.0167),
    (0.01588, 0.025),
    (0.03375, 0.05),
    (0.0712, 0.1),
    (0.152, 0.2),
    (0.2385, 0.3),
    (0.4238, 0.5),
    (1.0, 1.0),
)
"""(smallest p over all looks, each divided by its weight; share of studies without a difference that have a
smaller one): from `python -m benchmarks.sequential_tests null`, the smallest quantiles of pairs whose second
deviation is that of the first, a seventh of it, and zero."""


class PairedTest(Value):
    """The difference between two costs, first minus second: a negative one is in favour of the first."""

    method: Literal["sign test of differences", "Welch's t-test"]
    pairs: int
    unit: Literal["sentences", "questions", "examples", "rows", "seeds"]
    difference: float
    """Nats per predicted token, or share of wrong answers."""
    low: float
    """The lower bound of the difference's 95 % interval."""
    high: float
    p: float
    """The two-sided p-value of no difference, after all corrections."""
    others: int = 0
    """The other alternatives whose deviations count too."""
    intervals: int = 1
    """The pairs whose intervals hold at once, so that each is wider than the test of one needs."""
    correction: str = ""
    """What the p-value is corrected for: repeated looks, and the number of pairs."""

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant at 5 %."""
        return self.p < 1 - CONFIDENCE_LEVEL

    def is_within(self, indifference: float) -> bool:
        """Whether the whole interval is within this difference of costs."""
        return -indifference <= self.low and self.high <= indifference

    def describe(self, objective: Objective) -> str:
        """The difference in the unit of the figure, with its interval and p.

        >>> test.describe(Objective.PERPLEXITY)
        'perplexity 6.2 % lower (95 % interval 3.1 % to 9.0 %), p = 0.004, Welch's t-test over 5 seeds'
        """
        p = f"p {format_p(self.p)}"
        at_once = f", all {self.intervals} pairs at once" if self.intervals > 1 else ""
        others = f" and the deviations of {format_count(self.others, 'other')}" if self.others else ""
        correction = f", corrected for {self.correction}" if self.correction else ""
        gain, interval = objective.describe_gain(self.difference), self.describe_interval(objective)
        seen = f"{self.method} over {self.pairs:,} {self.unit}{others}{correction}"
        return f"{gain} ({interval}{at_once}), {p}, {seen}"

    def describe_interval(self, objective: Objective) -> str:
        """The interval of the size of the difference, such as `95 % interval 3.1 % to 9.0 %`.

        A bound beyond 100 says only that, such as `< -100 %`; few seeds exclude nothing. Around a larger
        difference it is the next power of ten.
        """
        gain = objective.compute_gain(self.difference)
        limit = 10 ** math.ceil(math.log10(max(100.0, abs(gain))))
        bounds = sorted(objective.compute_gain(cost) for cost in (self.low, self.high))
        if round(bounds[0], 1) <= -100 and round(bounds[1], 1) >= 100:
            return "95 % interval excludes nothing"
        if gain < 0:
            bounds = [-bounds[1], -bounds[0]]
        low, high = (
            f"{bound:z.1f} {objective.short_margin_unit}"
            if abs(bound) <= limit
            else f"{'<>'[bound > 0]} {math.copysign(limit, bound):.0f} {objective.short_margin_unit}"
            for bound in bounds
        )
        return f"95 % interval {low} to {high}"


Results = Mapping[int, float] | float
"""Costs by seed, or the one cost of a model that counts."""


def compare_results(
    first: Results, second: Results, others: Iterable[Results] = (), pairs: int = 1
) -> PairedTest | None:
    """The t-test of two configurations under equal seeds; None for fewer than three, and where both count.

    It has the seeds of the last look, by their numbers; later ones wait for the next. p-value and interval
    hold for all looks at once, the interval also for `pairs` of them. The deviations of `others`, further
    alternatives of the study, count as far as those of the two have fewer degrees of freedom than
    PRIOR_FREEDOM; one whose variance is more than MAX_LENT_RATIO times as large does not count.
    """
    networks = [results for results in (first, second) if isinstance(results, Mapping)]
    seeds = sorted(set.intersection(*({*results} for results in networks))) if networks else []
    count = _find_last_look(len(seeds))
    if not count:
        return None
    costs = [[each[seed] for seed in seeds[:count]] for each in networks]
    own, other = (
        fmean(each[seed] for seed in seeds[:count]) if isinstance(each, Mapping) else each
        for each in (first, second)
    )
    # Equal results under all seeds, of an accuracy for instance, say nothing of the size of a deviation.
    most = MAX_LENT_RATIO * fmean(map(variance, costs)) or math.inf
    lenders = [
        found
        for lent in others
        if isinstance(lent, Mapping) and len(lent) >= MIN_PAIRED_SEEDS and count <= PRIOR_FREEDOM
        if variance(found := [lent[seed] for seed in sorted(lent)[: _find_last_look(len(lent))]]) <= most
    ]
    difference = own - other
    variance_of_seed, freedom = _estimate_variance(costs, lenders, difference)
    error = math.sqrt(variance_of_seed / count)
    statistic = abs(difference) / error if error else 0.0
    level = find_look_level((1 - CONFIDENCE_LEVEL) / pairs, count)
    half = float(stdtrit(freedom, 1 - level / 2)) * error
    return PairedTest(
        method="Welch's t-test",
        pairs=count,
        unit="seeds",
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=correct_for_looks(2 * float(stdtr(freedom, -statistic)), count),
        others=len(lenders),
        intervals=pairs,
        correction="repeated looks",
    )


def _estimate_variance(
    costs: Sequence[Sequence[float]], lenders: Sequence[Sequence[float]], difference: float
) -> tuple[float, float]:
    """The variance of a difference under one seed, and its degrees of freedom by Welch and Satterthwaite.

    Each of the two variances is the mean of its own and the pooled one of the lenders, weighted by their
    degrees of freedom: of the pooled one as many as its own ones lack to PRIOR_FREEDOM. Where all seeds of
    each are equal, costs may be so coarse that the difference is one step of theirs, and each has the
    variance of what was rounded to it (Sheppard).
    """
    own = len(costs[0]) - 1
    pooled = sum(len(each) - 1 for each in lenders)
    lent = min(max(0, PRIOR_FREEDOM - own), pooled)
    parts = [(variance(each) * own / (own + lent), own) for each in costs]
    if lent:
        squares = sum((len(each) - 1) * variance(each) for each in lenders)
        parts.append((len(costs) * (squares / pooled) * lent / (own + lent), pooled))
    total = sum(part for part, _ in parts)
    if math.sqrt(total) <= ROUNDING * abs(difference):
        return len(costs) * difference**2 / 12, len(costs) * own
    return total, total**2 / sum(part**2 / freedom for part, freedom in parts)


def _find_last_look(seeds: int) -> int:
    """The last look that so many seeds allow; 0 before the first."""
    return max((look for look in LOOKS if look <= seeds), default=0)


def correct_for_looks(p: float, seeds: int) -> float:
    """The p-value of the t-test at a look, corrected for all LOOKS."""
    smallest, share = np.array(NULL_QUANTILES).T
    scaled = p / LOOKS[seeds]
    if scaled < smallest[0]:
        return float(scaled * share[0] / smallest[0])
    return float(np.exp(np.interp(np.log(scaled), np.log(smallest), np.log(share))))


def find_look_level(level: float, seeds: int) -> float:
    """The level of the t-test at a look with which all LOOKS together have the given level."""
    smallest, share = np.array(NULL_QUANTILES).T
    if level < share[0]:
        return float(level * smallest[0] / share[0] * LOOKS[seeds])
    scaled = np.exp(np.interp(np.log(level), np.log(share), np.log(smallest)))
    return float(scaled * LOOKS[seeds])


def correct_for_choice(ps: Sequence[float]) -> list[float]:
    """The p-values of the best alternative against each other one, for the best was chosen by its costs.

    In steps, from the smallest p: of k alternatives it counts for all k (k - 1) / 2 pairs, the next one for
    the pairs of the k - 1 that are left, and the last one for its own pair. That the best is better than all
    others needs every test, so no correction: Gutmann and Maymin (1987), "Is the Selected Population the
    Best?". Without a difference, at most 5 % of studies have any p-value below 5 %.
    """
    # The last p-value counts for its own pair alone, so that none is above it.
    return [min(p, max(ps)) for p in _correct_in_steps(ps, lambda left: math.comb(left + 1, 2))]


def correct_holm(values: Iterable[float]) -> list[float]:
    """Holm's p-values, in the order of the given ones."""
    return _correct_in_steps(list(values), lambda left: left)


def _correct_in_steps(ps: Sequence[float], count_tests: Callable[[int], int]) -> list[float]:
    """The p-values, from the smallest on each times the tests that count for those that are left."""
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        highest = max(highest, min(1.0, count_tests(len(ps) - rank) * ps[place]))
        corrected[place] = highest
    return corrected


SeedCosts = Mapping[int, float | None] | float
"""Costs by seed, None for a training that ended without one; the one cost of a model that counts."""


class SeedDecision(Value):
    """Whether seeds have decided which alternative is best."""

    continued: tuple[str, ...] = ()
    """The alternatives that need another seed; empty at the end."""
    seeds: int
    """The seeds that each of these should have; at the end, those of the last look."""
    remaining: tuple[str, ...]
    """Those that may be best."""
    end: Literal["separated", "equal", "max_seeds", "unstable"] | None = None
    """The best is significantly better than all others; the interval of each remaining pair is within the
    indifference; no seed is left; or fewer than two alternatives have results. None before the end."""


def decide_seeds(costs: Mapping[str, SeedCosts], indifference: float, max_seeds: int) -> SeedDecision:
    """Which alternatives to train under the seeds of the next look.

    An alternative remains while it is not significantly worse than the one with the lowest mean, corrected
    for all looks and for the choice of the best. Looks are repeated from the first on the seeds of each, in
    the order of their numbers, so that the decision does not depend on the order in which trainings end. An
    alternative of which more than half of three or more seeds have no result is left out. `indifference` is
    in nats per token, or a share of wrong answers.
    """
    remaining, looks = tuple(costs), [look for look in LOOKS if look <= max_seeds]

    def list_lacking(seeds: int) -> tuple[str, ...]:
        return tuple(name for name in remaining if _count_seeds(costs[name], seeds) < seeds)

    for seeds in looks:
        if lacking := list_lacking(seeds):
            return SeedDecision(continued=lacking, seeds=seeds, remaining=remaining)
        stable = {
            name: found
            for name, given in costs.items()
            if (found := _select_results(given, seeds)) is not None
        }
        if len(stable) < 2:
            return SeedDecision(seeds=seeds, remaining=tuple(stable), end="unstable")
        remaining, are_equal = _look(stable, indifference)
        is_over = len(remaining) == 1 or are_equal or seeds == looks[-1]
        # One that had left comes back where another one is best now.
        if is_over and (lacking := list_lacking(seeds)):
            return SeedDecision(continued=lacking, seeds=seeds, remaining=remaining)
        if len(remaining) == 1 or are_equal:
            end: Literal["separated", "equal"] = "separated" if len(remaining) == 1 else "equal"
            return SeedDecision(seeds=seeds, remaining=remaining, end=end)
    return SeedDecision(seeds=seeds, remaining=remaining, end="max_seeds")


def choose_compared(costs: Mapping[str, SeedCosts], alternatives: Mapping[str, str]) -> dict[str, SeedCosts]:
    """The costs of those that seeds are for: the first of each alternative, or the first two of a single one.

    `costs` has the best ones of the search first, `alternatives` the alternative of each. One of which more
    than half of the seeds of a look have no result is replaced by the next one, MAX_REPLACED times.
    """

    def lacks_results(name: str) -> bool:
        looks = (look for look in LOOKS if look <= _count_seeds(costs[name], max(LOOKS)))
        return any(_select_results(costs[name], look) is None for look in looks)

    by_alternative: dict[str, list[str]] = {}
    for name in costs:
        by_alternative.setdefault(alternatives[name], []).append(name)
    count = 1 if len(by_alternative) > 1 else 2
    tried = [own[: count + MAX_REPLACED] for own in by_alternative.values()]
    chosen = [name for own in tried for name in sorted(own, key=lacks_results)[:count]]
    return {name: own for name, own in costs.items() if name in chosen}


def _count_seeds(costs: SeedCosts, most: int) -> int:
    return min(most, len(costs)) if isinstance(costs, Mapping) else most


def _select_results(costs: SeedCosts, seeds: int) -> Results | None:
    """The results of the first seeds; None where more than half of them have none."""
    if not isinstance(costs, Mapping):
        return costs
    first = sorted(costs)[:seeds]
    results = {seed: cost for seed in first if (cost := costs[seed]) is not None}
    return results if 2 * len(results) >= len(first) else None


def _look(results: Mapping[str, Results], indifference: float) -> tuple[tuple[str, ...], bool]:
    """The alternatives that may be best, and whether all their pairs are within the indifference."""
    best = min(results, key=lambda name: _average(results[name]))
    others = [name for name in results if name != best]
    corrected = correct_for_choice(
        [find_p(compare_pair(results, best, name), results[best], results[name]) for name in others]
    )
    worse = {name for name, p in zip(others, corrected, strict=True) if p < 1 - CONFIDENCE_LEVEL}
    remaining = tuple(name for name in results if name not in worse)
    # That all pairs are equal needs every interval, so that none is corrected for their number.
    return remaining, all(
        _are_equal(results[first], results[second], compare_pair(results, first, second), indifference)
        for first, second in combinations(remaining, 2)
    )


def _are_equal(first: Results, second: Results, test: PairedTest | None, indifference: float) -> bool:
    """Whether a pair is within the indifference: two models that count, or two of which a test says so.

    A test whose interval has no width, of equal accuracies, says so from MIN_EQUAL_SEEDS on.
    """
    if test is None:
        return not isinstance(first, Mapping) and first == second
    return test.is_within(indifference) and (test.low < test.high or test.pairs >= MIN_EQUAL_SEEDS)


def find_p(test: PairedTest | None, best: Results, other: Results) -> float:
    """The p-value of a pair in `correct_for_choice`: 1 where it cannot be tested yet, for it was looked at.

    So where the other one is better under the seeds of the test, although not in its mean over all seeds. Two
    models that count differ exactly, or not at all.
    """
    if test:
        return test.p if test.difference < 0 else 1.0
    is_counted = not isinstance(best, Mapping) and not isinstance(other, Mapping)
    return float(best == other) if is_counted else 1.0


def compare_pair(
    results: Mapping[str, Results], first: str, second: str, pairs: int = 1
) -> PairedTest | None:
    """`compare_results` of two of the compared alternatives, by their names."""
    others = [found for name, found in results.items() if name not in {first, second}]
    return compare_results(results[first], results[second], others, pairs)


def _average(results: Results) -> float:
    return fmean(results.values()) if isinstance(results, Mapping) else results
