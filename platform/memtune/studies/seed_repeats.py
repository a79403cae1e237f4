"""Repeats of the best configurations under other seeds: their space, and their names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memtune.search import Outcome
from memtune.spaces import Branch, Group, Space, override_space
from memtune.studies.definition.study_terms import name_alternative
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.values import digest


def select_repeated(outcomes: Iterable[Outcome], count: int, compared: str) -> list[Outcome]:
    """The `count` complete outcomes to repeat: the best of each alternative first, then the others.

    `compared` is the field whose values are the alternatives. A model that counts has one result under every
    seed and is not repeated.
    """
    complete = [
        outcome
        for outcome in outcomes
        if outcome.state is TrialState.COMPLETE
        and outcome.value is not None
        and outcome.config.model.is_trained_by_gradient
    ]
    first: dict[str, Outcome] = {}
    for outcome in sorted(complete, key=_order):
        first.setdefault(name_alternative(outcome.config, compared), outcome)
    others = [outcome for outcome in complete if outcome not in first.values()]
    return [*first.values(), *sorted(others, key=_order)][:count]


def make_repeat_space(
    outcomes: Iterable[Outcome],
    seeds: Sequence[int],
    precision: str | None = None,
    started: Iterable[Outcome] = (),
) -> Space:
    """The space of every outcome's configuration under every seed after the first, which the search had.

    With a `precision` that a configuration did not have, that configuration is trained in it under all seeds:
    values of different precisions have no common mean. The repeats that were `started` before are in the
    space too: of configurations that were among the best then, or under seeds that are no longer asked for.
    """
    options: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        configuration, kept = dict(outcome.configuration), seeds[1:]
        training = configuration.get("training")
        if precision and training and training.get("precision") != precision:
            configuration["training"], kept = {**training, "precision": precision}, seeds
        for seed in kept:
            options[f"trial {outcome.number} seed {seed}"] = {**configuration, "seed": seed}
    known = {digest(configuration) for configuration in options.values()}
    for repeat in started:
        if digest(repeat.configuration) not in known:
            options[f"repeat {repeat.number}"] = repeat.configuration
    # Optuna refuses a parameter whose choices change, and they change with the best trials and the seeds.
    key = f"repeat of {digest(options)[:8]}"
    groups = {name: _make_constants(configuration) for name, configuration in options.items()}
    return Space("repeats", Branch(key, groups, is_key_written=False))


def _make_constants(configuration: Mapping[str, Any]) -> Group:
    constants = override_space(Space("repeats", Group({})), configuration).root
    assert isinstance(constants, Group)
    return constants


class TrialNames:
    """Names of a study's trials: "#3" for a trial by its number, "#3 seed 1" for its repeat under seed 1."""

    def __init__(self, repeated: Iterable[Outcome] = ()) -> None:
        """`repeated` are the trials whose repeats are named; all others are named by their number."""
        self._originals: dict[str, int] = {}
        """By the identity of the configuration, and by that of the configuration in any precision."""
        for outcome in sorted(repeated, key=_order):
            self._originals[outcome.config.configuration_identity] = outcome.number
            self._originals.setdefault(_identify_without_precision(outcome.config), outcome.number)

    def find_original(self, config: TrialConfig) -> int | None:
        """The number of the trial that a configuration repeats; None where it repeats none."""
        own = self._originals.get(config.configuration_identity)
        return self._originals.get(_identify_without_precision(config)) if own is None else own

    def name(self, number: int, config: TrialConfig) -> str:
        """The name of a trial with this number among the trials, or among the repeats."""
        original = self.find_original(config)
        return f"#{number}" if original is None else f"#{original} seed {config.seed}"


def _order(outcome: Outcome) -> tuple[bool, float, int]:
    """The best first, because the best are repeated."""
    return (outcome.value is None, outcome.value or 0.0, outcome.number)


def _identify_without_precision(config: TrialConfig) -> str:
    if config.training is None:
        return config.configuration_identity
    training = config.training.model_copy(update={"precision": "float32"})
    return f"any precision {config.model_copy(update={'training': training}).configuration_identity}"
