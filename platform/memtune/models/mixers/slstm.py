"""sLSTM: exponential gates with a normaliser and a stabiliser, and a recurrence within heads.

Beck et al. (2024), "xLSTM: Extended Long Short-Term Memory", 2405.04517, section 2.2. With the gates i, f, z
and o as sums of a map of the input and a matrix R of each head times the hidden state before,

    m_t = max(log f_t + m_{t-1}, i_t)               i' = exp(i_t - m_t),  f' = exp(log f_t + m_{t-1} - m_t)
    c_t = f' c_{t-1} + i' tanh(z_t)                 n_t = f' n_{t-1} + i'
    h_t = sigmoid(o_t) c_t / n_t                    log f_t = log sigmoid of the forget gate

h does not depend on the stabiliser m, so no gradient goes through it.

Shapes: B batch, T time, D width, H heads, V units of a head, G the four gates.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from memtune.models.mixers.mixer import LinearMap, MappedMixer, MappedMixerConfig, MixerState, split_width

GATES = 4
EMPTY = -1e30
"""m before the first word, which has m = i: from 0, an input gate of -110 would be rounded to n = 0."""
SMALLEST_FORGET_BIAS, LARGEST_FORGET_BIAS = 3.0, 6.0
"""Of new forget gates, spread over the units of a head as in the released code."""


class SLSTMConfig(MappedMixerConfig):
    """sLSTM; its loop over time is not parallel."""

    kind: Literal["slstm"] = "slstm"
    heads: int = Field(4, ge=1, description="H: blocks of the recurrent matrices")

    @override
    def output_shape(self, width: int) -> tuple[int, int]:
        return self.heads, split_width(width, 1.0, self.heads)

    @override
    def list_maps(self, width: int) -> Mapping[str, LinearMap]:
        heads, units = self.output_shape(width)
        return {"gates": LinearMap(GATES * heads * units, has_bias=True)}

    @override
    def list_vectors(self, width: int) -> Mapping[str, tuple[int, ...]]:
        heads, units = self.output_shape(width)
        return {"recurrent": (heads, units, GATES * units)}

    @override
    def count_products(self, width: int) -> int:
        heads, units = self.output_shape(width)
        return GATES * heads * units * units

    @override
    def state_size(self, width: int) -> int:
        """h, c, n and m."""
        heads, units = self.output_shape(width)
        return 4 * heads * units

    @override
    def build(self, width: int, depth: float) -> "SLSTM":
        return SLSTM(self, width)


class SLSTM(MappedMixer):
    """State: hidden, cell, normaliser and stabiliser, all (B, H, V)."""

    @override
    @torch.no_grad()
    def set_constants(self) -> None:
        bias_HGV = self.maps["gates"].bias.view(self.heads, GATES, self.head_width)  # type: ignore[operator]
        bias_HGV.zero_()
        bias_HGV[:, 1] = torch.linspace(SMALLEST_FORGET_BIAS, LARGEST_FORGET_BIAS, self.head_width)

    @override
    def initial_state(self, batch_size: int) -> MixerState:
        zeros_BHV = self.make_zeros(batch_size, self.heads, self.head_width)
        state = dict.fromkeys(("hidden", "cell", "normaliser"), zeros_BHV)
        return state | {"stabiliser": torch.full_like(zeros_BHV, EMPTY)}

    @override
    def mix(self, mapped: Mapping[str, Tensor], state: MixerState) -> tuple[Tensor, MixerState]:
        gates_THBX = self.split_heads(mapped["gates"]).squeeze(3).permute(2, 1, 0, 3)
        recurrent_HVX = self.vectors["recurrent"]
        names = ("hidden", "cell", "normaliser", "stabiliser")
        hidden_HBV, cell_HBV, normaliser_HBV, stabiliser_HBV = (state[name].transpose(0, 1) for name in names)
        outputs = []
        for gates_HBX in gates_THBX:
            sums_HBX = torch.baddbmm(gates_HBX, hidden_HBV, recurrent_HVX)
            input_HBV, forget_HBV, candidate_HBV, output_HBV = sums_HBX.chunk(GATES, dim=2)
            kept_HBV = functional.logsigmoid(forget_HBV) + stabiliser_HBV
            stabiliser_HBV = torch.maximum(kept_HBV, input_HBV).detach()
            input_HBV, kept_HBV = (input_HBV - stabiliser_HBV).exp(), (kept_HBV - stabiliser_HBV).exp()
            cell_HBV = kept_HBV * cell_HBV + input_HBV * candidate_HBV.tanh()
            normaliser_HBV = kept_HBV * normaliser_HBV + input_HBV
            hidden_HBV = output_HBV.sigmoid() * cell_HBV / normaliser_HBV
            outputs.append(hidden_HBV)
        last = (hidden_HBV, cell_HBV, normaliser_HBV, stabiliser_HBV)
        after = {name: value.transpose(0, 1) for name, value in zip(names, last, strict=True)}
        return torch.stack(outputs).permute(2, 0, 1, 3), after
