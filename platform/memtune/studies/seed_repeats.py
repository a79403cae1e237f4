"""Repeats of the best configurations under other seeds: their space, and their names."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memtune.search import StoredTrial
from memtune.seed_statistics import SeedCosts
from memtune.spaces import Branch, Group, Space, override_space
from memtune.studies.definition.study_terms import name_alternative
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.values import digest


def select_repeated(outcomes: Iterable[StoredTrial], count: int, compared: str) -> list[StoredTrial]:
    """The `count` complete outcomes to repeat: the best of each alternative first, then the others.

    `compared` is the field whose values are the alternatives. A model that counts has one result under every
    seed and is not repeated.
    """
    complete = [each for each in _rank_complete(outcomes) if each.config.model.is_trained_by_gradient]
    first: dict[str, StoredTrial] = {}
    for outcome in complete:
        first.setdefault(name_alternative(outcome.config, compared), outcome)
    best = [*first.values()]
    return [*best, *(outcome for outcome in complete if outcome not in best)][:count]


def list_repeatable(outcomes: Iterable[StoredTrial], precision: str | None) -> list[StoredTrial]:
    """The complete outcomes, best first, in the precision of their repeats; models that count among them."""
    unique: dict[str, StoredTrial] = {}  # those that differ in precision alone have the same repeats
    for outcome in _rank_complete(outcomes):
        repeated = replace(outcome, configuration=_set_precision(outcome.configuration, precision))
        unique.setdefault(repeated.config.configuration_identity, repeated)
    return [*unique.values()]


def collect_seed_costs(
    repeated: Sequence[StoredTrial], repeats: Iterable[StoredTrial], seeds: Collection[int]
) -> dict[str, SeedCosts]:
    """The costs of each outcome by its number: of its ended repeats under these seeds.

    A repeat that failed or diverged has none.
    """
    costs: dict[str, dict[int, float | None]] = {str(outcome.number): {} for outcome in repeated}
    names = {outcome.config.configuration_identity: str(outcome.number) for outcome in repeated}
    for repeat in repeats:
        name = names.get(repeat.config.configuration_identity)
        if name is not None and not repeat.state.is_open and repeat.config.seed in seeds:
            has_result = repeat.state is TrialState.COMPLETE and not repeat.has_diverged
            costs[name][repeat.config.seed] = repeat.value if has_result else None
    counted = {
        str(outcome.number): outcome.value
        for outcome in repeated
        if outcome.value is not None and not outcome.config.model.is_trained_by_gradient
    }
    return {**costs, **counted}


def make_repeat_space(
    outcomes: Iterable[StoredTrial],
    seeds: Sequence[int],
    precision: str | None = None,
    started: Iterable[StoredTrial] = (),
) -> Space:
    """The space of every outcome's configuration under every seed after the first, which the search had.

    Its points are in the order of the seeds, and for each in that of the outcomes: a budget that ends leaves
    out the last seeds, not the best outcomes.

    With a `precision` that a configuration did not have, that configuration is trained in it under all seeds:
    values of different precisions have no common mean. The repeats that were `started` before are in the
    space too: of configurations that were among the best then, or under seeds that are no longer asked for.
    """
    options: dict[str, dict[str, Any]] = {}
    changed = [(each, _set_precision(each.configuration, precision)) for each in outcomes]
    for seed in seeds:
        for outcome, configuration in changed:
            if seed != seeds[0] or configuration != outcome.configuration:
                options[f"trial {outcome.number} seed {seed}"] = {**configuration, "seed": seed}
    known = {digest(configuration) for configuration in options.values()}
    for repeat in started:
        if digest(repeat.configuration) not in known:
            options[f"repeat {repeat.number}"] = repeat.configuration
    # Optuna refuses a parameter whose choices change, and they change with the best trials and the seeds.
    key = f"repeat of {digest(options)[:8]}"
    groups: dict[str, Group] = {}
    for name, configuration in options.items():
        constants = override_space(Space("repeats", Group({})), configuration).root
        assert isinstance(constants, Group)
        groups[name] = constants
    return Space("repeats", Branch(key, groups, is_key_written=False))


def _set_precision(configuration: Mapping[str, Any], precision: str | None) -> dict[str, Any]:
    """The configuration in another precision, where one is given and the model is trained."""
    training = configuration.get("training")
    if not precision or not training:
        return dict(configuration)
    return {**configuration, "training": {**training, "precision": precision}}


class TrialNames:
    """Names of a study's trials: "#3" for a trial by its number, "#3 seed 1" for its repeat under seed 1."""

    def __init__(self, repeated: Iterable[StoredTrial] = ()) -> None:
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


def _rank_complete(outcomes: Iterable[StoredTrial]) -> list[StoredTrial]:
    complete = [each for each in outcomes if each.state is TrialState.COMPLETE and each.value is not None]
    return sorted(complete, key=_order)


def _order(outcome: StoredTrial) -> tuple[bool, float, int]:
    """The best first, because the best are repeated."""
    return (outcome.value is None, outcome.value or 0.0, outcome.number)


def _identify_without_precision(config: TrialConfig) -> str:
    if config.training is None:
        return config.configuration_identity
    training = config.training.model_copy(update={"precision": "float32"})
    return f"any precision {config.model_copy(update={'training': training}).configuration_identity}"
