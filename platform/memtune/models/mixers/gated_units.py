"""Gated units without a recurrence in their gates: minGRU, minLSTM, RG-LRU and HGRN.

Each unit is a weighted sum of its state and a candidate, and the weights depend on the input alone, so that
the whole text is one linear scan h_t = a_t * h_{t-1} + b_t:

| kind | a_t | b_t |
|---|---|---|
| min_gru (Feng et al. 2024, 2410.01201, section 3.1) | 1 - z | z * c |
| min_lstm (section 3.2) | f / (f + i) | i / (f + i) * c |
| rg_lru (De et al. 2024, Griffin, 2402.19427, section 2.4) | sigmoid(L)^(8 r) | sqrt(1 - a_t^2) * i * x |
| hgrn (Qin et al. 2023, 2311.04823, section 3) | g + (1 - g) f | (1 - a_t) * silu(c) |

z, f, i and r are sigmoids of maps of the input, c and x maps of it. HGRN's lower bound g of the forget gate
is 0 in the first block and rises with the depth of a block. Deviations: the paper learns g by a softmax over
the layers, cumulated; here it rises in equal shares, from which the paper's starts. HGRN's units are real
numbers, as in its successors; its paper rotates complex ones. minGRU and minLSTM are the plain forms, whose
candidate is linear.

Shapes: B batch, T time, D width, which is also the number of units.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from typing_extensions import override

from memtune.models.mixers.mixer import LinearMap, MappedMixer, MappedMixerConfig, MixerState

RG_LRU_POWER = 8.0
"""c of equation 4 of Griffin."""
SMALLEST_DECAY, LARGEST_DECAY = 0.9, 0.999
"""Of a new RG-LRU with r = 1: section 2.4."""


class GatedUnitsConfig(MappedMixerConfig):
    """A mixer of D gated units."""

    biased_maps: ClassVar[tuple[str, ...]]
    """The names of the maps with a bias."""

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        return {name: LinearMap(width, has_bias=True) for name in self.biased_maps}

    @override
    def count_products(self, width: int) -> int:
        """None: the scan multiplies elementwise."""
        return 0

    @override
    def state_size(self, width: int) -> int:
        return width

    def set_vectors(self, units: "GatedUnits") -> None:
        """Set the initial values of the vectors."""

    @abstractmethod
    def compute_terms(self, mapped: Mapping[str, Tensor], units: "GatedUnits") -> tuple[Tensor, Tensor]:
        """a and b of the scan, (B, T, D), from the values of the maps."""

    @override
    def build(self, width: int, depth: float) -> "GatedUnits":
        return GatedUnits(self, width, depth)


class MinGRUConfig(GatedUnitsConfig):
    """minGRU: a gate between the state and the candidate."""

    kind: Literal["min_gru"] = "min_gru"
    biased_maps = ("gate", "candidate")

    @override
    def compute_terms(self, mapped: Mapping[str, Tensor], units: "GatedUnits") -> tuple[Tensor, Tensor]:
        gate_BTD = mapped["gate"].sigmoid()
        return 1 - gate_BTD, gate_BTD * mapped["candidate"]


class MinLSTMConfig(GatedUnitsConfig):
    """minLSTM: forget and input gates that are divided by their sum."""

    kind: Literal["min_lstm"] = "min_lstm"
    biased_maps = ("forget", "input", "candidate")

    @override
    def compute_terms(self, mapped: Mapping[str, Tensor], units: "GatedUnits") -> tuple[Tensor, Tensor]:
        # f / (f + i) as a sigmoid of a difference of logarithms, which does not divide 0 by 0.
        forget_BTD, input_BTD = (functional.logsigmoid(mapped[name]) for name in ("forget", "input"))
        kept_BTD = (forget_BTD - input_BTD).sigmoid()
        return kept_BTD, (1 - kept_BTD) * mapped["candidate"]


class RGLRUConfig(GatedUnitsConfig):
    """RG-LRU: a decay per unit with a power by the input, and a write that keeps the norm.

    Equations 3 to 6 of Griffin; both gates read what the unit reads.
    """

    kind: Literal["rg_lru"] = "rg_lru"
    biased_maps = ("recurrence", "input")

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        return {"candidate": LinearMap(width), **super().list_maps(width)}

    @override
    def list_vectors(self, width: int) -> Mapping[str, tuple[int, ...]]:
        return {"decay": (width,)}

    @override
    def set_vectors(self, units: "GatedUnits") -> None:
        decays = torch.linspace(SMALLEST_DECAY, LARGEST_DECAY, units.head_width) ** (1 / RG_LRU_POWER)
        units.vectors["decay"].copy_(torch.special.logit(decays))

    @override
    def compute_terms(self, mapped: Mapping[str, Tensor], units: "GatedUnits") -> tuple[Tensor, Tensor]:
        recurrence_BTD = mapped["recurrence"].sigmoid()
        log_decay_D = functional.logsigmoid(units.vectors["decay"])
        log_kept_BTD = RG_LRU_POWER * recurrence_BTD * log_decay_D
        # expm1 keeps the digits of 1 - a^2 where a is near 1.
        square_BTD = -torch.expm1(2 * log_kept_BTD)
        # The root has no gradient at 0, to which a gate near 0 is rounded.
        norm_BTD = square_BTD.clamp_min(torch.finfo(square_BTD.dtype).tiny).sqrt()
        input_BTD = mapped["input"].sigmoid()
        return log_kept_BTD.exp(), norm_BTD * input_BTD * mapped["candidate"]


class HGRNConfig(GatedUnitsConfig):
    """HGRN: a forget gate with a lower bound that rises with the depth of the block."""

    kind: Literal["hgrn"] = "hgrn"
    biased_maps = ("forget", "candidate")

    @override
    def compute_terms(self, mapped: Mapping[str, Tensor], units: "GatedUnits") -> tuple[Tensor, Tensor]:
        kept_BTD = units.depth + (1 - units.depth) * mapped["forget"].sigmoid()
        return kept_BTD, (1 - kept_BTD) * functional.silu(mapped["candidate"])


class GatedUnits(MappedMixer):
    """State: units (B, D)."""

    def __init__(self, config: GatedUnitsConfig, width: int, depth: float) -> None:
        super().__init__(config, width)
        self.config, self.depth = config, depth

    @override
    @torch.no_grad()
    def set_constants(self) -> None:
        self.config.set_vectors(self)

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        return {"units": self.make_zeros(batch_size, self.head_width)}

    @override
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        kept_BTD, added_BTD = self.config.compute_terms(mapped, self)
        units_BTD = scan(kept_BTD, added_BTD, state["units"])
        return units_BTD.unsqueeze(2), {"units": units_BTD[:, -1]}


def scan(kept_BTD: Tensor, added_BTD: Tensor, before_BD: Tensor) -> Tensor:
    """h_t = kept_t * h_{t-1} + added_t for all t, from `before`."""
    units_BTD: Tensor = LinearScan.apply(kept_BTD, added_BTD, before_BD)  # type: ignore[no-untyped-call]
    return units_BTD


class LinearScan(Function):
    """The scan and its gradient, which is a scan from the end over the same factors.

    Autograd through the loop would store and add as many tensors as there are words.
    """

    @staticmethod
    @override
    def forward(ctx: Any, kept_BTD: Tensor, added_BTD: Tensor, before_BD: Tensor) -> Tensor:
        units_TBD = added_BTD.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        state_BD = before_BD
        for unit_BD, factor_BD in zip(units_TBD, kept_BTD.transpose(0, 1), strict=True):
            state_BD = unit_BD.addcmul_(factor_BD, state_BD)
        ctx.save_for_backward(kept_BTD, units_TBD, before_BD)
        return units_TBD.transpose(0, 1)

    @staticmethod
    @override
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept_BTD, units_TBD, before_BD = ctx.saved_tensors
        kept_TBD = kept_BTD.transpose(0, 1)
        added_TBD = gradients[0].transpose(0, 1).clone(memory_format=torch.contiguous_format)
        for t in range(len(added_TBD) - 2, -1, -1):
            added_TBD[t].addcmul_(kept_TBD[t + 1], added_TBD[t + 1])
        earlier_TBD = torch.cat([before_BD.unsqueeze(0), units_TBD[:-1]])
        kept_gradient_TBD = added_TBD * earlier_TBD
        return kept_gradient_TBD.transpose(0, 1), added_TBD.transpose(0, 1), kept_TBD[0] * added_TBD[0]
