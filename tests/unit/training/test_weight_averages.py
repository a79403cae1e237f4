"""Averages of weights, and the condition that starts them."""

from typing import Any

import pytest
import torch

from memtune.tasks import LanguageModelling
from memtune.training import GradientTrainer, read_checkpoint, restore_trainer
from memtune.training.optimisation.optimisers import NTASGDConfig
from memtune.training.optimisation.update_step import WeightAverages
from memtune.training.weight_files import copy_weights
from tests.presence import require
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
def test_averaging_starts_when_a_loss_is_no_better_than_the_best_before_the_interval(losses, averages):
    assert NTASGDConfig(interval=2).should_average(losses) == averages


class Steps:
    """One parameter, its optimiser, and the averages of its values."""

    def __init__(self, kind: type[torch.optim.Optimizer] = torch.optim.SGD, decay: float = 0.0) -> None:
        self.parameter = torch.nn.Parameter(torch.tensor([1.0, 5.0], dtype=torch.float64))
        self.optimiser = kind([self.parameter], lr=0.1)  # type: ignore[call-arg]
        self.averages = WeightAverages(self.optimiser, decay)

    def run(self, count: int) -> list[torch.Tensor]:
        """The values after each of `count` steps with gradients 1, 2, 3, ..."""
        values = []
        for number in range(1, count + 1):
            self.parameter.grad = torch.full_like(self.parameter, float(number))
            self.optimiser.step()
            self.averages.update()
            values.append(self.parameter.detach().clone())
        return values


def test_the_average_is_the_mean_of_the_values_after_the_steps_while_averaging():
    steps = Steps()
    steps.run(3)
    steps.averages.is_averaging = True
    values = steps.run(4)
    with steps.averages.use_averages():
        torch.testing.assert_close(steps.parameter, torch.stack(values).mean(0), rtol=1e-12, atol=0)
    assert torch.equal(steps.parameter, values[-1])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_an_ema_is_the_mean_of_the_first_values_and_forgets_them_later(kind):
    """With a decay of 0.75 the values from the fifth on have a weight of 0.25."""
    steps = Steps(kind, decay=0.75)
    values = steps.run(6)
    expected = 0.75 * (0.75 * torch.stack(values[:4]).mean(0) + 0.25 * values[4]) + 0.25 * values[5]
    with steps.averages.use_averages():
        torch.testing.assert_close(steps.parameter, expected, rtol=1e-12, atol=0)


def test_averaging_does_not_change_the_steps():
    averaged, plain = Steps(torch.optim.Adam, decay=0.9), Steps(torch.optim.Adam)
    assert torch.equal(averaged.run(5)[-1], plain.run(5)[-1])


def test_a_parameter_without_a_gradient_has_no_average():
    """Adam makes its own state at the first gradient, and would fail over an average found there."""
    steps = Steps(torch.optim.Adam, decay=0.9)
    before = steps.parameter.clone()
    steps.averages.update()
    assert not torch.equal(steps.run(1)[-1], before)


def test_without_an_average_the_weights_do_not_change():
    steps = Steps()
    with steps.averages.use_averages():
        assert steps.parameter.tolist() == [1.0, 5.0]


def test_an_error_in_use_averages_restores_the_weights():
    steps = Steps(decay=0.9)
    last = steps.run(3)[-1]
    with pytest.raises(KeyboardInterrupt), steps.averages.use_averages():
        raise KeyboardInterrupt
    assert torch.equal(steps.parameter, last)


def test_reports_and_best_weights_are_those_of_the_average(corpus, make_trial, monkeypatch):
    """Once triggered, a report is the evaluation of the mean of the weights after every step since."""
    monkeypatch.setattr("memtune.training.training_loop.PROGRESS_SECONDS", 0.0)
    trainer = GradientTrainer(make_trial(LSTM, STREAM, **TRIAL), corpus)
    config, weights_since_trigger, compared_reports = NTASGDConfig(interval=1), [], 0
    while not trainer.is_finished:
        averaging = config.should_average([require(report.valid_loss) for report in trainer.curve])
        weights: list[dict[str, torch.Tensor]] = []

        def copy_after_step(_, weights=weights):
            weights.append(copy_weights(trainer.model))

        report = trainer.advance(copy_after_step)
        if not averaging:
            continue
        weights_since_trigger += weights
        mean = {
            name: torch.stack([each[name] for each in weights_since_trigger]).mean(0)
            for name in weights_since_trigger[0]
        }
        protocol: Any = trainer.config.protocol
        copy: Any = GradientTrainer(trainer.config, corpus).model
        copy.load_state_dict(mean)
        expected = LanguageModelling(corpus, protocol).evaluate(copy, "valid").loss
        assert report.valid_loss == pytest.approx(expected, rel=1e-5)
        compared_reports += 1
        if trainer.best is report:
            for name, tensor in require(trainer._best_weights).items():
                torch.testing.assert_close(tensor, mean[name], rtol=1e-5, atol=1e-6)
    assert compared_reports >= 2
    assert trainer.best is trainer.curve[-1]


def test_a_checkpoint_holds_both_the_current_weights_and_their_average(corpus, make_trial, tmp_path):
    trainer = GradientTrainer(make_trial(LSTM, STREAM, **TRIAL), corpus)
    while not trainer.is_finished:
        trainer.advance()
    before = copy_weights(trainer.model)
    trainer.save(tmp_path / "checkpoint")
    restored = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    assert isinstance(restored, GradientTrainer)
    own = copy_weights(restored.model)
    assert all(torch.equal(own[name], before[name]) for name in before)
    assert any(not torch.equal(own[name], require(trainer._best_weights)[name]) for name in before)
    with restored._loop.updater.use_evaluation_weights():
        averages = copy_weights(restored.model)
    with trainer._loop.updater.use_evaluation_weights():
        expected = copy_weights(trainer.model)
    assert all(torch.equal(averages[name], expected[name]) for name in expected)
