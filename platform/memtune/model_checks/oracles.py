"""Oracles: the equations of a family once more, and the comparison of its models with them.

Logits, loss and every gradient are compared, relative to the oracle's norm.

A user's oracle is a file that imports nothing of the family. It has `compute_logits(config, parameters,
words_BT)`, which returns logits[b][t] as vectors over the vocabulary, computed in float64 from the parameters
by name. Optional: `EXAMPLES`, a list of fields of configurations over which everything is checked; by default
one small model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memtune.errors import PluginError
from memtune.models import NeuralLanguageModel, find_device, logits, negative_log_likelihood
from memtune.plugins import load_source
from memtune.plugins.source_modules import read_source_file

Oracle = Callable[..., list[list[Tensor]]]
"""logits[b][t], vectors over the vocabulary, from a configuration, parameters in float64 and words."""
ROUNDING = 1e-15
"""Norm of the rounding errors of a float64 reference whose true value is zero."""


def assert_agreement(
    model: NeuralLanguageModel,
    oracle: Oracle,
    words_BT: Tensor,
    tolerance: float,
    carried_from: int = 0,
    seed: int | None = None,
) -> None:
    """The model, on its device, predicts words[1:] as the oracle does in float64 on the CPU.

    With `carried_from`, the model first reads that number of words and carries its state, while the oracle
    reads the whole text; the words after `carried_from` are compared. With `seed`, torch's generator is
    seeded before the oracle and before each pass of the model.
    """
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    # As the oracle reads them, on the CPU and with gradients.
    parameters = {
        name: value.detach().cpu().double().requires_grad_() for name, value in model.named_parameters()
    }
    _set_seed(seed)
    sentences = [torch.stack(sentence) for sentence in oracle(model.config, parameters, inputs_BT)]
    expected_BTV = torch.stack(sentences)[:, carried_from:]
    expected_loss = -expected_BTV.log_softmax(2).gather(2, targets_BT[:, carried_from:, None]).sum()

    inputs_BT, targets_BT = (words.to(find_device(model)) for words in (inputs_BT, targets_BT))
    state = logits(model, inputs_BT[:, :carried_from])[1] if carried_from else None
    rest_BT = inputs_BT[:, carried_from:]
    _set_seed(seed)
    assert_near(logits(model, rest_BT, state)[0], expected_BTV, tolerance, "logits")
    _set_seed(seed)
    loss, _ = negative_log_likelihood(model, rest_BT, targets_BT[:, carried_from:], state=state)
    assert_near(loss, expected_loss, tolerance, "loss")
    assert_same_gradients(model, loss, parameters, expected_loss, tolerance)


def _set_seed(seed: int | None) -> None:
    if seed is not None:
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed_all(seed)


def assert_same_gradients(
    model: NeuralLanguageModel,
    loss: Tensor,
    parameters: dict[str, Tensor],
    expected: Tensor,
    tolerance: float,
) -> None:
    """Every parameter's gradient of `loss` is that of the oracle's loss."""
    names = list(parameters)
    own = torch.autograd.grad(loss, [dict(model.named_parameters())[name] for name in names])
    wanted = torch.autograd.grad(expected, [parameters[name] for name in names])
    for name, gradient, reference in zip(names, own, wanted, strict=True):
        assert_near(gradient, reference, tolerance, f"gradient of {name}")


def assert_near(value: Tensor, reference: Tensor, tolerance: float, name: str) -> None:
    """The distance is at most `tolerance` of the reference's norm."""
    assert value.shape == reference.shape, name
    distance = (value.detach().cpu().double() - reference.detach()).norm()
    limit = max(tolerance * reference.norm(), ROUNDING)
    assert distance <= limit, f"{name}: {distance / reference.norm():.1e} off"


EXAMPLE_SIZE = {"width": 8, "initial_range": 0.5}
"""Fields of most examples: small models, with wide initial values so that an error changes the result."""


@dataclass(frozen=True)
class OracleFile:
    """The equations, and the fields of the configurations to check."""

    compute_logits: Oracle
    examples: Sequence[Mapping[str, Any]]


def load_oracle(path: Path) -> OracleFile:
    """Execute an oracle's file. Raises PluginError for one that cannot be loaded or lacks its function."""
    module = load_source(read_source_file(path))
    compute_logits = getattr(module, "compute_logits", None)
    examples = getattr(module, "EXAMPLES", [])
    if not callable(compute_logits):
        raise PluginError(f"{path} has no function compute_logits(config, parameters, words_BT)")
    if not isinstance(examples, list) or not all(isinstance(example, Mapping) for example in examples):
        raise PluginError(f"{path}: EXAMPLES must be a list of fields, such as [{{'width': 8}}]")
    return OracleFile(compute_logits, examples)
