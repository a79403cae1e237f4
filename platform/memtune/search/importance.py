"""How much each parameter of a study matters for a good value: conditional PED-ANOVA.

Watanabe et al. (2023), "PED-ANOVA", arXiv:2304.10255; for parameters of branches arXiv:2601.20800, theorem
4.2. The importance compares the values of a parameter in the best trials with those in all trials. A
parameter that only some trials have is compared within these, weighted by their shares of the best and of all
trials.

The noise level of a study is the largest importance that a parameter has in NOISE_DRAWS random exchanges of
its trials' values, in which none has an effect. Where none has one in the study either, it has the largest of
all 20 with a chance of 5 %.
"""

import copy
import math
import random
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.search.compatibility import RestrictedStudy, suppress_optuna_messages
from memtune.search.samplers.observed_values import extrapolate_stopped
from memtune.search.trial_store import select_started
from memtune.values import Value, shorten_field

MIN_IMPORTANCE_TRIALS = 10
MIN_PARAMETER_TRIALS = 5
"""Trials that must have a parameter.

PED-ANOVA estimates the density of a parameter from its values in the trials that have it. Of two trials of
which one is good, any parameter differs between the best and all, and its importance is as large as that of
a parameter that decides. Five is what Optuna recommends for the best trials, whose density is found alike.
"""
NOISE_DRAWS = 19
MIN_BEST_TRIALS, MIN_BEST_SHARE = 5, 0.1
"""The best trials are a tenth of all, and five at least, which Optuna recommends."""


class ParameterImportance(Value):
    """The importance of one parameter."""

    name: str
    """In the study, with the options of branches: `lstm.training.optimiser.adam.learning_rate`."""
    field: str
    """In a configuration: `training.optimiser.learning_rate`."""
    conditions: dict[str, str]
    """The options of branches, by field, under which a trial has the parameter."""
    trials: int
    """Trials that have the parameter."""
    importance: float
    """Its share of the importance of all listed parameters; the shares add up to 1."""
    is_above_noise: bool
    """Whether it is above the noise level of the study."""

    @property
    def label(self) -> str:
        """The field with its conditions.

        >>> importance.label
        'training.optimiser.learning_rate (family lstm, optimiser adam)'
        """
        if not self.conditions:
            return self.field
        chosen = ", ".join(f"{shorten_field(field)} {option}" for field, option in self.conditions.items())
        return f"{self.field} ({chosen})"


def rank_parameters(trials: Sequence[FrozenTrial]) -> list[ParameterImportance]:
    """The parameters of a study's started trials, the most important first; empty below ten trials.

    Parameters that fewer than MIN_PARAMETER_TRIALS trials have are left out, and so is one that is left
    alone: its share of 100 % would say nothing. Trials that were stopped early count with their extrapolated
    final value (`extrapolate_stopped`).
    """
    complete = [t for t in extrapolate_stopped(select_started(trials)) if t.state is OptunaState.COMPLETE]
    valued = [trial for trial in complete if trial.value is not None and math.isfinite(trial.value)]
    if len(valued) < MIN_IMPORTANCE_TRIALS:
        return []
    # Imported here: it imports scikit-learn, which takes a second, and only a study that ends needs it.
    from optuna.importance import PedAnovaImportanceEvaluator

    evaluator = PedAnovaImportanceEvaluator(
        target_quantile=max(MIN_BEST_SHARE, MIN_BEST_TRIALS / len(valued))
    )
    found = _evaluate(evaluator, valued)
    counts = Counter(name for trial in valued for name in trial.params)
    compared = {name: found[name] for name in found if counts[name] >= MIN_PARAMETER_TRIALS}
    if len(compared) == 1 < len(found):
        return []
    total = sum(compared.values()) or 1.0
    noise = _find_noise_level(evaluator, valued, compared)
    return [
        _describe(name, importance / total, importance > noise, valued)
        for name, importance in sorted(compared.items(), key=lambda item: (-item[1], item[0]))
    ]


def _evaluate(evaluator: Any, trials: Sequence[FrozenTrial]) -> dict[str, float]:
    with suppress_optuna_messages(), warnings.catch_warnings():
        # Optuna warns of branches with one trial, which it leaves out.
        warnings.simplefilter("ignore")
        study: Any = RestrictedStudy(optuna.create_study(), trials)
        return dict(evaluator.evaluate(study))


def _find_noise_level(evaluator: Any, trials: Sequence[FrozenTrial], names: Collection[str]) -> float:
    """The largest importance of these parameters over exchanges of the trials' values."""
    generator, values = random.Random(0), [trial.value for trial in trials]
    level = 0.0
    for _ in range(NOISE_DRAWS):
        generator.shuffle(values)
        exchanged = []
        for trial, value in zip(trials, values, strict=True):
            exchanged.append(copy.copy(trial))
            exchanged[-1].value = value
        found = _evaluate(evaluator, exchanged)
        level = max([level, *(found[name] for name in names)])
    return level


def _describe(
    name: str, share: float, is_above_noise: bool, trials: Sequence[FrozenTrial]
) -> ParameterImportance:
    having = [trial for trial in trials if name in trial.params]
    parts, conditions = name.split("."), dict[str, str]()
    chosen_places: set[int] = set()
    for place, option in enumerate(parts[:-1]):
        if branch := _find_branch(parts[:place], option, having):
            conditions[_drop(branch.split("."), chosen_places)] = option
            chosen_places.add(place)
    return ParameterImportance(
        name=name,
        field=_drop(parts, chosen_places),
        conditions=conditions,
        trials=len(having),
        importance=share,
        is_above_noise=is_above_noise,
    )


def _find_branch(prefix: Sequence[str], option: str, having: Sequence[FrozenTrial]) -> str | None:
    """The choice other than `option` that all trials with the parameter made; None where it is not an option.

    The study database has no conditions; the names of parameters hold them.
    """
    depth = len(prefix)
    for name, distribution in having[0].distributions.items():
        parts = name.split(".")
        is_beside = parts[:depth] == list(prefix) and len(parts) == depth + 1
        if (
            is_beside
            and isinstance(distribution, CategoricalDistribution)
            and all(trial.params.get(name) == option for trial in having)
        ):
            return name
    return None


def _drop(parts: Sequence[str], places: set[int]) -> str:
    return ".".join(part for place, part in enumerate(parts) if place not in places)
