"""The learning rate by progress."""

import pytest

from memtune.training.optimisation.schedules import (
    ConstantSchedule,
    InverseSchedule,
    PlateauSchedule,
    SchedulePosition,
    StepSchedule,
)


def _list_scales_by_epoch(schedule, epochs: int) -> list[float]:
    return [schedule.scale(SchedulePosition(epoch, 0, [])) for epoch in range(1, epochs + 1)]


def test_halved_at_each_epoch_after_the_fourth():
    assert _list_scales_by_epoch(StepSchedule(factor=0.5, hold_epochs=4), 7) == [1, 1, 1, 1, 0.5, 0.25, 0.125]


def test_the_released_code_holds_the_rate_for_five_epochs():
    assert _list_scales_by_epoch(StepSchedule(factor=0.5, hold_epochs=5), 7) == [1, 1, 1, 1, 1, 0.5, 0.25]


def test_a_constant_rate_stays():
    assert _list_scales_by_epoch(ConstantSchedule(), 3) == [1, 1, 1]


def test_a_plateau_lowers_the_rate_once_per_report_without_a_best():
    schedule = PlateauSchedule(factor=0.25)
    losses = [5.0, 4.0, 4.5, 4.0, 3.0, 3.5]
    scales = [schedule.scale(SchedulePosition(1, 0, losses[:count])) for count in range(len(losses) + 1)]
    assert scales == [1, 1, 1, 0.25, 0.25**2, 0.25**2, 0.25**3]


def test_inverse_decay_divides_by_the_updates():
    schedule = InverseSchedule(decay=0.1)
    scales = [schedule.scale(SchedulePosition(1, updates, [])) for updates in (0, 10, 90)]
    assert scales == pytest.approx([1.0, 0.5, 0.1])
