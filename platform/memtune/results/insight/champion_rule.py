"""The rule by which a study chooses its best configuration: the best value, within limits if it has some."""

from collections.abc import Iterable

from memtune.corpora import Corpus
from memtune.errors import MissingSourceError
from memtune.results.ranking.selection import RankedTrial, Ranking
from memtune.search import Outcome
from memtune.studies.definition.study_terms import ChampionLimits
from memtune.training import TrialConfig, compute_sizes

__all__ = ["apply_limits", "describe_rule"]


def apply_limits(
    ranking: Ranking, limits: ChampionLimits, outcomes: Iterable[Outcome], corpus: Corpus | None
) -> Ranking:
    """The ranking of the configurations within the limits; of all where none is, or where sizes are unknown.

    `outcomes` are those that the ranking was made of.
    """
    if not limits.is_set or corpus is None:
        return ranking
    outcome_by_identity = {outcome.identity: outcome for outcome in outcomes}

    def is_within(trial: RankedTrial) -> bool:
        outcome = outcome_by_identity[trial.identity]
        try:
            sizes = compute_sizes(TrialConfig.model_validate(outcome.configuration), corpus)
        except MissingSourceError:  # the sizes of a user's family need its source
            return True
        return limits.are_met(sizes, outcome.usage.tokens_per_second)

    return ranking.filter(is_within) or ranking


def describe_rule(limits: ChampionLimits, are_met: bool = True) -> str:
    """The rule in words; not `are_met` where no configuration is within the limits."""
    if not limits.is_set:
        return "the best value"
    if are_met:
        return f"the best value within [champion] {limits}"
    return f"the best value, because no configuration is within [champion] {limits}"
