"""The trials of a study as its ranking sees them."""

from collections.abc import Callable, Sequence

from memtune.results.ranking.selection import RankedTrial
from memtune.search import Outcome
from memtune.studies.seed_repeats import TrialNames
from memtune.training import TrialConfig

__all__ = ["CountEpochTokens", "list_ranked_trials"]

CountEpochTokens = Callable[[TrialConfig], int | None]
"""The tokens of an epoch of a trial; None where its corpus is not known any more."""


def list_ranked_trials(
    study: str,
    outcomes: Sequence[Outcome],
    repeats: Sequence[Outcome],
    count_epoch_tokens: CountEpochTokens,
) -> list[RankedTrial]:
    """The trials of a study and then its repeats, each named after the trial that it repeats."""
    names = TrialNames(outcomes)

    def make_ranked_trial(outcome: Outcome, is_repeat: bool) -> RankedTrial:
        config = TrialConfig.model_validate(outcome.configuration)
        return RankedTrial(
            name=names.name(outcome.number, config) if is_repeat else f"#{outcome.number}",
            identity=outcome.identity,
            configuration=config.configuration_identity,
            family=config.model.family,
            study=study,
            seed=config.seed,
            state=outcome.state,
            curve=outcome.curve,
            planned_tokens=_plan_tokens(config, count_epoch_tokens),
            is_counted=not config.model.is_trained_by_gradient,
        )

    originals = [make_ranked_trial(outcome, False) for outcome in outcomes]
    return originals + [make_ranked_trial(outcome, True) for outcome in repeats]


def _plan_tokens(config: TrialConfig, count_epoch_tokens: CountEpochTokens) -> float | None:
    """The budget in tokens; None for a model that counts, and where the length of an epoch is not known."""
    if config.training is None or config.training.tokens:
        return config.plan_tokens(0)
    epoch_tokens = count_epoch_tokens(config)
    return None if epoch_tokens is None else config.plan_tokens(epoch_tokens)
