"""Averages of weights over the steps of an optimiser; the steps do not depend on them.

Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging": the mean of all steps. An
exponential moving average (EMA) is the mean of the first steps until these are more than it remembers.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

AVERAGE_KEY = "average"
STEPS_KEY = "averaged_steps"


class WeightAverages:
    """The averages of an optimiser's parameters; they are in its state, so that checkpoints hold them."""

    def __init__(self, optimiser: Optimizer, decay: float = 0.0) -> None:
        """`decay` is that of an EMA; 0 averages all steps while `is_averaging`."""
        self._optimiser = optimiser
        self._least_weight = 1 - decay if decay else 0.0
        self.is_averaging = decay > 0

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step to the averages, while averaging."""
        for parameter in self._iterate_parameters() if self.is_averaging else ():
            # Adam takes any state of a parameter for its own, which it makes at the first gradient.
            if parameter.grad is not None or AVERAGE_KEY in self._optimiser.state.get(parameter, {}):
                self._update_average(parameter)

    def _update_average(self, parameter: Parameter) -> None:
        state = self._optimiser.state[parameter]
        if AVERAGE_KEY not in state:
            state[AVERAGE_KEY] = torch.zeros_like(parameter)
            state[STEPS_KEY] = parameter.new_zeros(())
        state[STEPS_KEY] += 1
        state[AVERAGE_KEY].lerp_(parameter, state[STEPS_KEY].reciprocal().clamp(min=self._least_weight))

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
            average: Tensor | None = self._optimiser.state.get(parameter, {}).get(AVERAGE_KEY)
            if average is not None:
                current = parameter.clone()
                parameter.copy_(average)
                average.copy_(current)

    def _iterate_parameters(self) -> Iterator[Parameter]:
        for group in self._optimiser.param_groups:
            yield from group["params"]
