"""The interface of a sampler: its settings in a study file, which make a sampler of Optuna for each ask."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState
from pydantic import Field, create_model, model_validator
from typing_extensions import override

from memtune.errors import SpaceError
from memtune.plugins import ConfigRegistry, PluginConfig, PluginSource
from memtune.search.samplers.joint_space import BranchSampler, JointSpace, SobolSampler
from memtune.search.samplers.observed_values import MultiObjective, extrapolate_stopped
from memtune.search.samplers.prior_trials import Asked, PriorTrials
from memtune.spaces import Scalar, Space

MAX_GRID_POINTS = 100_000


@dataclass(frozen=True)
class SamplerRequest:
    """One ask of a study, for a sampler."""

    seed: int
    """Of this ask: a sampler made with it proposes the same when the study is resumed."""
    options: Mapping[str, Scalar]
    """`[sampler.options]` of the study."""
    number: int
    asked: Asked
    led: Sequence[int]
    """The asks that the prior leads, this one last; empty where it does not lead this one."""
    space: JointSpace
    startup_trials: int
    """Trials that end before the sampler learns."""
    objectives: MultiObjective
    prior: PriorTrials

    @property
    def is_startup(self) -> bool:
        """Whether the sampler does not learn yet."""
        ended = sum(trial.state is not OptunaState.RUNNING for trial in self.asked.values())
        return ended < self.startup_trials


class SamplerConfig(PluginConfig):
    """How a study samples configurations: initial trials first, then from earlier results."""

    can_have_several_objectives: ClassVar[bool] = True
    can_follow_prior: ClassVar[bool] = False
    can_have_options: ClassVar[bool] = False
    tries_every_point: ClassVar[bool] = False
    """Whether it proposes each point of a finite space once, and no other."""

    kind: str
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the sampler; with one trial at a time, the same seed tries the same configurations."""
    startup: Literal["random", "sobol"] = "random"
    """How configurations are drawn before the sampler learns."""
    startup_trials: int = Field(default=10, ge=1, json_schema_extra={"unit": "trials"})
    """Trials before the sampler learns, two per family at least."""
    prior: Literal["papers", "studies", "none"] | None = None
    """Beliefs before the first trial: the settings of papers, family and training of the best tenth of this
    home's earlier studies, or none; default: the priors of the spaces."""
    stopped_trials: Literal["as_reported", "extrapolated"] = "as_reported"
    """The value with which a trial stopped early counts."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Options of the sampler of an installed package."""

    @abstractmethod
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        """The sampler of one ask, which keeps no state."""

    def make_startup(self, request: SamplerRequest) -> BaseSampler:
        """The sampler of an ask before this one learns."""
        if self.startup == "sobol":
            return SobolSampler(request.space, self.seed, request.number)
        return RandomSampler(seed=request.seed)

    def observe(self, request: SamplerRequest) -> list[FrozenTrial]:
        """The trials that the sampler learns from, with the values with which those stopped early count."""
        trials = list(request.asked.values())
        return extrapolate_stopped(trials) if self.stopped_trials == "extrapolated" else trials

    def follows_prior(self, objectives: int) -> bool:
        """Whether a prior leads the sampler in a study with so many objectives."""
        return self.can_follow_prior and objectives == 1

    def check_space(self, space: Space) -> None:
        """Raise SpaceError when the sampler cannot search the space: a grid needs a finite one."""
        if not self.tries_every_point:
            return
        fields = (parameter.field for parameter in space.parameters() if parameter.leaf.size() is None)
        continuous = dict.fromkeys(fields)
        if continuous:
            raise SpaceError(
                f'{space.source}: sampler.kind = "{self.kind}" needs a finite space, and '
                f"{', '.join(continuous)} have a continuous range; give them a step or a choice, or choose "
                "another kind"
            )
        if (size := space.size() or 0) > MAX_GRID_POINTS:
            raise SpaceError(
                f'{space.source}: sampler.kind = "{self.kind}" has {size:,} points, more than '
                f'{MAX_GRID_POINTS:,}; fix some fields, or choose kind = "qmc"'
            )

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.options and not self.can_have_options:
            raise ValueError(f'kind = "{self.kind}" has no options; leave [sampler.options] out')
        return self


class PluginSamplerConfig(SamplerConfig):
    """The sampler that a function of a package returns; it learns through Optuna and keeps no state."""

    can_have_several_objectives: ClassVar[bool] = False
    can_have_options: ClassVar[bool] = True
    function: ClassVar[Callable[..., Any]]
    """Of a SamplerRequest; it returns a sampler of Optuna."""

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        if request.is_startup:
            return self.make_startup(request)
        return BranchSampler(type(self).function(request), self.observe(request), request.space)


class SamplerRegistry(ConfigRegistry[SamplerConfig]):
    """Settings of samplers; the entry of a package may also be a function of a `SamplerRequest`."""

    @override
    def adapt(self, name: str, entry: object, source: PluginSource) -> type[SamplerConfig]:
        if not callable(entry) or (isinstance(entry, type) and issubclass(entry, SamplerConfig)):
            return super().adapt(name, entry, source)
        kind: Any = (Literal[name], name)
        config = create_model("PluginSamplerConfig", __base__=PluginSamplerConfig, kind=kind)
        config.function = entry
        return self._attach_source(config, source)
