"""Samplers: which configuration a study tries next, given its earlier trials.

Optuna's samplers and a Sobol sequence, all behind `SamplerFactory.make_sampler`.
"""

from memtune.search.samplers.observed_values import MultiObjective
from memtune.search.samplers.sampler_factory import (
    MAX_PRIOR_POINTS,
    MULTI_OBJECTIVE_KINDS,
    SAMPLERS,
    SamplerConfig,
    SamplerFactory,
    SamplerRequest,
    check_sampler,
)
