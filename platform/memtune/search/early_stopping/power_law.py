"""How far a learning curve can still fall: a power law with an interval."""

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import fdtri

__all__ = ["bound_final_value", "fit_exponent"]

EXPONENTS = np.geomspace(0.05, 4.0, 60)
MIN_REPORTS = 5
CONFIDENCE = 0.95
MIN_RELATIVE_NOISE = 0.005
"""Standard deviation of a value over seeds relative to the value, at least: 0.4 % on Penn Treebank."""
MAX_RELATIVE_RESIDUAL = 0.01
"""A curve with residuals above this standard deviation, relative to its last value, is not a power law."""


def bound_final_value(curve: Mapping[int, float], trial_tokens: int) -> float | None:
    """The lowest plausible value at `trial_tokens` of a curve of values by tokens; lower is better.

    The curve is a + b t^-c with a, b >= 0. The bound is the lowest end among the exponents c whose fit is not
    worse than the best one by an F test, less two standard deviations of the noise. None where that says
    nothing: fewer than five reports, a value that is not finite, or a curve that is not a power law, such as
    one that rises or falls in steps.
    """
    tokens = np.array(sorted(curve), dtype=float) / trial_tokens
    values = np.array([curve[key] for key in sorted(curve)])
    if len(values) < MIN_REPORTS or not np.isfinite(values).all():
        return None
    fits = np.array([fit_exponent(tokens, values, exponent) for exponent in EXPONENTS])
    ends, errors = fits[:, 0], fits[:, 1]
    freedom = len(values) - 3
    noise = math.sqrt(max(errors.min() / freedom, (MIN_RELATIVE_NOISE * values[-1]) ** 2))
    if math.sqrt(errors.min() / freedom) > MAX_RELATIVE_RESIDUAL * abs(values[-1]):
        return None
    plausible = errors - errors.min() <= noise**2 * fdtri(1, freedom, CONFIDENCE)
    return float(ends[plausible].min() - 2 * noise)


def fit_exponent(tokens: np.ndarray, values: np.ndarray, exponent: float) -> tuple[float, float]:
    """(value at the end, sum of squared errors) of the best a + b t^-c with a, b >= 0.

    `tokens` are relative to the end, which is 1.
    """
    powers = tokens**-exponent
    deviations = powers - powers.mean()
    slope = max(0.0, float(deviations @ values) / float(deviations @ deviations))
    level = float(values.mean()) - slope * float(powers.mean())
    if level < 0:
        level, slope = 0.0, max(0.0, float(powers @ values) / float(powers @ powers))
    errors = values - level - slope * powers
    return level + slope, float(errors @ errors)
