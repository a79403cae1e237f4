"""The interface of a sequence mixer: its configuration, with its sizes by formula, and its module.

A mixer maps the inputs of a block, one vector per word, to outputs of `heads` groups of values, and carries a
state from word to word. Norms, the short convolution, the output gate and the projection back to the width
of the block belong to the block, so that all mixers stand in the same surroundings.

Shapes: B batch, T time, D width of the block, H heads, V values of a head.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import ceil, prod
from typing import NamedTuple

import torch
from pydantic import ConfigDict
from torch import Tensor, nn
from typing_extensions import override

from memtune.plugins import PluginConfig

MixerState = dict[str, Tensor]
"""What a mixer carries from word to word; the first dimension of every tensor is the batch."""


class LinearMap(NamedTuple):
    """A linear map of the inputs of a mixer, through `rank` numbers where a rank is given."""

    outputs: int
    has_bias: bool = False
    rank: int | None = None

    def count_weights(self, width: int) -> int:
        """Entries of its matrices."""
        return width * self.outputs if self.rank is None else self.rank * (width + self.outputs)

    def build(self, width: int) -> nn.Module:
        """A new map of vectors of this width."""
        if self.rank is None:
            return nn.Linear(width, self.outputs, self.has_bias)
        first = nn.Linear(width, self.rank, bias=False)
        return nn.Sequential(first, nn.Linear(self.rank, self.outputs, self.has_bias))


class MixerConfig(PluginConfig):
    """The configuration of a mixer; `width` is that of the block, D."""

    model_config = ConfigDict(allow_inf_nan=False)
    kind: str

    @property
    def state_grows(self) -> bool:
        """Whether the state grows with the text."""
        return False

    def output_shape(self, width: int) -> tuple[int, int]:
        """Heads H, and values of a head V; one head as wide as the block unless a kind has more."""
        return 1, width

    @abstractmethod
    def parameter_count(self, width: int) -> int:
        """Number of parameters by formula."""

    @abstractmethod
    def multiply_adds(self, width: int) -> int:
        """Multiply-adds of the matrix products per word."""

    @abstractmethod
    def state_size(self, width: int) -> int:
        """Numbers carried from word to word, once the memory is full."""

    def count_extra_activations(self, width: int, length: int) -> int:
        """Floats that training stores for each word of rows of `length` beyond the outputs of maps."""
        return 0

    @abstractmethod
    def build(self, width: int, depth: float) -> "Mixer":
        """A new mixer; `depth` is its place in the stack, 0 in the first block and below 1 in the last."""


class MappedMixerConfig(MixerConfig):
    """The configuration of a mixer that reads its inputs through linear maps alone."""

    @abstractmethod
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        """The linear maps of the inputs, by name."""

    def list_vectors(self, width: int) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the other parameters, by name.

        Those of three dimensions are a matrix for each head. Weight decay leaves out those of one dimension.
        """
        return {}

    @abstractmethod
    def count_products(self, width: int) -> int:
        """Multiply-adds per word of the products that are not those of the maps."""

    @override
    def parameter_count(self, width: int) -> int:
        maps = self.list_maps(width).values()
        weights = sum(each.count_weights(width) for each in maps)
        biases = sum(each.outputs for each in maps if each.has_bias)
        return weights + biases + sum(prod(shape) for shape in self.list_vectors(width).values())

    @override
    def multiply_adds(self, width: int) -> int:
        maps = sum(each.count_weights(width) for each in self.list_maps(width).values())
        return maps + self.count_products(width)


class Mixer(nn.Module, ABC):
    """A mixer; `heads` is H and `head_width` V."""

    def __init__(self, config: MixerConfig, width: int) -> None:
        super().__init__()
        self.heads, self.head_width = config.output_shape(width)

    def set_constants(self) -> None:
        """Set the initial values of the parameters that do not start as random matrices."""

    @abstractmethod
    def initial_state(self, batch_size: int) -> MixerState:
        """The state before the first word."""

    @abstractmethod
    def forward(self, inputs_BTD: Tensor, state: MixerState) -> tuple[Tensor, MixerState]:
        """outputs_BTHV after each word, and the state after the last."""

    def make_zeros(self, *shape: int) -> Tensor:
        """Zeros on the device and with the dtype of the weights."""
        return next(self.parameters()).new_zeros(shape)


class MappedMixer(Mixer):
    """A mixer with the maps and the vectors that its configuration lists."""

    def __init__(self, config: MappedMixerConfig, width: int) -> None:
        super().__init__(config, width)
        self.maps = nn.ModuleDict({name: each.build(width) for name, each in config.list_maps(width).items()})
        self.vectors = nn.ParameterDict(
            {name: torch.empty(shape) for name, shape in config.list_vectors(width).items()}
        )

    @override
    def forward(self, inputs_BTD: Tensor, state: MixerState) -> tuple[Tensor, MixerState]:
        dtype = next(self.parameters()).dtype
        mapped = {name: map_(inputs_BTD).to(dtype) for name, map_ in self.maps.items()}
        # Mixed precision ends here: rounded sums of a memory add up along a text.
        with torch.autocast(inputs_BTD.device.type, enabled=False):
            return self.mix(mapped, state)

    @abstractmethod
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        """The results of `forward` from the values of the maps, (B, T, outputs), by name."""

    def view_heads(self, name: str) -> Tensor:
        """A vector as (H, 1, 1, X), to be multiplied with values of `split_heads`."""
        vector: Tensor = self.vectors[name]
        return vector.view(self.heads, 1, 1, -1)

    def split_heads(self, values_BTX: Tensor, steps: int = 1) -> Tensor:
        """Values of all steps and heads as (B, H, T, steps, X)."""
        split_BTnHX = values_BTX.view(*values_BTX.shape[:2], steps, self.heads, -1)
        # A copy, because graphs of torch.compile err about the strides of gradients of the permuted view.
        return split_BTnHX.permute(0, 3, 1, 2, 4).contiguous()


def split_width(width: int, ratio: float, heads: int) -> int:
    """Values of each head so that the heads together have at least `ratio` times the width."""
    # Rounding before ceil: 100 * 0.07 is 7.000000000000001.
    return max(1, ceil(round(width * ratio / heads, 9)))
