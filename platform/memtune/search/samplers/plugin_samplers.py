"""Samplers of packages: functions that return a sampler of Optuna, as settings of a study."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from optuna.samplers import BaseSampler
from pydantic import create_model
from typing_extensions import override

from memtune.plugins import ConfigRegistry, PluginSource
from memtune.search.samplers.joint_space import BranchSampler
from memtune.search.samplers.sampler import SamplerConfig, SamplerRequest


class PluginSamplerConfig(SamplerConfig):
    """The sampler that a function of a package returns; it learns through Optuna and keeps no state."""

    can_have_several_objectives: ClassVar[bool] = False
    can_have_options: ClassVar[bool] = True
    function: ClassVar[Callable[[SamplerRequest], BaseSampler]]

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        if request.is_startup:
            return self.make_startup(request)
        return BranchSampler(self.function(request), self.observe(request), request.space)


class SamplerRegistry(ConfigRegistry[SamplerConfig]):
    """Settings of samplers; the entry of a package may also be a function of a `SamplerRequest`."""

    @override
    def adapt(self, name: str, entry: object, source: PluginSource) -> type[SamplerConfig]:
        if not callable(entry) or (isinstance(entry, type) and issubclass(entry, SamplerConfig)):
            return super().adapt(name, entry, source)
        kind: Any = (Literal[name], name)
        config = create_model("PluginSamplerConfig", __base__=PluginSamplerConfig, kind=kind)
        config.function = staticmethod(entry)
        return self._attach_source(config, source)
