"""Conditions that end a trial before its budget: divergence, or no improvement in validation."""

from collections.abc import Sequence

from memtune.tasks import Metrics
from memtune.trial_state import StopReason, TrialEnd

DIVERGENCE_FACTOR = 10
"""A trial diverges above this multiple of the perplexity of chance, which is the number of outcomes."""


def find_divergence(metrics: Metrics, outcome_count: int) -> str | None:
    """The problem of a validation that is NaN or far worse than chance; None without a problem."""
    limit = DIVERGENCE_FACTOR * outcome_count
    if metrics.perplexity <= limit:
        return None
    return (
        f"the validation perplexity {metrics.perplexity:.4g} is over {limit}, {DIVERGENCE_FACTOR} "
        f"times chance"
    )


def find_stall(costs: Sequence[float], patience: int | None) -> TrialEnd | None:
    """The end of a trial whose validation costs, oldest first, stopped improving; None while they improve."""
    since_best = len(costs) - 1 - costs.index(min(costs))
    if patience is None or since_best < patience:
        return None
    return TrialEnd(reason=StopReason.NO_IMPROVEMENT, detail=f"no improvement in {patience} reports")


def never_stop() -> bool:
    """The condition of a training that nothing stops early."""
    return False
