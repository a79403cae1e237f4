"""One step of gradient descent: backward pass, clipping, optimiser; precision and compilation.

On a CPU the step of plain SGD is one addition for each parameter: it updates only the rows of embedding
tables that were read, and clipping scales the learning rate in place of the gradient.

A dense gradient of a table has V rows to fill, to measure and to add, although a batch of N tokens reads at
most N of them. An optimiser that does not change rows with a gradient of zero (plain SGD) gives the same
result with the rows that were read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from memtune.errors import ConfigurationError
from memtune.models.architecture import Model
from memtune.training.devices import has_bfloat16_instructions
from memtune.training.optimisation.cuda_graphs import GraphedBody
from memtune.training.optimisation.optimisers import ParameterRole
from memtune.training.optimisation.training_config import TrainingConfig

AVERAGE_KEY = "average"
STEPS_KEY = "averaged_steps"


class WeightAverages:
    """The averages of an optimiser's parameters; they are in its state, so that checkpoints hold them.

    Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging": the mean of all
    steps. An exponential moving average (EMA) is the mean of the first steps until these are more than it
    remembers.
    """

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
            if parameter.grad is None and AVERAGE_KEY not in self._optimiser.state.get(parameter, {}):
                continue
            state = self._optimiser.state[parameter]
            if AVERAGE_KEY not in state:
                state[AVERAGE_KEY] = torch.zeros_like(parameter)
                state[STEPS_KEY] = parameter.new_zeros(())
            state[STEPS_KEY] += 1
            weight = state[STEPS_KEY].reciprocal().clamp(min=self._least_weight)
            state[AVERAGE_KEY].lerp_(parameter, weight)

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


def enable_sparse_gradients(model: nn.Module) -> None:
    """Make every embedding table return a sparse gradient with one row per token.

    A table that another layer shares, such as a tied output layer, still has a dense gradient: their sum.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.sparse = True


class ModelUpdater:
    """Updates one model: backward pass, loss scaling, clipping and the optimiser's step."""

    def __init__(
        self,
        config: TrainingConfig,
        model: Model,
        device: torch.device,
        rate_scales: Mapping[str, float] | None = None,
    ) -> None:
        """`rate_scales` has the factors of the learning rates of parameters by name; the default is 1."""
        check_device(config, device)
        self._config = config
        self._device = device
        scales = dict.fromkeys((name for name, _ in model.named_parameters()), 1.0) | dict(rate_scales or {})
        roles = find_roles(model) if config.optimiser.uses_roles else {}
        keys = {name: (scale, roles.get(name, "")) for name, scale in scales.items()}
        named = sorted(model.named_parameters(), key=lambda item: keys[item[0]])
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._is_plain_sgd = device.type == "cpu" and not config.optimiser.changes_unread_rows()
        if self._is_plain_sgd:
            enable_sparse_gradients(model)
        groups = groupby(named, lambda item: keys[item[0]])
        self._optimiser = config.optimiser.build(
            [
                {"params": [each for _, each in members], "rate_scale": scale, "role": role}
                for (scale, role), members in groups
            ]
        )
        self._averages = WeightAverages(self._optimiser, config.ema_decay)
        self._scaler = torch.amp.GradScaler(device.type) if config.precision == "float16" else None
        if config.compile:
            model.wrap_body(lambda network: torch.compile(network.encode, dynamic=True))
        elif device.type == "cuda":
            model.wrap_body(GraphedBody)

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of the forward pass: automatic mixed precision where configured."""
        if self._config.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, getattr(torch, self._config.precision))

    def step(self, losses: Iterable[Tensor], learning_rate: float) -> Tensor:
        """Take one step on a sum of losses and return the gradient's norm before clipping (a scalar).

        A loss is taken from the iterable after the backward pass of the one before, so that the activations
        of one at a time are held. On a GPU only float16 makes the host wait, because its scaler checks for
        overflows.
        """
        self._optimiser.zero_grad()
        for loss in losses:
            scaled = loss if self._scaler is None else self._scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]
            del loss, scaled  # a CUDA graph cannot be captured while autograd's graph of another pass lives
        scale = self._read_scale()
        norm = self._apply_gradient(learning_rate)
        if self._read_scale() >= scale:  # else the scaler has skipped the step
            # Before its own first step the optimiser would take an average for its state.
            self._averages.update()
        return norm

    def _read_scale(self) -> float:
        """The loss scale, which falls where the scaler skips a step; 1 where no average depends on it."""
        if self._scaler is None or not self._averages.is_averaging:
            return 1.0
        return self._scaler.get_scale()

    def _apply_gradient(self, learning_rate: float) -> Tensor:
        """Take a step along the gradient and return its norm before clipping."""
        if self._is_plain_sgd:
            return self._step_plain_sgd(learning_rate)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate * group["rate_scale"]
        if self._scaler is None:
            norm = self._clip()
            self._optimiser.step()
            return norm
        self._scaler.unscale_(self._optimiser)
        norm = self._clip()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        # The scaler skips a step with an overflow and lowers its scale; the norm of such a step is 0.
        return norm.nan_to_num(nan=0.0, posinf=0.0)

    @torch.no_grad()
    def _step_plain_sgd(self, learning_rate: float) -> Tensor:
        """Take a step of plain SGD and return the norm of the gradient before clipping."""
        graded = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        # With one entry per row: the sum over the tokens that read the row, in their order.
        updates = [(own, grad.coalesce() if grad.is_sparse else grad) for own, grad in graded]
        stored = [gradient.values() if gradient.is_sparse else gradient for _, gradient in updates]
        norm = get_total_norm(stored, foreach=True)
        limit = self._config.clip_norm
        # 1e-6 as in torch's clip_grads_with_norm_.
        clip_factor = 1.0 if limit is None else min(1.0, limit / (norm.item() + 1e-6))
        # A rate above the range of float32 becomes infinite, as in torch.optim, and the trial diverges.
        rate = torch.tensor(learning_rate * clip_factor, dtype=torch.float32).item()
        for parameter, gradient in updates:
            parameter.add_(gradient, alpha=-rate)
        return norm

    def _clip(self) -> Tensor:
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = get_total_norm(gradients, foreach=True)
        limit = self._config.clip_norm
        # On a CPU reading the norm costs nothing and saves the scaling of a gradient within the limit.
        if limit is not None and (self._device.type != "cpu" or norm.item() > limit):
            clip_grads_with_norm_(self._parameters, limit, norm, foreach=True)
        return norm

    def on_validation(self, valid_costs: Sequence[float]) -> None:
        """Start or stop averaging the weights by the validation costs so far, with NT-ASGD."""
        if not self._config.ema_decay:
            self._averages.is_averaging = self._config.optimiser.should_average(valid_costs)

    def use_evaluation_weights(self) -> AbstractContextManager[None]:
        """Context in which the model holds its evaluation weights: the averages, if there are any."""
        return self._averages.use_averages()

    def state_dict(self) -> dict[str, Tensor]:
        """The optimiser's tensors, named `parameter/quantity`."""
        state = self._optimiser.state_dict()["state"]
        return {
            f"{self._names[index]}/{quantity}": value
            for index, quantities in state.items()
            for quantity, value in quantities.items()
            if isinstance(value, Tensor)
        }

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Continue with the tensors of `state_dict`; raises KeyError or ValueError where they do not fit."""
        indices = {name: index for index, name in enumerate(self._names)}
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            parameter, quantity = name.rsplit("/", 1)
            index = indices[parameter]
            if tensor.shape not in (torch.Size(), self._parameters[index].shape):
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}")
            state.setdefault(index, {})[quantity] = tensor
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})

    def scaler_state_dict(self) -> dict[str, float] | None:
        """The loss scaler's numbers; None without one."""
        return None if self._scaler is None else self._scaler.state_dict()

    def load_scaler_state_dict(self, numbers: dict[str, float] | None) -> None:
        """Continue with the numbers that `scaler_state_dict` returned."""
        if self._scaler is not None and numbers is not None:
            self._scaler.load_state_dict(numbers)


def find_roles(model: Model) -> dict[str, ParameterRole]:
    """The role of every parameter, by name; matrices of the output layer are tables."""
    hidden = {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.RNNBase | nn.ParameterDict) and "output" not in prefix.split(".")
        for name, parameter in module.named_parameters(recurse=False)
        # A mixer has its other parameters in a dictionary; those of three dimensions are a matrix per head.
        if parameter.ndim == (3 if isinstance(module, nn.ParameterDict) else 2)
    }
    return {
        name: "hidden" if name in hidden else "table" if parameter.ndim > 1 else "vector"
        for name, parameter in model.named_parameters()
    }


def check_device(config: TrainingConfig, device: torch.device) -> None:
    """Raise ConfigurationError for a training that needs another device, or another processor."""
    if device.type == "cuda":
        return
    if config.precision == "float16":
        raise ConfigurationError(
            f'precision = "float16" needs a CUDA device, not {device}; set precision = "float32"'
        )
    if config.precision == "bfloat16" and not has_bfloat16_instructions():
        raise ConfigurationError(
            'precision = "bfloat16" needs a CUDA device or a processor with AMX-BF16 or AVX512-BF16, and '
            'this processor has neither; set precision = "float32"'
        )
    if config.compile:
        raise ConfigurationError(f"compile = true needs a CUDA device, not {device}; set compile = false")
