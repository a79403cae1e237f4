"""One step of gradient descent: backward pass, clipping, optimiser; precision and compilation on a GPU.

On a CPU the step of plain gradient descent is one addition for each parameter: embedding tables move in the
rows that were read, and a gradient too long shortens the step in place of the gradient.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from memtune.errors import ConfigurationError
from memtune.models.interface import Model
from memtune.training.averaging import AveragedSGD
from memtune.training.configuration import TrainingConfig
from memtune.training.optimisers import NTASGDConfig
from memtune.training.row_gradients import entries, give_rows, moves_read_rows_only, summed

__all__ = ["Updates"]


class Updates:
    """The optimiser of one model and what stands between a loss and its step."""

    def __init__(self, config: TrainingConfig, model: Model, device: torch.device) -> None:
        _check_device(config, device)
        self._config = config
        self._device = device
        self._names = [name for name, _ in model.named_parameters()]
        self._parameters = list(model.parameters())
        self._plain = device.type == "cpu" and moves_read_rows_only(config.optimiser)
        if self._plain:
            give_rows(model)
        self._optimiser = config.optimiser.build(self._parameters)
        self._scaler = torch.amp.GradScaler(device.type) if config.precision == "float16" else None
        if config.compile:
            model.compile_body()

    def forward(self) -> AbstractContextManager[Any]:
        """The context of the forward pass: automatic mixed precision where configured."""
        if self._config.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, getattr(torch, self._config.precision))

    def step(self, loss: Tensor, learning_rate: float) -> Tensor:
        """Move the parameters down the gradient of a loss; its norm before clipping (a scalar).

        On a GPU the host waits for nothing, but for float16, whose scaler has to look for overflows.
        """
        self._optimiser.zero_grad()
        if self._plain:
            loss.backward()  # type: ignore[no-untyped-call]
            return self._descend(learning_rate)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        if self._scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            norm = self._clip()
            self._optimiser.step()
            return norm
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.unscale_(self._optimiser)
        norm = self._clip()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        # An overflow is how the scaler finds its scale; the step was left out, and so is its norm.
        return norm.nan_to_num(nan=0.0, posinf=0.0)

    @torch.no_grad()
    def _descend(self, learning_rate: float) -> Tensor:
        """Plain gradient descent; the norm of the gradient."""
        moves = [
            (parameter, summed(parameter.grad))
            for parameter in self._parameters
            if parameter.grad is not None
        ]
        norm = get_total_norm([entries(gradient) for _, gradient in moves], foreach=True)
        limit = self._config.clip_norm
        shrink = 1.0 if limit is None else min(1.0, limit / (norm.item() + 1e-6))
        # In single precision too large a rate is infinite, as in torch's own optimisers: the trial diverges.
        rate = torch.tensor(learning_rate * shrink, dtype=torch.float32).item()
        for parameter, gradient in moves:
            parameter.add_(gradient, alpha=-rate)
        return norm

    def _clip(self) -> Tensor:
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = get_total_norm(gradients, foreach=True)
        limit = self._config.clip_norm
        # On a CPU looking costs nothing, and a gradient within the limit need not be written again.
        if limit is not None and (self._device.type != "cpu" or norm.item() > limit):
            clip_grads_with_norm_(self._parameters, limit, norm, foreach=True)
        return norm

    def heed(self, valid_costs: Sequence[float]) -> None:
        """Let the reports so far decide whether the weights are averaged from now on, where that is asked."""
        rule = self._config.optimiser
        if isinstance(rule, NTASGDConfig) and isinstance(self._optimiser, AveragedSGD):
            self._optimiser.averaging = rule.averages(valid_costs)

    def judged(self) -> AbstractContextManager[None]:
        """The context in which the weights are those to be judged: their averages, where there are such."""
        return self._optimiser.averaged() if isinstance(self._optimiser, AveragedSGD) else nullcontext()

    def state(self) -> dict[str, Tensor]:
        """The optimiser's tensors, named `parameter/quantity`."""
        kept = self._optimiser.state_dict()["state"]
        return {
            f"{self._names[index]}/{quantity}": value
            for index, quantities in kept.items()
            for quantity, value in quantities.items()
            if isinstance(value, Tensor)
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Go on with the tensors that `state` gave."""
        places = {name: index for index, name in enumerate(self._names)}
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            parameter, quantity = name.rsplit("/", 1)
            state.setdefault(places[parameter], {})[quantity] = tensor
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})

    def scaler_state(self) -> dict[str, float] | None:
        """The loss scaler's numbers; None without one."""
        return None if self._scaler is None else self._scaler.state_dict()

    def load_scaler_state(self, numbers: dict[str, float] | None) -> None:
        """Go on with the numbers that `scaler_state` gave."""
        if self._scaler is not None and numbers is not None:
            self._scaler.load_state_dict(numbers)


def _check_device(config: TrainingConfig, device: torch.device) -> None:
    if device.type == "cuda":
        return
    if config.precision != "float32":
        raise ConfigurationError(
            f'precision = "{config.precision}" needs a CUDA device, not {device}; take precision = "float32"'
        )
    if config.compile:
        raise ConfigurationError(f"compile = true needs a CUDA device, not {device}; take compile = false")
