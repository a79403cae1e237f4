import math
from itertools import product
from typing import Any

import pytest
import torch

from memtune.model_checks.oracles import assert_near, assert_same_gradients
from memtune.models import build_model, logits, negative_log_likelihood
from memtune.models.families.stack_lstm import StackLSTMConfig
from memtune.models.memories.discrete_stack import compute_reinforce_loss
from tests.oracles.stack_lstm import (
    compute_reinforce_objective,
    compute_stack_lstm_actions,
    compute_stack_lstm_contributions,
    compute_stack_lstm_logits,
)
from tests.presence import require

WORDS = 23
STAY, PUSH, POP = range(3)


def make_config(**fields) -> StackLSTMConfig:
    return StackLSTMConfig(
        **{
            "variant": "discrete",
            "width": 5,
            "stack_size": 4,
            "policy_width": 3,
            "initial_range": 0.8,
            **fields,
        }
    )


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: StackLSTMConfig) -> Any:
    """A model in evaluation with an uneven policy, whose most probable action changes often."""
    model: Any = build_model(config, WORDS, seed=3).eval()
    policy = model.stack.policy
    with torch.no_grad():
        for layer in (policy.reading, policy.cells, policy.decision):
            layer.weight.mul_(4)
        policy.reading.bias.zero_()
        policy.decision.bias.zero_()
    return model


def make_double_model(config: StackLSTMConfig) -> Any:
    return make_model(config).double()


def copy_parameters_as_double(model) -> dict[str, torch.Tensor]:
    return {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}


def concatenate(gradients) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def force_actions(model, actions_BT: torch.Tensor, monkeypatch) -> None:
    """Replace the noise by values so large that they determine the actions."""
    noise_BT3 = torch.nn.functional.one_hot(actions_BT, 3) * 1e9
    monkeypatch.setattr(model.stack, "noise", lambda zeros_BT3: zeros_BT3 + noise_BT3)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 63])
@pytest.mark.parametrize("policy_reads", ["word", "hidden"])
@pytest.mark.parametrize("discount", [0.0, 0.7, 1.0])
def test_evaluation_takes_the_most_probable_action_and_has_the_reinforce_gradient(
    length, policy_reads, discount
):
    model, words_BT = (
        make_double_model(make_config(policy_reads=policy_reads, discount=discount)),
        draw_text(length),
    )
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    parameters = copy_parameters_as_double(model)
    expected = compute_stack_lstm_logits(model.config, parameters, inputs_BT)
    assert_near(
        logits(model, inputs_BT)[0], torch.stack([torch.stack(row) for row in expected]), 1e-9, "logits"
    )
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
    objective = compute_reinforce_objective(model.config, parameters, inputs_BT, targets_BT)
    assert_same_gradients(model, loss, parameters, objective, 1e-9)


@pytest.mark.parametrize("size", [1, 2, 20])
def test_stacks_of_any_size_agree_with_the_equations(size):
    model, words_BT = make_double_model(make_config(stack_size=size)), draw_text(12)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    parameters = copy_parameters_as_double(model)
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
    objective = compute_reinforce_objective(model.config, parameters, inputs_BT, targets_BT)
    assert_same_gradients(model, loss, parameters, objective, 1e-9)


def test_single_precision_agrees_to_rounding():
    model, words_BT = make_model(make_config()), draw_text(63)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    parameters = copy_parameters_as_double(model)
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
    objective = compute_reinforce_objective(model.config, parameters, inputs_BT, targets_BT)
    own = torch.autograd.grad(loss, list(model.parameters()))
    wanted = torch.autograd.grad(objective, list(parameters.values()))
    # As one vector: a bias sums terms of both signs, and the rounding error is relative to the terms.
    assert_near(concatenate(own), concatenate(wanted), 1e-5, "gradient")


@pytest.mark.parametrize("carried_from", [1, 3, 11])
def test_carried_stack_agrees_with_reading_the_whole_text(carried_from):
    model, words_BT = make_double_model(make_config()), draw_text(20)
    _, state = logits(model, words_BT[:, :carried_from])
    rest_BTV, after = logits(model, words_BT[:, carried_from:], state)
    whole_BTV, expected = logits(model, words_BT)
    assert_near(rest_BTV, whole_BTV[:, carried_from:], 1e-12, "logits")
    assert_near(after["stack"], expected["stack"], 1e-12, "stack")


@pytest.mark.parametrize("length", [1, 9, 70])
def test_actions_and_contribution_agree_with_the_equations(length):
    model, words_BT = make_double_model(make_config()), draw_text(length)[:, 1:]
    use = model.measure_stack_use(words_BT, model.initial_state(2))
    parameters = dict(model.named_parameters())
    for name, oracle in [
        ("actions_BTA", compute_stack_lstm_actions),
        ("contribution_BT", compute_stack_lstm_contributions),
    ]:
        expected = torch.stack([torch.stack(row) for row in oracle(model.config, parameters, words_BT)])
        assert_near(getattr(use, name), expected, 1e-12, name)


@pytest.mark.parametrize("policy_reads", ["word", "hidden"])
def test_all_three_actions_are_taken_in_the_texts_of_these_tests(policy_reads):
    """Otherwise the comparisons with the equations would not cover every action."""
    model, words_BT = make_double_model(make_config(policy_reads=policy_reads)), draw_text(63)
    actions_BT = model.measure_stack_use(words_BT, model.initial_state(2)).actions_BTA.argmax(2)
    assert set(actions_BT.flatten().tolist()) == {STAY, PUSH, POP}


def test_sampled_actions_agree_with_the_equations(monkeypatch):
    model, words_BT = make_double_model(make_config()), draw_text(15)
    actions_BT = torch.randint(3, (2, 15), generator=torch.Generator().manual_seed(0))
    force_actions(model, actions_BT, monkeypatch)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    parameters = copy_parameters_as_double(model)
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
    objective = compute_reinforce_objective(model.config, parameters, inputs_BT, targets_BT, actions_BT)
    assert_same_gradients(model, loss, parameters, objective, 1e-9)


def test_gradient_averaged_over_all_draws_is_that_of_the_expected_loss(monkeypatch):
    """REINFORCE is unbiased, with any baseline: a sum over all 27 sequences of actions for three words."""
    model, words_BT = make_double_model(make_config(discount=1.0)), draw_text(3)[:1]
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    taught = {name: value for name, value in model.named_parameters() if "baseline" not in name}
    mean = [torch.zeros_like(value) for value in taught.values()]
    expected_loss = torch.zeros(())
    for actions in product([STAY, PUSH, POP], repeat=3):
        force_actions(model, torch.tensor([actions]), monkeypatch)
        loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT)
        gradients = torch.autograd.grad(loss, list(taught.values()))
        probability = compute_probability_of_forced(model, inputs_BT)
        mean = [
            total + probability.detach() * gradient for total, gradient in zip(mean, gradients, strict=True)
        ]
        plain_BTV, _ = logits(model, inputs_BT)
        plain = torch.nn.functional.cross_entropy(plain_BTV[0], targets_BT[0], reduction="sum")
        expected_loss = expected_loss + probability * plain
    exact = torch.autograd.grad(expected_loss, list(taught.values()))
    for name, averaged, reference in zip(taught, mean, exact, strict=True):
        assert_near(averaged, reference, 1e-9, name)


def compute_probability_of_forced(model, inputs_BT: torch.Tensor) -> torch.Tensor:
    state = model.initial_state(len(inputs_BT))
    reading_BTH, hidden_BTH, _ = model._run_lstm(inputs_BT, state)
    return model.stack.decide(reading_BTH, hidden_BTH, state["stack"]).log_likelihood().sum().exp()


def test_training_samples_each_action_with_its_probability():
    model: Any = build_model(make_config(), WORDS, seed=1)
    words_BT = torch.full((40_000, 1), 7)
    state = model.initial_state(40_000)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reading_BTH, hidden_BTH, _ = model._run_lstm(words_BT, state)
        decisions = model.stack.decide(reading_BTH, hidden_BTH, state["stack"])
    share_3 = decisions.taken_BT.flatten().bincount(minlength=3) / 40_000
    policy_3 = decisions.logarithms_BT3[0, 0].exp()
    assert policy_3.min() > 0.1
    torch.testing.assert_close(share_3, policy_3, rtol=0, atol=0.01)  # a standard deviation is 0.0025


def test_the_loss_is_the_likelihood_of_the_words_under_the_drawn_actions(monkeypatch):
    model, words_BT = make_double_model(make_config()), draw_text(15)
    force_actions(model, torch.randint(3, (2, 15), generator=torch.Generator().manual_seed(0)), monkeypatch)
    loss, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
    logits_BTV, _ = logits(model, words_BT[:, :-1])
    expected = torch.nn.functional.cross_entropy(
        logits_BTV.flatten(0, 1), words_BT[:, 1:].flatten(), reduction="sum"
    )
    torch.testing.assert_close(loss, expected)


def test_the_baseline_starts_at_the_cost_of_a_uniform_distribution():
    model: Any = build_model(make_config(), WORDS, seed=1)
    assert model.baseline.bias.item() == pytest.approx(math.log(WORDS))


def test_masked_words_add_nothing_to_the_return_of_an_action():
    """Of two steps the second is masked: its action has no return, the first has only its own cost."""
    logarithms_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    expected_BT = torch.tensor([[3.0, 3.0]], requires_grad=True)
    costs_BT, weights_BT = torch.tensor([[5.0, 7.0]]), torch.tensor([[1.0, 0.0]])
    compute_reinforce_loss(costs_BT, weights_BT, logarithms_BT, expected_BT, discount=0.5).backward()
    assert require(logarithms_BT.grad).tolist() == [[5 - 3, 0]]
    assert require(expected_BT.grad).tolist() == [[3 - 5, 0]]


def test_the_return_of_an_action_discounts_the_costs_of_later_words():
    """Costs 5 and 7 at a discount of a half: 8.5 over a weight of 1.5 for the first action."""
    logarithms_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    expected_BT = torch.tensor([[3.0, 3.0]], requires_grad=True)
    costs_BT, weights_BT = torch.tensor([[5.0, 7.0]]), torch.ones(1, 2)
    compute_reinforce_loss(costs_BT, weights_BT, logarithms_BT, expected_BT, discount=0.5).backward()
    assert require(logarithms_BT.grad).tolist() == [[8.5 - 1.5 * 3, 7 - 3]]
    assert require(expected_BT.grad)[0].tolist() == pytest.approx([3 - 8.5 / 1.5, 3 - 7])
