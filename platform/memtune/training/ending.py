"""When a trial is over before its budget: it left all reason, or it no longer gets better."""

from collections.abc import Sequence

from memtune.tasks import Metrics

__all__ = ["hopeless", "stalled"]

HOPELESS = 10
"""A validation perplexity this many times the number of choices is divergence: chance is one time."""


def hopeless(metrics: Metrics, choices: int) -> str | None:
    """What is wrong with a validation that is no number or far worse than chance; None when it is neither."""
    limit = HOPELESS * choices
    if metrics.perplexity <= limit:
        return None
    return f"the validation perplexity {metrics.perplexity:.4g} is over {limit}, {HOPELESS} times chance"


def stalled(costs: Sequence[float], patience: int | None) -> str | None:
    """Why a trial with validations of these costs, oldest first, stops early; None when it goes on."""
    since_best = len(costs) - 1 - costs.index(min(costs))
    if patience is None or since_best < patience:
        return None
    return f"no improvement in {patience} reports"
