"""When a trial is over before its budget: it left all reason, or it no longer gets better."""

from collections.abc import Sequence

from memtune.tasks import Metrics

__all__ = ["hopeless", "stalled"]

HOPELESS = 10
"""A validation perplexity this many times the vocabulary's size is divergence: chance is one time."""


def hopeless(metrics: Metrics, vocabulary_size: int) -> str | None:
    """What is wrong with a validation that is no number or far worse than chance; None when it is neither."""
    limit = HOPELESS * vocabulary_size
    if metrics.perplexity <= limit:
        return None
    return f"the validation perplexity {metrics.perplexity:.4g} is over {limit}, {HOPELESS} times chance"


def stalled(valid_losses: Sequence[float], patience: int | None) -> str | None:
    """Why a trial with these validation losses, oldest first, stops early; None when it goes on."""
    since_best = len(valid_losses) - 1 - valid_losses.index(min(valid_losses))
    if patience is None or since_best < patience:
        return None
    return f"no improvement in {patience} reports"
