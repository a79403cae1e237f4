"""Averages of weights, and when they begin."""

import pytest
import torch

from memtune.tasks import LanguageModelling
from memtune.training import Learner, NTASGDConfig
from memtune.training.averaging import AveragedSGD
from memtune.training.weights import copy_weights
from tests.unit.training.conftest import STREAM

TRIGGERED = {"kind": "nt_asgd", "learning_rate": 4.0, "interval": 1}
TRIAL = {"optimiser": TRIGGERED, "tokens": 4000, "report_every": 500}
LSTM = {"family": "lstm", "width": 12}


@pytest.mark.parametrize(
    ("losses", "averages"),
    [
        ([], False),
        ([5.0, 4.0, 3.0, 2.0], False),
        ([5.0, 4.0, 6.0], False),
        ([5.0, 4.0, 6.0, 4.9], False),
        ([5.0, 4.0, 6.0, 5.0], True),
        ([5.0, 4.0, 6.0, 5.0, 1.0], True),
        ([5.0, 4.0, 3.5, 3.6, 3.9, 3.6], True),
        ([5.0, 4.0, 3.5, 3.6, 3.4, 3.3], False),
    ],
)
def test_averaging_begins_with_a_loss_no_better_than_the_best_before_the_last_ones(losses, averages):
    assert NTASGDConfig(interval=2).averages(losses) == averages


def _steps(optimiser: AveragedSGD, parameter: torch.nn.Parameter, count: int) -> list[torch.Tensor]:
    """Gradients of 1, 2, 3 and so on; the values after each step."""
    values = []
    for number in range(1, count + 1):
        parameter.grad = torch.full_like(parameter, float(number))
        optimiser.step()
        values.append(parameter.detach().clone())
    return values


def test_the_average_is_the_mean_of_the_values_after_the_steps_while_averaging():
    parameter = torch.nn.Parameter(torch.tensor([1.0, 5.0], dtype=torch.float64))
    optimiser = AveragedSGD([parameter], 0.1)
    _steps(optimiser, parameter, 3)
    optimiser.averaging = True
    values = _steps(optimiser, parameter, 4)
    with optimiser.averaged():
        torch.testing.assert_close(parameter, torch.stack(values).mean(0), rtol=1e-12, atol=0)
    assert torch.equal(parameter, values[-1])


def test_steps_are_those_of_plain_descent_whether_averaging_or_not():
    ends = []
    for kind in (AveragedSGD, torch.optim.SGD):
        parameter = torch.nn.Parameter(torch.tensor([1.0, 5.0]))
        optimiser = kind([parameter], 0.1, weight_decay=0.01)
        optimiser.averaging = True
        ends.append(_steps(optimiser, parameter, 5)[-1])
    assert torch.equal(*ends)


def test_without_an_average_the_weights_stand_for_themselves():
    parameter = torch.nn.Parameter(torch.tensor([1.0, 5.0]))
    optimiser = AveragedSGD([parameter], 0.1)
    with optimiser.averaged():
        assert parameter.tolist() == [1.0, 5.0]


def test_an_error_while_the_averages_stand_in_puts_the_weights_back():
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    optimiser = AveragedSGD([parameter], 0.1)
    optimiser.averaging = True
    last = _steps(optimiser, parameter, 3)[-1]
    with pytest.raises(KeyboardInterrupt), optimiser.averaged():
        raise KeyboardInterrupt
    assert torch.equal(parameter, last)


def test_reports_and_best_weights_are_those_of_the_average(corpus, make_trial, monkeypatch):
    """Once triggered, a report is the evaluation of the mean of the weights after every step since."""
    monkeypatch.setattr("memtune.training.learner.PROGRESS_SECONDS", 0.0)
    learner = Learner(make_trial(LSTM, STREAM, **TRIAL), corpus)
    rule, seen, judged = NTASGDConfig(interval=1), [], 0
    while not learner.finished:
        averaging = rule.averages([report.valid_loss for report in learner.curve])
        weights = []
        report = learner.advance(lambda _, weights=weights: weights.append(copy_weights(learner.model)))
        if not averaging:
            continue
        seen += weights
        mean = {name: torch.stack([each[name] for each in seen]).mean(0) for name in seen[0]}
        copy = Learner(learner.config, corpus).model
        copy.load_state_dict(mean)
        expected = LanguageModelling(corpus, learner.config.protocol).evaluate(copy, "valid").loss
        assert report.valid_loss == pytest.approx(expected, rel=1e-5)
        judged += 1
        if learner.best is report:
            for name, tensor in learner._best_weights.items():
                torch.testing.assert_close(tensor, mean[name], rtol=1e-5, atol=1e-6)
    assert judged >= 2
    assert learner.best is learner.curve[-1]


def test_a_checkpoint_keeps_the_weights_to_go_on_from_and_the_average_apart(corpus, make_trial, tmp_path):
    learner = Learner(make_trial(LSTM, STREAM, **TRIAL), corpus)
    while not learner.finished:
        learner.advance()
    before = copy_weights(learner.model)
    learner.save(tmp_path / "checkpoint")
    restored = Learner.restore(tmp_path / "checkpoint", corpus)
    own = copy_weights(restored.model)
    assert all(torch.equal(own[name], before[name]) for name in before)
    assert any(not torch.equal(own[name], learner._best_weights[name]) for name in before)
    with restored._updates.judged():
        averages = copy_weights(restored.model)
    with learner._updates.judged():
        expected = copy_weights(learner.model)
    assert all(torch.equal(averages[name], expected[name]) for name in expected)
