"""Muon for the hidden matrices of a model and AdamW for its other parameters, as one optimiser.

Jordan et al. (2024), "Muon: An optimizer for hidden layers in neural networks"; the steps are those of
torch.optim.Muon, with the factor of Liu et al. (2025), "Muon is Scalable for LLM Training", under which the
learning rate and the weight decay of AdamW suit both.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from typing_extensions import override


class OptimiserOfGroups(Optimizer):
    """Optimisers of one group of parameters each, with one state and one list of groups."""

    def __init__(self, optimisers: Sequence[Optimizer]) -> None:
        self._optimisers = optimisers
        super().__init__([optimiser.param_groups[0] for optimiser in optimisers], {})

    @override
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with each optimiser."""
        for optimiser, group in zip(self._optimisers, self.param_groups, strict=True):
            # Loading a checkpoint replaces the state and the groups of this optimiser.
            optimiser.param_groups, optimiser.state = [group], self.state
            optimiser.step()
