"""Stochastic gradient descent with an optional average of the weights after its steps.

Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging". The steps are those of
plain SGD. The optimiser keeps the average apart from the weights; evaluations use the average.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from typing_extensions import override

AVERAGE_KEY = "average"
STEPS_KEY = "averaged_steps"


class AveragedSGD(torch.optim.SGD):
    """SGD that keeps the mean of each parameter's values after the steps while `is_averaging`."""

    is_averaging = False

    @override
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step of SGD and, while averaging, add the new values to the averages."""
        loss = super().step(closure)
        if self.is_averaging:
            for parameter in self._iterate_parameters():
                self._update_average(parameter)
        return loss

    def _update_average(self, parameter: Parameter) -> None:
        state = self.state[parameter]
        if AVERAGE_KEY not in state:
            state[AVERAGE_KEY] = torch.zeros_like(parameter)
            state[STEPS_KEY] = parameter.new_zeros(())
        state[STEPS_KEY] += 1
        state[AVERAGE_KEY].lerp_(parameter, state[STEPS_KEY].reciprocal())

    @contextmanager
    def use_averages(self) -> Iterator[None]:
        """Context in which every parameter with an average holds the average."""
        self._swap_averages()
        try:
            yield
        finally:
            self._swap_averages()

    @torch.no_grad()
    def _swap_averages(self) -> None:
        for parameter in self._iterate_parameters():
            average: Tensor | None = self.state.get(parameter, {}).get(AVERAGE_KEY)
            if average is not None:
                current = parameter.clone()
                parameter.copy_(average)
                average.copy_(current)

    def _iterate_parameters(self) -> Iterator[Parameter]:
        for group in self.param_groups:
            yield from group["params"]
