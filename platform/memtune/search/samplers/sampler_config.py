"""The sampler of a study, as its file defines it."""

from typing import Literal

from pydantic import Field

from memtune.values import Value

__all__ = ["SamplerConfig"]


class SamplerConfig(Value):
    """How a study samples configurations: initial trials first, then from earlier results."""

    kind: Literal["tpe", "random", "qmc", "gp", "cmaes", "nsga2", "forest", "grid"] = "tpe"
    seed: int = Field(default=0, ge=0, lt=2**31)
    startup: Literal["random", "sobol"] = Field(
        default="random", description="how configurations are drawn before the sampler learns"
    )
    startup_trials: int = Field(
        default=10, ge=1, description="trials before the sampler learns, two per family at least"
    )
    stopped_trials: Literal["as_reported", "extrapolated"] = Field(
        default="as_reported", description="the value with which a trial stopped early counts"
    )
