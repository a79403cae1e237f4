"""The trials of a study as contenders for its ranking."""

from collections.abc import Callable, Sequence

from memtune.results.selection import Contender
from memtune.search import Outcome
from memtune.studies.seed_repeats import TrialNames
from memtune.training import TrialConfig

__all__ = ["CountEpochTokens", "list_contenders"]

CountEpochTokens = Callable[[TrialConfig], int | None]
"""The tokens of an epoch of a trial; None where its corpus is not known any more."""


def list_contenders(
    study: str,
    outcomes: Sequence[Outcome],
    repeats: Sequence[Outcome],
    count_epoch_tokens: CountEpochTokens,
) -> list[Contender]:
    """The trials of a study and then its repeats, each named after the trial that it repeats."""
    names = TrialNames(outcomes)

    def make_contender(outcome: Outcome, is_repeat: bool) -> Contender:
        config = TrialConfig.model_validate(outcome.configuration)
        return Contender(
            name=names.name(outcome.number, config) if is_repeat else f"#{outcome.number}",
            identity=outcome.identity,
            configuration=config.configuration_identity,
            family=config.model.family,
            study=study,
            seed=config.seed,
            state=outcome.state,
            curve=outcome.curve,
            planned_tokens=_plan_tokens(config, count_epoch_tokens),
        )

    originals = [make_contender(outcome, False) for outcome in outcomes]
    return originals + [make_contender(outcome, True) for outcome in repeats]


def _plan_tokens(config: TrialConfig, count_epoch_tokens: CountEpochTokens) -> float | None:
    """The budget in tokens; None for a model that counts, and where the length of an epoch is not known."""
    if config.training is None or config.training.tokens:
        return config.plan_tokens(0)
    epoch_tokens = count_epoch_tokens(config)
    return None if epoch_tokens is None else config.plan_tokens(epoch_tokens)
