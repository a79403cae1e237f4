"""A sampler: TPE that draws more candidates per ask. Any sampler of Optuna can stand here."""

from optuna.samplers import BaseSampler, TPESampler

from memtune.search import SamplerRequest

__all__ = ["make_sampler"]


def make_sampler(request: SamplerRequest) -> BaseSampler:
    """A sampler of one ask; its seed makes a resumed study propose the same."""
    candidates = int(request.options.get("candidates", 96))
    return TPESampler(seed=request.seed, n_startup_trials=0, multivariate=True, n_ei_candidates=candidates)
