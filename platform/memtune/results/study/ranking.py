"""The ranking of trials: configurations by the mean of their seeds, at equal numbers of tokens.

A configuration is that of a trial without its seed, over the trials of one study. Configurations compete at
full length, the largest number of tokens that a trial completed. A trial that ended earlier, or has no report
there, is listed apart with its value at its last report. Where a study repeats configurations under further
seeds, only configurations with these seeds compete: the best of many single seeds is the luckiest one.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from typing_extensions import override

from memtune.data_frames import make_frame
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.seed_statistics import Estimate, estimate_cost
from memtune.tracking import NO_STUDY, LeaderboardRow
from memtune.trial_state import TrialState

if TYPE_CHECKING:
    # A comparison of runs needs no torch.
    from memtune.results.study.study_trials import StudyTrial

DIGITS = 3
"""Decimal places of a figure in texts and tables."""
LENGTH_TOLERANCE = 0.01
"""Lengths that differ by less are equal: budgets may be given in epochs or in tokens."""
SHORT_TOLERANCE, PAST_TOLERANCE = 0.1, 0.25
"""Of the tokens between two reports: one that is short of a number of tokens, or past it, by less is at this
number. Reports come up to a batch past their milestone."""
MAX_REQUIRED_SEEDS = 4
"""The trial that was selected and three repeats, which have a mean without luck and can be tested: rounds of
seeds leave those alternatives at fewer seeds that are worse."""

Trial: TypeAlias = "StudyTrial | LeaderboardRow"
"""What is ranked: a trial of a study, or its run in MLflow."""
Seed: TypeAlias = tuple[str, str, int]
"""A trial by its study, its configuration and its seed."""
T = TypeVar("T", bound="Trial")
T_co = TypeVar("T_co", bound="Trial", covariant=True)


@dataclass(frozen=True)
class Configuration(Generic[T_co]):
    """A configuration with its trials of full length, one for each seed, the best-validated first."""

    trials: tuple[T_co, ...]
    costs: tuple[float, ...]
    """The lowest validation cost of each trial up to full length."""
    estimate: Estimate
    """Of the repeats, where there are some: luck lowers the cost of the trial that was selected by it."""
    place: int | None = None
    """In the ranking, from 1; None where it lacks seeds that others of its study have."""

    @property
    def best(self) -> T_co:
        """The best-validated trial."""
        return self.trials[0]

    @property
    def title(self) -> str:
        """The name of the trial, without its seed."""
        return self.best.name.partition(" seed ")[0]

    @property
    def is_repeated(self) -> bool:
        """Whether its cost is that of its repeats, which leaves out the trial that was selected."""
        return any(trial.is_repeat for trial in self.trials)

    @property
    def cost_by_seed(self) -> dict[int, float]:
        """The cost of each seed of the estimate."""
        return {
            trial.seed: cost
            for trial, cost in zip(self.trials, self.costs, strict=True)
            if trial.is_repeat or not self.is_repeated
        }

    @property
    def results(self) -> dict[int, float] | float:
        """The costs that tests compare: by seed, or the one cost of a model that counts."""
        return self.estimate.cost if self.best.is_counted else self.cost_by_seed

    def explain(self) -> str:
        """Why it has no place; empty for one that has."""
        if self.place:
            return ""
        if not self.is_repeated:
            return "no result of a repeat"
        return f"{format_count(self.estimate.seeds, 'seed')} with a result, too few"


@dataclass(frozen=True, kw_only=True)
class ShortTrial(Configuration[T_co]):
    """A trial that ended before full length, alone, with its lowest cost up to a milestone."""

    tokens: int
    """At its last report."""
    leader_cost: float | None
    """The lowest validation cost of a ranked trial up to there; None where none has a report up to there.

    Models that count have no value there, and are left out where others are ranked.
    """

    @override
    def explain(self) -> str:
        """Its figure at its last report, and that of the best ranked trial there.

        >>> short.explain()
        'ended early: 120.104 at 300,000 tokens, where the best has 110.421'
        """
        objective = self.best.objective
        own = f"{objective.format_cost(self.estimate.cost, DIGITS)} at {self.tokens:,} {self.best.unit}"
        if self.leader_cost is None:
            return f"has no report where ranked trials have one: {own}"
        how = "is shorter" if self.best.state is TrialState.COMPLETE else "ended early"
        return f"{how}: {own}, where the best has {objective.format_cost(self.leader_cost, DIGITS)}"


@dataclass(frozen=True)
class Ranking(Generic[T_co]):
    """Configurations in the order of their mean cost, and what does not compete with them."""

    tokens: float
    """Full length."""
    configurations: tuple[Configuration[T_co], ...]
    """Those of full length, never empty: those with a place, the best first, then those that lack seeds, of
    which those with more seeds come first."""
    short: tuple[ShortTrial[T_co], ...]
    """Trials that ended before full length, or have no report there: those that came furthest first, of equal
    lengths by cost."""

    @property
    def ranked(self) -> tuple[Configuration[T_co], ...]:
        """The configurations with a place."""
        return tuple(found for found in self.configurations if found.place)

    @property
    def winner(self) -> Configuration[T_co]:
        """The configuration with the lowest mean cost."""
        return self.configurations[0]

    def find_bests(self, key: Callable[[T_co], str]) -> dict[str, Configuration[T_co]]:
        """The best configuration for each key, best first; then the furthest trial of keys without one."""
        found: dict[str, Configuration[T_co]] = {}
        for configuration in (*self.configurations, *self.short):
            found.setdefault(key(configuration.best), configuration)
        return found

    def filter(self, is_kept: Callable[[T_co], bool]) -> "Ranking[T_co] | None":
        """The ranking of the configurations whose best trial is kept; None where none has full length.

        Where only configurations that lack seeds are left, these compete, unless none had a place before.
        """
        kept = [found for found in self.configurations if is_kept(found.best)]
        if not kept:
            return None
        has_places = any(found.place for found in kept) or not self.ranked
        competing = [found for found in kept if found.place or not has_places]
        competing.sort(key=lambda found: found.estimate.cost)  # those that lack seeds are in another order
        rest = [found for found in kept if found.place is None and has_places]
        short = tuple(found for found in self.short if is_kept(found.best))
        return Ranking(self.tokens, _number_places(competing, rest), short)


def rank_trials(trials: Iterable[T]) -> Ranking[T] | None:
    """The ranking of trials of one corpus and label; None when none has a validation.

    Full length is the largest budget that a trial completed; where none did, the tokens of the furthest
    trial. A trial that diverged competes with its best weights from before; without any it has no rank. A
    repeat that diverged is a seed without a result, and so is one of several trainings without a study.
    """
    trials = list(trials)
    validated = [trial for trial in trials if trial.curve]
    if not validated:
        return None
    planned = [trial.planned_tokens for trial in validated if trial.state is TrialState.COMPLETE]
    tokens = max(filter(None, planned), default=max(max(trial.curve) for trial in validated))
    costs = [(trial, find_cost_at(trial, tokens)) for trial in validated]
    reached = [trial for trial, cost in costs if cost is not None]
    ended = [trial for trial, cost in costs if cost is None]
    lost = _list_lost_seeds(trials)
    full = [trial for trial in reached if _identify_seed(trial) not in lost] or reached
    configurations = _group_by_configuration(full, tokens)
    required = _count_required_seeds(trials, full, lost)
    competing, rest = list[Configuration[T]](), list[Configuration[T]]()
    for found in configurations:
        needed = required[found.best.study, found.best.configuration]
        has_all = found.best.is_counted or len(found.trials) >= needed
        (competing if has_all else rest).append(found)
    # The mean of more seeds says more than the luckiest of many single ones.
    rest.sort(key=lambda found: (-len(found.trials), found.estimate.cost))
    return Ranking(tokens, _number_places(competing, rest), _list_short(ended, full))


def explain_lack(trials: Collection[Trial]) -> str:
    """Why trials have no ranking, and what helps where they diverged."""
    diverged = sum(trial.has_diverged for trial in trials)
    failed = sum(trial.state is TrialState.FAILED and not trial.has_diverged for trial in trials)
    reasons = [f"{failed} of {len(trials)} failed"] if failed else []
    if diverged:
        fix = "lower the learning rate or set training.clip_norm"
        reasons.append(f"{diverged} of {len(trials)} diverged; {fix}")
    return f"no trial has a result{': ' + ', '.join(reasons) if reasons else ' yet'}"


def make_curve_frame(trials: Sequence[Trial], objective: Objective, *identifiers: str) -> Any:
    """A pandas data frame with a row for each report of trials, which have the fields `identifiers`."""
    return make_frame(
        (
            {
                "name": trial.name,
                **{identifier: getattr(trial, identifier) for identifier in identifiers},
                "family": trial.family,
                "alternative": trial.alternative,
                "seed": trial.seed,
                "state": trial.state.value,
                "tokens": tokens,
                "cost": cost,
                objective: objective.compute_figure(cost),
            }
            for trial in trials
            for tokens, cost in trial.curve.items()
        ),
        columns=["name", *identifiers, "family", "alternative", "seed", "state", "tokens", "cost", objective],
    )


def has_reached(trial: Trial, tokens: float) -> bool:
    """Whether a trial was trained on so many tokens, or ended by itself before."""
    reached = trial.planned_tokens if trial.state is TrialState.COMPLETE else max(trial.curve)
    return reached is None or reached >= (1 - LENGTH_TOLERANCE) * tokens


def find_cost_at(trial: Trial, tokens: float) -> float | None:
    """The lowest cost up to the report at `tokens`; None where the trial has no report there.

    A trial that ended by itself before has its lowest cost.
    """
    if not has_reached(trial, tokens):
        return None
    curve, planned = trial.curve, trial.planned_tokens
    is_whole = planned is None or planned <= (1 + LENGTH_TOLERANCE) * tokens or max(curve) < tokens
    if trial.state is TrialState.COMPLETE and is_whole:
        return min(curve.values())
    above = min((reported for reported in curve if reported >= tokens), default=math.inf)
    below = max((reported for reported in curve if reported < tokens), default=0)
    is_short = tokens - below <= SHORT_TOLERANCE * (above - below)
    if not is_short and above - tokens > PAST_TOLERANCE * (above - below):
        return None
    stop = below if is_short else above
    return min((cost for reported, cost in curve.items() if reported <= stop), default=None)


def _number_places(
    competing: Iterable[Configuration[T]], rest: Iterable[Configuration[T]]
) -> tuple[Configuration[T], ...]:
    placed = [replace(found, place=place) for place, found in enumerate(competing, start=1)]
    return (*placed, *rest)


def _group_by_configuration(full: Sequence[T], tokens: float) -> list[Configuration[T]]:
    """The configurations of each study, best first; of equal ones the first trial's."""
    groups: dict[str, dict[str, dict[int, T]]] = {}
    # By the number in the name of each; 0 where it has none.
    for trial in sorted(full, key=lambda trial: int((re.findall(r"#(\d+)", trial.name) or [0])[0])):
        by_study = groups.setdefault(trial.configuration, {})
        by_study.setdefault(trial.study, {}).setdefault(trial.seed, trial)
    found: list[Configuration[T]] = []
    for by_seed in chain.from_iterable(map(_drop_repeated, groups.values())):
        known = ((find_cost_at(trial, tokens), trial) for trial in by_seed.values())
        seeds = [(cost, trial) for cost, trial in known if cost is not None]
        costs, trials = zip(*sorted(seeds, key=lambda own: own[0]), strict=True)
        found.append(Configuration(trials, costs, Estimate(cost=costs[0])))
    averaged = [list(configuration.cost_by_seed.values()) for configuration in found]
    intervals = sum(estimate_cost(costs_of_one).low is not None for costs_of_one in averaged)
    estimated = [
        replace(each, estimate=estimate_cost(costs_of_one, max(1, intervals)))
        for each, costs_of_one in zip(found, averaged, strict=True)
    ]
    return sorted(estimated, key=lambda configuration: configuration.estimate.cost)


def _drop_repeated(by_study: Mapping[str, dict[int, T]]) -> list[dict[int, T]]:
    """The trials of a configuration in each study, by seed, without those that another study has as well.

    A study takes the results of another one for equal trials. Trials without a study go last, so that they
    change no figure of a study.
    """
    kept: list[dict[int, T]] = []
    for _, by_seed in sorted(by_study.items(), key=lambda own: (own[0] == NO_STUDY, -len(own[1]))):
        if not any(by_seed.keys() <= other.keys() for other in kept):
            kept.append(by_seed)
    return kept


def _count_required_seeds(
    trials: Iterable[Trial], full: Iterable[Trial], lost: Collection[Seed]
) -> dict[tuple[str, str], int]:
    """By study and configuration: the seeds with which it competes in the study, up to a limit.

    These are the most that two configurations have, so that one that is ahead in a round is compared. One of
    which a seed has failed needs as many as any has: its other seeds may be the lucky ones. One of which a
    seed is `lost` needs as many as were trained of any, itself included, and is no measure for others.
    """
    has_failed = {(t.study, t.configuration) for t in trials if t.state is TrialState.FAILED}
    has_lost = {(study, configuration) for study, configuration, _ in lost}
    counts = _count_seeds(map(_identify_seed, full))
    trained = _count_seeds([*map(_identify_seed, full), *lost])
    repeated: dict[str, list[int]] = {}
    for (study, configuration), count in sorted(counts.items(), key=lambda item: item[1]):
        if count > 1 and (study, configuration) not in has_lost:
            repeated.setdefault(study, []).append(min(MAX_REQUIRED_SEEDS, count))
    required: dict[tuple[str, str], int] = {}
    for each in counts:
        most = repeated.get(each[0], [1])
        required[each] = most[-1] if each in has_failed or len(most) == 1 else most[-2]
        if each in has_lost:
            most_trained = max(count for (study, _), count in trained.items() if study == each[0])
            required[each] = min(MAX_REQUIRED_SEEDS, most_trained)
    return required


def _list_lost_seeds(trials: Sequence[Trial]) -> set[Seed]:
    """The seeds without a result: repeats that diverged, and one of several trainings without a study."""
    counts = _count_seeds(map(_identify_seed, trials))
    return {
        _identify_seed(trial)
        for trial in trials
        if trial.has_diverged
        and (trial.is_repeat or (trial.study == NO_STUDY and counts[NO_STUDY, trial.configuration] > 1))
    }


def _identify_seed(trial: Trial) -> Seed:
    return trial.study, trial.configuration, trial.seed


def _count_seeds(seeds: Iterable[Seed]) -> Counter[tuple[str, str]]:
    return Counter((study, configuration) for study, configuration, _ in set(seeds))


def _list_short(ended: Sequence[T], full: Sequence[T]) -> tuple[ShortTrial[T], ...]:
    leaders = [trial for trial in full if trial.planned_tokens is not None] or full

    @cache  # many trials end at the same rungs
    def find_lead(milestone: int) -> float | None:
        as_long = [leader for leader in leaders if has_reached(leader, milestone)]
        there = [cost for leader in as_long if (cost := find_cost_at(leader, milestone)) is not None]
        before = [cost for leader in as_long for at, cost in leader.curve.items() if at <= milestone]
        return min([*there, *before], default=None)

    short = [
        ShortTrial((trial,), (cost,), Estimate(cost=cost), tokens=milestone, leader_cost=find_lead(milestone))
        for trial in ended
        for cost, milestone in [(min(trial.curve.values()), max(trial.curve))]
    ]
    return tuple(chain.from_iterable(map(_sort_by_configuration, _group_equal_lengths(short))))


def _group_equal_lengths(short: Iterable[ShortTrial[T]]) -> list[list[ShortTrial[T]]]:
    """Those that came furthest first."""
    groups = list[list[ShortTrial[T]]]()
    for found in sorted(short, key=lambda found: -found.tokens):
        if groups and found.tokens >= (1 - LENGTH_TOLERANCE) * groups[-1][0].tokens:
            groups[-1].append(found)
        else:
            groups.append([found])
    return groups


def _sort_by_configuration(short: Sequence[ShortTrial[T]]) -> list[ShortTrial[T]]:
    """The lowest cost first, with the seeds of a configuration together."""
    by_cost, lowest = sorted(short, key=lambda found: found.estimate.cost), dict[tuple[str, str], int]()
    for place, found in enumerate(by_cost):
        lowest.setdefault((found.best.study, found.best.configuration), place)
    return sorted(by_cost, key=lambda found: lowest[found.best.study, found.best.configuration])
