"""Compositions of the context vector s of a memory with the hidden state h that queried it.

Tran, Bisazza and Monz (2016), section 3.1. "sum" is g(s, h) = s + h, as the text of the paper describes
Sukhbaatar's network. "projected_sum" is s + H h with a matrix H, the linear composition of the released code.
"gate" is equations 4 to 7 as printed. "gate_biased" adds a bias to each of the six maps, as the released code
does. `build_linear_combination` is the composition of Yogatama et al. (2018).

Shapes: H width; leading dimensions are free.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

CompositionKind = Literal["sum", "projected_sum", "gate", "gate_biased"]


def build_composition(kind: CompositionKind, width: int) -> nn.Module:
    """The module of a kind, called with context and hidden vectors."""
    match kind:
        case "sum":
            return Sum(nn.Identity(), nn.Identity())
        case "projected_sum":
            return Sum(nn.Identity(), nn.Linear(width, width, bias=False))
        case "gate":
            return Gate(width, bias=False)
        case "gate_biased":
            return Gate(width, bias=True)


def count_parameters(kind: CompositionKind, width: int) -> int:
    """Number of parameters of `build_composition(kind, width)`."""
    return count_multiply_adds(kind, width) + (6 * width if kind == "gate_biased" else 0)


def count_multiply_adds(kind: CompositionKind, width: int) -> int:
    """Multiply-adds of the matrix products for one token."""
    return {"sum": 0, "projected_sum": 1, "gate": 6, "gate_biased": 6}[kind] * width * width


def build_linear_combination(context_width: int, hidden_width: int, width: int) -> "Sum":
    """W_hm m + W_hh h: Yogatama et al. (2018), section 2."""
    return Sum(nn.Linear(context_width, width, bias=False), nn.Linear(hidden_width, width, bias=False))


class Sum(nn.Module):
    """M s + H h, where each of the two maps may be the identity."""

    def __init__(self, memory: nn.Module, hidden: nn.Module) -> None:
        super().__init__()
        self.memory, self.hidden = memory, hidden

    @override
    def forward(self, context_M: Tensor, hidden_H: Tensor) -> Tensor:
        combined_H: Tensor = self.memory(context_M) + self.hidden(hidden_H)
        return combined_H


class Gate(nn.Module):
    """The gated unit of equations 4 to 7, its six maps in three matrix products.

    `context` stacks W_sz, W_sr, W_s; `hidden` stacks U_hz, U_hr; `candidate` is U.
    """

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.width = width
        self.context = nn.Linear(width, 3 * width, bias=bias)
        self.hidden = nn.Linear(width, 2 * width, bias=bias)
        self.candidate = nn.Linear(width, width, bias=bias)

    @override
    def forward(self, context_H: Tensor, hidden_H: Tensor) -> Tensor:
        from_context_2H, from_context_H = self.context(context_H).split([2 * self.width, self.width], dim=-1)
        gates_2H = (from_context_2H + self.hidden(hidden_H)).sigmoid()
        update_H, reset_H = gates_2H.chunk(2, dim=-1)
        candidate_H = (from_context_H + self.candidate(reset_H * hidden_H)).tanh()
        # Under autocast the products have a lower precision than the hidden vectors; lerp takes one dtype.
        return torch.lerp(hidden_H, candidate_H.to(hidden_H.dtype), update_H.to(hidden_H.dtype))
