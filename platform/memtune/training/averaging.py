"""Stochastic gradient descent that averages the weights of its steps, once it is told to.

Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging". The steps themselves stay
those of plain descent; the average stands beside the weights and takes their place where a model is judged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from typing_extensions import override

__all__ = ["AveragedSGD"]

AVERAGE = "average"
STEPS = "averaged_steps"


class AveragedSGD(torch.optim.SGD):
    """SGD that keeps, for each parameter, the mean of its values after the steps taken while `averaging`."""

    averaging = False

    @override
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of SGD, and one more value in the averages."""
        loss = super().step(closure)
        if self.averaging:
            for parameter in self._parameters():
                self._average(parameter)
        return loss

    def _average(self, parameter: Parameter) -> None:
        kept = self.state[parameter]
        if AVERAGE not in kept:
            kept[AVERAGE] = torch.zeros_like(parameter)
            kept[STEPS] = parameter.new_zeros(())
        kept[STEPS] += 1
        kept[AVERAGE].lerp_(parameter, kept[STEPS].reciprocal())

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it every parameter that has an average is that average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for parameter in self._parameters():
            average: Tensor | None = self.state.get(parameter, {}).get(AVERAGE)
            if average is not None:
                held = parameter.clone()
                parameter.copy_(average)
                average.copy_(held)

    def _parameters(self) -> Iterator[Parameter]:
        for group in self.param_groups:
            yield from group["params"]
