"""Comparison of a model with its oracle: logits, loss and every gradient, relative to the oracle's norm."""

from collections.abc import Callable

import torch
from torch import Tensor

from memtune.models import NeuralLanguageModel, logits, negative_log_likelihood

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
    parameters = copy_as_float64(model)
    _set_seed(seed)
    expected_BTV = _stack(oracle(model.config, parameters, inputs_BT))[:, carried_from:]
    expected_loss = -_compute_log_likelihood(expected_BTV, targets_BT[:, carried_from:])

    inputs_BT, targets_BT = (words.to(next(model.parameters()).device) for words in (inputs_BT, targets_BT))
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
        torch.manual_seed(seed)


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


def copy_as_float64(model: NeuralLanguageModel) -> dict[str, Tensor]:
    """The parameters as an oracle reads them, on the CPU and with gradients."""
    return {name: value.detach().cpu().double().requires_grad_() for name, value in model.named_parameters()}


def _stack(sentences: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.stack(sentence) for sentence in sentences])


def _compute_log_likelihood(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return logits_BTV.log_softmax(2).gather(2, targets_BT.unsqueeze(2)).sum()
