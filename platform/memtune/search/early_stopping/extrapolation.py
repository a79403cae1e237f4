"""Early stopping by extrapolated learning curves.

The idea is from Kadra et al. (2023), "Scaling Laws for Hyperparameter Optimization" (Deep Power Laws, NeurIPS
2023): learning curves of networks follow power laws, so the start of a curve predicts the value at full
length. Their model is an ensemble of networks that predict the coefficients from the configuration and that
decide by expected improvement which trial trains one more step. Here each curve is fitted by itself and the
rule only stops trials: a trial whose lowest plausible value at full length is above the best values that
`max_survivors` other trials have reached already. It never stops a trial whose curve is not a power law.
"""

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from memtune.search.early_stopping.power_law import bound_final_value
from memtune.search.early_stopping.rule import CONTINUE, Action, Decision, EarlyStopping, Rule
from memtune.search.outcomes import Outcome
from memtune.trial_state import TrialState

__all__ = ["Extrapolation", "ExtrapolationConfig"]


class ExtrapolationConfig(EarlyStopping):
    """A trial is stopped from `grace` tokens on when it cannot be among the best `max_survivors` any more."""

    kind: Literal["extrapolation"] = "extrapolation"
    grace: int = Field(default=1, ge=1)
    """Predicted tokens of a trial before which it is not stopped."""
    max_survivors: int = Field(default=4, ge=1)
    """Number of best trials of which a trial must be able to become one."""

    def make_rule(self, trial_tokens: int) -> "Extrapolation":
        """The rule for curves that end at `trial_tokens`."""
        return Extrapolation(self, trial_tokens)

    def describe(self) -> str:
        """The rule in a few words."""
        return "extrapolated learning curves"


class Extrapolation(Rule):
    """The curves of one study and the trials stopped on them."""

    def __init__(self, config: ExtrapolationConfig, trial_tokens: int) -> None:
        self._config, self._trial_tokens = config, trial_tokens
        self._curves: dict[int, dict[int, float]] = {}
        self._stops: dict[int, Decision] = {}

    def decide(self, number: int, family: str, tokens: int, value: float) -> Decision:
        """Stop the trial when its bound is above the value that it has to reach."""
        curve = self._curves.setdefault(number, {})
        if tokens in curve or number in self._stops:
            return self._stops.get(number, CONTINUE)
        curve[tokens] = value
        if self._config.grace <= tokens < self._trial_tokens:
            bound, threshold = bound_final_value(curve, self._trial_tokens), self._find_threshold(number)
            if bound is not None and bound > threshold:
                reason = f"its lowest plausible final value {bound:.4g} is above {threshold:.4g}"
                best = f"which {self._config.max_survivors} other trials have reached"
                self._stops[number] = Decision(Action.STOP, f"extrapolation: {reason}, {best}")
        return self._stops.get(number, CONTINUE)

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """Restore the curves; stopped trials stay stopped."""
        for outcome in outcomes:
            self._curves[outcome.number] = dict(outcome.curve)
            if outcome.state is TrialState.STOPPED:
                self._stops[outcome.number] = Decision(Action.STOP, "stopped before")

    def _find_threshold(self, number: int) -> float:
        """The worst of the best values of the `max_survivors` best other trials; infinity with fewer."""
        best = sorted(
            min((value for value in curve.values() if not math.isnan(value)), default=math.inf)
            for other, curve in self._curves.items()
            if other != number
        )
        index = self._config.max_survivors - 1
        return best[index] if index < len(best) else math.inf
