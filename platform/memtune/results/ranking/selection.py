"""The ranking of trials: configurations by the mean of their seeds, at equal numbers of tokens.

A configuration is that of a trial without its seed. Configurations compete at full length, the largest number
of tokens that a trial completed. A trial that ended earlier is listed apart with its value at the last
milestone that it shares with the ranked ones. Where a study repeats configurations under further seeds, only
configurations with all seeds compete: the best of many single seeds is the luckiest one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memtune.estimate import Estimate, estimate_cost
from memtune.objective import Objective
from memtune.trial_state import TrialState

__all__ = [
    "RankedConfiguration",
    "RankedTrial",
    "Ranking",
    "ShortTrial",
    "find_cost_at",
    "is_rankable",
    "rank_trials",
]

LENGTH_TOLERANCE = 0.01
"""Lengths that differ by less are equal: budgets may be given in epochs or in tokens."""
MAX_COST = 20.0
"""Nats per word. Guessing costs the logarithm of the vocabulary's size, and no vocabulary has e^20 words."""


@dataclass(frozen=True)
class RankedTrial:
    """A trial, as far as its rank depends on it."""

    name: str
    identity: str
    configuration: str
    """The identity of the configuration without its seed."""
    family: str
    study: str
    seed: int
    state: TrialState
    curve: Mapping[int, float]
    """Validation cost by tokens seen, lower is better."""
    planned_tokens: float | None
    """Its budget in tokens; None for a model that counts, which reads the text once."""
    is_counted: bool = False
    """Whether its model learns by counting, which has one result under every seed."""

    def has_reached(self, tokens: float) -> bool:
        """Whether the trial was trained on so many tokens, or ended by itself before."""
        if self.state is TrialState.COMPLETE:
            reached = self.planned_tokens
        else:
            reached = max(self.curve)
        return reached is None or reached >= (1 - LENGTH_TOLERANCE) * tokens


@dataclass(frozen=True)
class RankedConfiguration:
    """A configuration with its trials of full length, one for each seed, the best-validated first."""

    trials: tuple[RankedTrial, ...]
    costs: tuple[float, ...]
    """The lowest validation cost of each trial up to full length."""
    estimate: Estimate

    @property
    def best(self) -> RankedTrial:
        """The best-validated trial."""
        return self.trials[0]

    @property
    def title(self) -> str:
        """The family and the name of the trial, without the seed of a repeat."""
        return f"{self.best.family} {self.best.name.partition(' ')[0]}"

    @property
    def cost_by_seed(self) -> dict[int, float]:
        """The cost of each seed."""
        return {trial.seed: cost for trial, cost in zip(self.trials, self.costs, strict=True)}


@dataclass(frozen=True)
class ShortTrial:
    """A trial that ended before full length."""

    trial: RankedTrial
    tokens: int
    """The last milestone that it shares with the ranked trials."""
    cost: float
    """Its lowest validation cost up to that milestone."""
    leader_cost: float
    """The lowest validation cost of a ranked trial up to that milestone.

    Models that count have no value there, and are left out where others are ranked.
    """

    def describe(self, objective: Objective, digits: int) -> str:
        """The figure at the milestone, and that of the best ranked trial there.

        >>> short.describe(Objective.PERPLEXITY, 1)
        '120.1 at 300,000 tokens, where the best has 110.4'
        """
        own, leader = (objective.format_cost(cost, digits) for cost in (self.cost, self.leader_cost))
        return f"{own} at {self.tokens:,} tokens, where the best has {leader}"


@dataclass(frozen=True)
class Ranking:
    """Configurations in the order of their mean cost, and what does not compete with them."""

    tokens: float
    """Full length."""
    ranked: tuple[RankedConfiguration, ...]
    """Configurations of full length with all seeds, best first; never empty."""
    fewer_seeds: tuple[RankedConfiguration, ...]
    """Configurations of full length that lack seeds which others of their study have, best first."""
    short: tuple[ShortTrial, ...]
    """Trials that ended before full length: those that came furthest first, then by their cost."""

    @property
    def winner(self) -> RankedConfiguration:
        """The configuration with the lowest mean cost."""
        return self.ranked[0]

    @property
    def runner_up(self) -> RankedConfiguration | None:
        """The configuration after the winner."""
        return self.ranked[1] if len(self.ranked) > 1 else None

    @property
    def configurations(self) -> tuple[RankedConfiguration, ...]:
        """All configurations of full length, those with all seeds first."""
        return self.ranked + self.fewer_seeds

    def filter(self, is_kept: Callable[[RankedTrial], bool]) -> "Ranking | None":
        """The ranking of the configurations whose best trial is kept; None where none has full length.

        Where only configurations that lack seeds are left, these compete.
        """
        ranked, fewer_seeds = (
            tuple(found for found in configurations if is_kept(found.best))
            for configurations in (self.ranked, self.fewer_seeds)
        )
        short = tuple(found for found in self.short if is_kept(found.trial))
        if not ranked:
            ranked, fewer_seeds = fewer_seeds, ()
        return Ranking(self.tokens, ranked, fewer_seeds, short) if ranked else None

    def find_best(self, family: str) -> RankedConfiguration | None:
        """The best configuration of a family at full length; None where the family has none."""
        return next((found for found in self.configurations if found.best.family == family), None)


def rank_trials(trials: Iterable[RankedTrial]) -> Ranking | None:
    """The ranking of trials of one corpus and label; None when none has a validation that can be ranked.

    A trial that diverged competes with its best weights from before; without any it has no rank.
    """
    validated = [trial for trial in trials if any(map(is_rankable, trial.curve.values()))]
    if not validated:
        return None
    tokens = _find_full_length(validated)
    full = [trial for trial in validated if trial.has_reached(tokens)]
    configurations = _group_by_configuration(full, tokens)
    required = _count_seeds_by_study(configurations)
    has_all = {
        found.best.configuration: len(found.trials) == required[found.best.study] for found in configurations
    }
    return Ranking(
        tokens,
        tuple(found for found in configurations if has_all[found.best.configuration]),
        tuple(found for found in configurations if not has_all[found.best.configuration]),
        _list_short(validated, full, tokens),
    )


def is_rankable(cost: float) -> bool:
    """Whether a validation is that of a model, and not of weights that diverged."""
    return cost < MAX_COST


def find_cost_at(curve: Mapping[int, float], tokens: float) -> float:
    """The lowest cost up to the first report at or past `tokens`; of the whole curve where there is none."""
    stop = min((reported for reported in curve if reported >= tokens), default=max(curve))
    return min(cost for reported, cost in curve.items() if reported <= stop)


def _find_full_length(validated: Sequence[RankedTrial]) -> float:
    """The largest budget that a trial completed; where none did, the tokens of the furthest trial."""
    planned = [trial.planned_tokens for trial in validated if trial.state is TrialState.COMPLETE]
    return max(filter(None, planned), default=max(max(trial.curve) for trial in validated))


def _group_by_configuration(full: Sequence[RankedTrial], tokens: float) -> list[RankedConfiguration]:
    """The configurations of trials of full length, best first; of equal ones the first trial's."""
    groups: dict[str, dict[int, RankedTrial]] = {}
    for trial in full:
        groups.setdefault(trial.configuration, {}).setdefault(trial.seed, trial)
    found = [_estimate_configuration(list(by_seed.values()), tokens) for by_seed in groups.values()]
    return sorted(found, key=lambda configuration: configuration.estimate.cost)


def _estimate_configuration(seeds: Sequence[RankedTrial], tokens: float) -> RankedConfiguration:
    costs = [(find_cost_at(trial.curve, tokens), place) for place, trial in enumerate(seeds)]
    ordered = sorted(costs)
    trials = tuple(seeds[place] for _, place in ordered)
    return RankedConfiguration(
        trials, tuple(cost for cost, _ in ordered), estimate_cost([cost for cost, _ in ordered])
    )


def _count_seeds_by_study(configurations: Sequence[RankedConfiguration]) -> dict[str, int]:
    """The most seeds of a configuration in each study."""
    most: dict[str, int] = {}
    for configuration in configurations:
        study = configuration.best.study
        most[study] = max(most.get(study, 0), len(configuration.trials))
    return most


def _list_short(
    validated: Sequence[RankedTrial], full: Sequence[RankedTrial], tokens: float
) -> tuple[ShortTrial, ...]:
    leaders = [trial for trial in full if trial.planned_tokens is not None] or full
    short = []
    for trial in validated:
        if trial.has_reached(tokens):
            continue
        milestone = max(trial.curve)
        leader = min(find_cost_at(other.curve, milestone) for other in leaders)
        short.append(ShortTrial(trial, milestone, min(trial.curve.values()), leader))
    return tuple(sorted(short, key=lambda found: (-found.tokens, found.cost)))
