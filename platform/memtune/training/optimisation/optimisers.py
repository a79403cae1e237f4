"""Configurations of optimisers; they build fused or multi-tensor optimisers of torch.optim."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import unwrap
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import ConfigDict, Field
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from typing_extensions import override

from memtune.models.compilation import leave_uncompiled
from memtune.training.devices import has_bfloat16_instructions
from memtune.values import Value

OptimiserT = TypeVar("OptimiserT", bound=Optimizer)


def _load_no_compiler(kind: type[OptimiserT]) -> type[OptimiserT]:
    """The class of optimisers, without the import of torch's compiler where nothing compiles.

    The compiler loads for about two seconds in every worker, and leaves a folder in the temporary one.
    """
    methods = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    replaced = {name: unwrap(getattr(kind, name)) for name in methods}
    # torch's wrapper of a step imports the compiler, and does the same where the step is not differentiable.
    replaced["step"] = torch.no_grad()(unwrap(kind.step))
    return type(kind.__name__, (kind,), {name: leave_uncompiled(each) for name, each in replaced.items()})


@_load_no_compiler
class OptimiserOfGroups(Optimizer):
    """Optimisers of one group of parameters each, with one state and one list of groups: Muon and AdamW."""

    def __init__(self, optimisers: Sequence[Optimizer]) -> None:
        self._optimisers = optimisers
        super().__init__([optimiser.param_groups[0] for optimiser in optimisers], {})

    @override
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with each optimiser."""
        for optimiser, group in zip(self._optimisers, self.param_groups, strict=True):
            # Loading a checkpoint replaces the state and the groups of this optimiser.
            optimiser.param_groups, optimiser.state = [group], self.state
            optimiser.step()


SGD = _load_no_compiler(torch.optim.SGD)
Adam = _load_no_compiler(torch.optim.Adam)
AdamW = _load_no_compiler(torch.optim.AdamW)
RMSprop = _load_no_compiler(torch.optim.RMSprop)


@_load_no_compiler
class Muon(torch.optim.Muon):
    """torch's Muon with `match_rms_adamw`; of a parameter of three dimensions it steps each matrix.

    The factor of the learning rate is that of Liu et al. (2025), "Muon is Scalable for LLM Training", under
    which the learning rate and the weight decay of AdamW suit both.
    """

    @override
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with each parameter that has a gradient."""
        for group in self.param_groups:
            rate, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
            lists: tuple[list[Tensor], ...] = ([], [], [])
            self._init_group(group, *lists)
            for parameter, gradient, buffer in zip(*lists, strict=True):
                buffer.lerp_(gradient, 1 - momentum)
                update = gradient.lerp(buffer, momentum)
                pairs = [(parameter, update)] if update.ndim == 2 else zip(parameter, update, strict=True)
                for matrix, direction in pairs:
                    step = _orthogonalise(direction, group)
                    matrix.mul_(1 - rate * decay).add_(step, alpha=-rate * 0.2 * max(step.shape) ** 0.5)


def _orthogonalise(matrix: Tensor, group: Mapping[str, Any]) -> Tensor:
    """The matrix with singular values near one, by the iteration of Newton and Schulz (Jordan et al. 2024).

    In bfloat16, as torch does, but on a processor without its instructions, where that takes up to 30 times
    the time of float32.
    """
    in_bfloat16 = matrix.device.type != "cpu" or has_bfloat16_instructions()
    wide = matrix.to(torch.bfloat16 if in_bfloat16 else matrix.dtype)
    is_tall, (a, b, c) = matrix.shape[0] > matrix.shape[1], group["ns_coefficients"]
    wide = wide.T if is_tall else wide
    wide = wide / wide.norm().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if is_tall else wide


LearningRate = Annotated[
    float,
    Field(
        gt=0,
        description="Rate before the schedule; training.loss_reduction changes which rates are suitable.",
    ),
]
Share = Annotated[float, Field(ge=0, lt=1)]
"""Of a running mean that a step keeps."""
Epsilon = Annotated[float, Field(gt=0, description="Number added to the divisor of a step.")]
WeightDecay = Annotated[float, Field(ge=0, description="Strength with which weights decay towards 0.")]


ParameterRole = Literal["hidden", "table", "vector"]
"""A matrix of a hidden layer or of each head, another parameter of two dimensions or more, and one of one
dimension: norms, biases, decays."""
Parameters = Iterable[Parameter] | Iterable[dict[str, Any]]
"""Parameters, or groups of parameters with the factor of their learning rate and their role."""


class OptimiserBase(Value):
    """The answers of every optimiser's configuration to the update step."""

    model_config = ConfigDict(allow_inf_nan=False)

    @property
    def uses_roles(self) -> bool:
        """Whether a group of parameters needs its role."""
        return False

    def changes_unread_rows(self) -> bool:
        """Whether a step may change a row of a table whose gradient is zero."""
        return True

    def should_average(self, valid_costs: Sequence[float]) -> bool:
        """Whether to average the weights after reports with these validation costs, oldest first."""
        return False

    def tensors_per_parameter(self) -> int:
        """Floats of optimiser state per parameter, at most."""
        return 2


class SGDConfig(OptimiserBase):
    """Stochastic gradient descent, the optimiser of all papers on recurrent memory."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: LearningRate = 1.0
    momentum: Share = 0.0
    """Share of the last step's direction that is kept; 0 keeps none."""
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Parameters) -> Optimizer:
        """The optimiser of these parameters."""
        return SGD(parameters, self.learning_rate, self.momentum, weight_decay=self.weight_decay, fused=True)

    @override
    def changes_unread_rows(self) -> bool:
        return bool(self.momentum or self.weight_decay)

    @override
    def tensors_per_parameter(self) -> int:
        return 1 if self.momentum else 0


class AdamConfig(OptimiserBase):
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient."""

    kind: Literal["adam"] = "adam"
    learning_rate: LearningRate = 1e-3
    beta1: Share = 0.9
    """Decay of the running mean of gradients."""
    beta2: Share = 0.999
    """Decay of the running mean of squared gradients."""
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Parameters) -> Optimizer:
        """The optimiser of these parameters."""
        betas = (self.beta1, self.beta2)
        return Adam(parameters, self.learning_rate, betas, self.epsilon, self.weight_decay, fused=True)


class AdamWConfig(AdamConfig):
    """AdamW (Loshchilov and Hutter 2019); weight decay is decoupled from the gradient."""

    kind: Literal["adamw"] = "adamw"  # type: ignore[assignment]
    weight_decay: WeightDecay = 0.01
    decayed: Literal["all", "matrices"] = "all"
    """Parameters that decay: all, or "matrices", without norms, biases and decays of memories."""

    @property
    @override
    def uses_roles(self) -> bool:
        return self.decayed == "matrices"

    def build(self, parameters: Parameters) -> Optimizer:
        """The optimiser of these parameters."""
        betas = (self.beta1, self.beta2)
        return AdamW(
            [_leave_out_vectors(each) for each in parameters] if self.uses_roles else parameters,
            self.learning_rate,
            betas,
            self.epsilon,
            self.weight_decay,
            fused=True,
        )


class RMSpropConfig(OptimiserBase):
    """RMSprop (Tieleman and Hinton 2012)."""

    kind: Literal["rmsprop"] = "rmsprop"
    learning_rate: LearningRate = 1e-3
    smoothing: Share = 0.99
    """Decay of the running mean of squared gradients."""
    epsilon: Epsilon = 1e-8
    momentum: Share = 0.0
    """Share of the last step's direction that is kept; 0 keeps none."""
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Parameters) -> Optimizer:
        """The optimiser of these parameters."""
        return RMSprop(
            parameters,
            self.learning_rate,
            self.smoothing,
            self.epsilon,
            self.weight_decay,
            self.momentum,
            foreach=True,
        )

    @override
    def tensors_per_parameter(self) -> int:
        return 2 if self.momentum else 1


class NTASGDConfig(OptimiserBase):
    """Non-monotonically triggered averaged SGD (NT-ASGD): Merity, Keskar and Socher (2017), section 3.

    It is plain SGD until a report is no better than the best report before the last `interval` reports. From
    then on it averages the weights of all steps; reports, best weights and patience use the average.
    """

    kind: Literal["nt_asgd"] = "nt_asgd"
    learning_rate: LearningRate = 30.0
    weight_decay: WeightDecay = 0.0
    interval: int = Field(5, ge=1, json_schema_extra={"unit": "reports"})
    """Number of the last reports that the newest one is not compared with."""

    def build(self, parameters: Parameters) -> Optimizer:
        """The optimiser of these parameters."""
        return SGD(parameters, self.learning_rate, weight_decay=self.weight_decay, fused=True)

    @override
    def should_average(self, valid_costs: Sequence[float]) -> bool:
        later, best = valid_costs[self.interval + 1 :], accumulate(valid_costs, min)
        return any(loss >= bound for loss, bound in zip(later, best, strict=False))

    @override
    def tensors_per_parameter(self) -> int:
        return 1


class MuonConfig(OptimiserBase):
    """Muon (Jordan et al. 2024) for hidden matrices, and AdamW without decay of vectors for the rest."""

    kind: Literal["muon"] = "muon"
    learning_rate: LearningRate = 1e-3
    momentum: Share = 0.95
    """Share of the last step's direction that Muon keeps."""
    beta1: Share = 0.9
    """Decay of AdamW's running mean of gradients."""
    beta2: Share = 0.95
    """Decay of AdamW's running mean of squared gradients."""
    epsilon: Epsilon = 1e-8
    weight_decay: WeightDecay = 0.1

    @property
    @override
    def uses_roles(self) -> bool:
        return True

    def build(self, parameters: Parameters) -> Optimizer:
        """The optimiser of these groups of parameters; parameters without a role are AdamW's."""
        listed = list(parameters)
        groups = listed if isinstance(listed[0], dict) else [{"params": listed}]
        return OptimiserOfGroups([self._build_group(group) for group in groups])  # type: ignore[arg-type]

    def _build_group(self, group: dict[str, Any]) -> Optimizer:
        if group.get("role") == "hidden":
            rates = (self.learning_rate, self.weight_decay, self.momentum)
            muon = Muon([{**group, "params": []}], *rates, adjust_lr_fn="match_rms_adamw")
            # Set afterwards, because torch's constructor refuses parameters of three dimensions.
            muon.param_groups[0]["params"] = group["params"]
            return muon
        shared = self.model_dump(exclude={"kind", "momentum"})
        return AdamWConfig(**shared, decayed="matrices").build([group])


def _leave_out_vectors(group: Any) -> Any:
    """A group of vectors without weight decay; others as they are."""
    is_vectors = isinstance(group, dict) and group.get("role") == "vector"
    return {**group, "weight_decay": 0.0} if is_vectors else group


OptimiserConfig = Annotated[
    SGDConfig | AdamConfig | AdamWConfig | RMSpropConfig | NTASGDConfig | MuonConfig,
    Field(discriminator="kind"),
]
