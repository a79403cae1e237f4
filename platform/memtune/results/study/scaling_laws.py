"""Which family is best at a larger budget: loss against size and data, fitted per family.

Hoffmann et al. (2022), "Training Compute-Optimal Large Language Models", section 3.3: with N parameters and
D tokens the loss is L(N, D) = E + A N^-a + B D^-b in nats per token, fitted in log L under a Huber loss.
Compute is C = D times the forward pass's multiply-adds per token. At a budget C each family takes its best N.

Intervals are of a parametric bootstrap: curves are drawn from the fit with the deviations of whole trials and
of single reports that the residuals show, at least that of seeds, and fitted again. Few sizes tell little of
the deviation of trials, so each draw takes another one, from its chi-square distribution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memtune.arguments import check_type
from memtune.data_frames import make_frame, render_table
from memtune.errors import StudyError
from memtune.number_format import format_count
from memtune.objective import Objective
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import open_view
from memtune.settings import Settings
from memtune.values import Value

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

MIN_SIZES, MIN_LENGTHS = 5, 4
"""Intervals of fewer hold less than 95 %."""
MIN_TOKENS_SHARE = 1 / 4
"""Of the longest training: earlier reports are not on the power law."""
HUBER_SCALE = 1e-2
"""In log L. The paper has 1e-3, below the noise of seeds here, which makes intervals half as wide again."""
FIT_TOLERANCE = 1e-7
SEED_DEVIATION = 0.004
"""Standard deviation of a trial's loss over seeds, relative, at least: that on Penn Treebank."""
FITTED_BY_SIZE, FITTED_BY_DATA = 3, 2
"""Values of the law that the differences between sizes determine (E, A, a), and reports of a size (B, b)."""
MAX_EXPONENT = 2.0
RESAMPLES = 200
SIZES_PER_BUDGET = 80
PREDICTIONS = 12
BACKTEST_SHARE = 1 / 3
"""Of the largest compute: the reports up to it predict those at the largest compute."""


@dataclass(frozen=True)
class Curves:
    """The lowest losses of a family's sizes: one entry for each report."""

    trial: np.ndarray
    """Index of the size."""
    parameters: np.ndarray
    tokens: np.ndarray
    compute: np.ndarray
    cost: np.ndarray

    def select(self, mask: np.ndarray) -> "Curves":
        """The entries of a mask."""
        return Curves(*(getattr(self, each.name)[mask] for each in fields(self)))

    @cached_property
    def multiply_adds_line(self) -> tuple[float, float]:
        """(slope, level) of the logarithm of multiply-adds per token over that of the parameters."""
        slope, level = np.polyfit(np.log(self.parameters), np.log(self.compute / self.tokens), 1)
        return float(slope), float(level)


class Prediction(Value):
    """The loss of a family at a compute, in nats per token, with the size and the tokens that reach it."""

    compute: float
    """Multiply-adds of the forward passes of a training."""
    parameters: float
    tokens: float
    cost: float
    low: float
    """With `high`, an interval of 95 %."""
    high: float

    def list_figures(self) -> dict[str, float]:
        """The perplexity and the bounds of its interval, and the size and the tokens that reach it."""
        costs = {"perplexity": self.cost, "low": self.low, "high": self.high}
        perplexities = {name: Objective.PERPLEXITY.compute_figure(cost) for name, cost in costs.items()}
        return {**perplexities, "parameters": self.parameters, "tokens": self.tokens}


class FamilyScaling(Value):
    """The fit of a family and its predictions."""

    family: str
    irreducible: float
    """E."""
    size_coefficient: float
    """A."""
    size_exponent: float
    """a."""
    data_coefficient: float
    """B."""
    data_exponent: float
    """b."""
    sizes: int
    """Sizes that the study has trained."""
    reports: tuple[tuple[float, float], ...]
    """(compute, cost) of the reports that are fitted."""
    predictions: tuple[Prediction, ...]
    """By compute, from a tenth of the study's to the larger one."""
    present: Prediction
    """At the study's compute."""
    larger: Prediction
    """At the larger compute."""
    best_share: float
    """Of the bootstrap's draws, those in which the family is best at the larger compute."""
    backtest_error: float | None
    """Relative error of predictions at the largest compute from a third of it; None with too few reports."""


class ScalingReport(Value):
    """The families of a study at a larger budget, best first."""

    compute: float
    """Multiply-adds of a training that every family of the study has had."""
    factor: float
    families: tuple[FamilyScaling, ...]

    @property
    def best(self) -> FamilyScaling:
        """The family with the lowest predicted loss at the larger compute."""
        return self.families[0]

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each family: its fit, and its perplexities at both computes."""
        fit = set(FamilyScaling.model_fields) - {"reports", "predictions", "present", "larger"}
        return make_frame(
            {
                **each.model_dump(include=fit),
                **{f"present_{name}": figure for name, figure in each.present.list_figures().items()},
                **{f"larger_{name}": figure for name, figure in each.larger.list_figures().items()},
            }
            for each in self.families
        )

    def curves(self) -> Any:
        """A pandas data frame with a row for each family and compute: its prediction with its interval."""
        return make_frame(
            {"family": each.family, "compute": prediction.compute, **prediction.list_figures()}
            for each in self.families
            for prediction in each.predictions
        )

    def __repr__(self) -> str:
        share = f"best in {self.best.best_share:.0%} of the draws"
        return f"ScalingReport(at {self.factor:g} times the compute: {self.best.family}, {share})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        bounds = ["larger_low", "larger_high"]
        shown = ["family", "present_perplexity", "larger_perplexity", *bounds, "best_share"]
        return render_table(
            f"validation perplexity now and at {self.factor:g} times the compute, with its 95 % interval",
            self.to_frame()[shown],
        )


def extrapolate_study(study: str, factor: float = 10.0, settings: Settings | None = None) -> ScalingReport:
    """Loss against size and data of a study's families, and their comparison at `factor` times its compute.

    Raises StudyError for an unknown study, and for one without at least five sizes of each family, four
    reports of a training, a constant schedule and perplexity as its objective.

    >>> extrapolate_study("ladder").families[0].family
    """
    check_type("factor", factor, (int, float), "a number, such as 10 for ten times the compute")
    if not factor >= 1:
        raise StudyError(f"factor must be at least 1, got {factor}")
    view = open_view(study, settings)
    if view.objective is not Objective.PERPLEXITY:
        raise StudyError(f"{view.id} has accuracies; a scaling law is fitted to perplexities")
    for trial in view.trials:
        training = trial.config.training
        if training is not None and training.schedule.kind != "constant":
            raise StudyError(
                f'{view.id}, trial {trial.number}: with schedule.kind = "{training.schedule.kind}" '
                'its reports are not shorter trainings; train with schedule = { kind = "constant" }'
            )
    if view.corpus is None:
        raise StudyError(
            f"the text of {view.terms.corpus} that {view.id} read is not in the store; import it again"
        )
    return compare_scaling([trial for trial in view.trials if trial.curve], factor)


def compare_scaling(
    trials: Sequence[StudyTrial], factor: float = 10.0, seed: int = 0, resamples: int = RESAMPLES
) -> ScalingReport:
    """Fit every family and compare them at `factor` times the study's compute.

    Intermediate reports count as shorter trainings, so the schedule has to be constant. Raises StudyError for
    fewer than five sizes or four training lengths of a family, and without a trial.
    """
    if not trials:
        raise StudyError("no trial has a validation yet; a fit needs trained ones: run the study further")
    families = dict.fromkeys(trial.family for trial in trials)
    curves = {family: _collect_curves(family, trials) for family in families}
    return compare_curves(curves, factor, seed, resamples)


def compare_curves(
    curves: Mapping[str, Curves], factor: float = 10.0, seed: int = 0, resamples: int = RESAMPLES
) -> ScalingReport:
    """Fit the curves of every family and compare them at `factor` times the largest compute that all have."""
    compute = float(min(each.compute.max() for each in curves.values()))
    budgets = [compute * 10**power for power in np.linspace(-1, np.log10(factor), PREDICTIONS)]
    budgets += [compute, compute * factor]
    generator = np.random.default_rng(seed)
    laws = {family: _fit(each) for family, each in curves.items()}
    draws = {
        family: [_fit(_resample(each, laws[family], generator), laws[family]) for _ in range(resamples)]
        for family, each in curves.items()
    }
    drawn = {
        family: np.array([[_predict(law, each, budget)[0] for budget in budgets] for law in draws[family]])
        for family, each in curves.items()
    }
    best = np.argmin([costs[:, -1] for costs in drawn.values()], axis=0)
    families = [
        _describe_family(family, each, laws[family], budgets, drawn[family], float(np.mean(best == index)))
        for index, (family, each) in enumerate(curves.items())
    ]
    families.sort(key=lambda each: each.larger.cost)
    return ScalingReport(compute=compute, factor=factor, families=tuple(families))


def _describe_family(
    family: str, curves: Curves, law: np.ndarray, budgets: Sequence[float], drawn: np.ndarray, share: float
) -> FamilyScaling:
    """`drawn` has the costs (draws, budgets) of the bootstrap; the last two budgets are the study's ones."""
    lows, highs = np.percentile(drawn, [2.5, 97.5], axis=0)
    *predictions, present, larger = [
        Prediction(
            compute=budget, cost=cost, parameters=parameters, tokens=tokens, low=float(low), high=float(high)
        )
        for budget, low, high in zip(budgets, lows, highs, strict=True)
        for cost, parameters, tokens in [_predict(law, curves, budget)]
    ]
    log_e, log_a, a, log_b, b = map(float, law)
    return FamilyScaling(
        family=family,
        irreducible=float(np.exp(log_e)),
        size_coefficient=float(np.exp(log_a)),
        size_exponent=a,
        data_coefficient=float(np.exp(log_b)),
        data_exponent=b,
        sizes=len(np.unique(curves.parameters)),
        reports=tuple(zip(curves.compute.tolist(), curves.cost.tolist(), strict=True)),
        predictions=tuple(predictions),
        present=present,
        larger=larger,
        best_share=share,
        backtest_error=_backtest(curves),
    )


def _collect_curves(family: str, trials: Sequence[StudyTrial]) -> Curves:
    """The lowest cost of each size at each number of tokens."""
    longest = max(trial.validated_tokens for trial in trials)
    lowest: dict[tuple[int, int], tuple[float, float]] = {}
    for trial in trials:
        if trial.family != family or trial.sizes is None:
            continue
        for tokens, cost in trial.curve.items():
            key = trial.sizes.parameters, tokens
            if tokens >= MIN_TOKENS_SHARE * longest and np.isfinite(cost):
                compute = float(trial.sizes.multiply_adds) * tokens
                lowest[key] = min(lowest.get(key, (np.inf, compute)), (cost, compute))
    sizes = sorted({size for size, _ in lowest})
    lengths = {tokens for _, tokens in lowest}
    needed = len(sizes) + FITTED_BY_DATA + 1  # with fewer, the residuals show no deviation of reports
    if len(sizes) < MIN_SIZES or len(lengths) < MIN_LENGTHS or len(lowest) < needed:
        raise StudyError(
            f"{family} has {format_count(len(sizes), 'size')}, "
            f"{format_count(len(lengths), 'training length')} and {format_count(len(lowest), 'report')}; "
            f"a fit needs {MIN_SIZES}, {MIN_LENGTHS} and {needed}: "
            "train a study over widths, with a constant schedule and more reports"
        )
    entries = [(*key, *found) for key, found in sorted(lowest.items())]
    parameters, tokens, costs, computes = np.array(entries, dtype=float).T
    return Curves(np.searchsorted(sizes, parameters), parameters, tokens, computes, costs)


def _fit(curves: Curves, start: np.ndarray | None = None) -> np.ndarray:
    """(log E, log A, a, log B, b) of the lowest Huber loss; from `start`, or from several."""
    # The terms at the middle of the curves hardly depend on their exponents, so that few steps are needed.
    middle_n, middle_d = np.log(curves.parameters).mean(), np.log(curves.tokens).mean()
    sizes, lengths = curves.parameters / np.exp(middle_n), curves.tokens / np.exp(middle_d)
    centred = replace(curves, parameters=sizes, tokens=lengths)
    shift = np.array([0.0, middle_n, 0.0, middle_d, 0.0])
    if start is None:
        lowest = np.log(curves.cost.min())
        starts = [
            np.array([np.log(share) + lowest, lowest - 1, a, lowest - 1, b])
            for share in (0.3, 0.6, 0.9)
            for a in (0.1, 0.4)
            for b in (0.2, 0.6)
        ]
    else:
        starts = [start - shift * start[[0, 2, 0, 4, 0]]]
    results = [_minimise(centred, each) for each in starts]
    best = min(results, key=lambda result: float(result.cost)).x
    law: np.ndarray = best + shift * best[[0, 2, 0, 4, 0]]
    return law


def _minimise(curves: Curves, start: np.ndarray) -> "OptimizeResult":
    # Imported here: it loads for a tenth of a second, and every search ends with a report.
    from scipy.optimize import least_squares

    bounds = ([-20, -20, 0.01, -20, 0.01], [np.log(curves.cost.min()), 20, MAX_EXPONENT, 20, MAX_EXPONENT])
    return least_squares(
        lambda law: np.log(_compute_loss(law, curves.parameters, curves.tokens) / curves.cost),
        np.clip(start, *bounds),
        lambda law: _compute_jacobian(law, curves),
        bounds=bounds,
        loss="huber",
        f_scale=HUBER_SCALE,
        ftol=FIT_TOLERANCE,
        xtol=FIT_TOLERANCE,
    )


def _compute_loss(law: np.ndarray, parameters: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    log_e, log_a, a, log_b, b = law
    loss: np.ndarray = (
        np.exp(log_e) + np.exp(log_a - a * np.log(parameters)) + np.exp(log_b - b * np.log(tokens))
    )
    return loss


def _compute_jacobian(law: np.ndarray, curves: Curves) -> np.ndarray:
    """Derivatives of log L by the entries of `law`, one row for each report."""
    log_e, log_a, a, log_b, b = law
    loss = _compute_loss(law, curves.parameters, curves.tokens)
    log_n, log_d = np.log(curves.parameters), np.log(curves.tokens)
    size, data = np.exp(log_a - a * log_n) / loss, np.exp(log_b - b * log_d) / loss
    return np.stack([np.exp(log_e) / loss, size, -size * log_n, data, -data * log_d], axis=1)


def _resample(curves: Curves, law: np.ndarray, generator: np.random.Generator) -> Curves:
    """Curves of the fitted law with the deviations of trials and of reports."""
    fitted = _compute_loss(law, curves.parameters, curves.tokens)
    residuals = np.log(curves.cost / fitted)
    count = curves.trial.max() + 1
    means = np.array([residuals[curves.trial == index].mean() for index in range(count)])
    deviations = residuals - means[curves.trial]
    free_between, free_within = count - FITTED_BY_SIZE, len(residuals) - count - FITTED_BY_DATA
    between = max(SEED_DEVIATION, math.sqrt((means @ means) / generator.chisquare(free_between)))
    within = math.sqrt((deviations @ deviations) / generator.chisquare(free_within))
    drawn = generator.normal(0, between, count)[curves.trial] + generator.normal(0, within, len(residuals))
    return replace(curves, cost=fitted * np.exp(drawn))


def _predict(law: np.ndarray, curves: Curves, compute: float) -> tuple[float, float, float]:
    """(cost, parameters, tokens) of the best size at a compute.

    Multiply-adds per token follow the parameters as a power of the sizes that were trained.
    """
    slope, level = curves.multiply_adds_line
    largest = curves.parameters.max() * max(1.0, compute / curves.compute.max())
    parameters = np.geomspace(curves.parameters.min(), largest, SIZES_PER_BUDGET)
    tokens = compute / np.exp(level + slope * np.log(parameters))
    costs = _compute_loss(law, parameters, tokens)
    best = int(np.argmin(costs))
    return float(costs[best]), float(parameters[best]), float(tokens[best])


def _backtest(curves: Curves) -> float | None:
    """Relative error of the cost at the largest compute, predicted from a third of it."""
    early = curves.select(curves.compute <= BACKTEST_SHARE * curves.compute.max())
    if len(np.unique(early.parameters)) < MIN_SIZES or len(np.unique(early.tokens)) < MIN_LENGTHS:
        return None
    last = curves.select(curves.compute == curves.compute.max())
    predicted = _compute_loss(_fit(early), last.parameters, last.tokens)
    return float(predicted[0] / last.cost[0] - 1)
