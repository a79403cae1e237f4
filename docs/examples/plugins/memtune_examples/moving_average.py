"""A mixer: a moving average of a map of the inputs, with a decay per unit.

    s_t = a s_{t-1} + (1 - a) W x_t,   a = sigmoid(d)

Shapes: B batch, T time, D width of the block, which is also the number of units.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from memtune.models.mixers.mixer import LinearMap, MappedMixer, MappedMixerConfig, MixerState

__all__ = ["MovingAverage", "MovingAverageConfig"]


class MovingAverageConfig(MappedMixerConfig):
    """A moving average of the inputs."""

    kind: Literal["moving_average"] = "moving_average"
    decay: float = Field(0.9, gt=0, lt=1, description="Initial share of s that each word keeps")

    @override
    def output_shape(self, width: int) -> tuple[int, int]:
        return 1, width

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        return {"value": LinearMap(width)}

    @override
    def list_vectors(self, width: int) -> Mapping[str, tuple[int, ...]]:
        return {"decay": (width,)}

    @override
    def count_products(self, width: int) -> int:
        """None: the average multiplies elementwise."""
        return 0

    @override
    def state_size(self, width: int) -> int:
        return width

    @override
    def build(self, width: int, depth: float) -> "MovingAverage":
        return MovingAverage(self, width)


class MovingAverage(MappedMixer):
    """State: average, (B, D)."""

    def __init__(self, config: MovingAverageConfig, width: int) -> None:
        super().__init__(config, width)
        self.decay = config.decay

    @override
    def set_constants(self) -> None:
        with torch.no_grad():
            self.vectors["decay"].fill_(torch.logit(torch.tensor(self.decay)))

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        return {"average": self.make_zeros(batch_size, self.head_width)}

    @override
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        averages, decay_D = [state["average"]], self.vectors["decay"].sigmoid()
        for value_BD in mapped["value"].unbind(1):
            averages.append(torch.lerp(value_BD, averages[-1], decay_D))
        return torch.stack(averages[1:], 1).unsqueeze(2), {"average": averages[-1]}
