"""The learning rate by progress."""

import math

import pytest

from memtune.errors import ConfigurationError
from memtune.training.optimisation.schedules import (
    ConstantSchedule,
    InverseSchedule,
    PlateauSchedule,
    SchedulePosition,
    StepSchedule,
    WarmupSchedule,
)
from memtune.values import parse


def _list_scales_by_share(schedule, *shares: float) -> list[float]:
    return [schedule.scale(SchedulePosition(1, 0, [], share)) for share in shares]


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


def test_a_warm_up_is_linear_and_a_cosine_falls_to_the_final_factor():
    schedule = WarmupSchedule(warmup=0.2, cooldown=0.8, final=0.1)
    scales = _list_scales_by_share(schedule, 0.1, 0.2, 0.4, 0.6, 1.0)
    quarter = (1 + math.cos(math.pi / 4)) / 2
    assert scales == pytest.approx([0.5, 1.0, 0.1 + 0.9 * quarter, 0.55, 0.1])


def test_warm_up_stable_decay_keeps_the_rate_between_its_shares():
    schedule = WarmupSchedule(warmup=0.1, cooldown=0.2, shape="linear", final=0.0)
    assert _list_scales_by_share(schedule, 0.05, 0.1, 0.5, 0.8, 0.9, 1.0) == pytest.approx(
        [0.5, 1, 1, 1, 0.5, 0]
    )


def test_without_warm_up_and_decay_the_rate_stays():
    assert _list_scales_by_share(WarmupSchedule(warmup=0, cooldown=0), 0.01, 0.5, 1.0) == [1, 1, 1]


def test_shares_of_more_than_one_budget_are_refused():
    with pytest.raises(
        ConfigurationError, match=r"warmup = 0\.3 and cooldown = 0\.8 are shares of one budget"
    ):
        parse(WarmupSchedule, {"warmup": 0.3, "cooldown": 0.8}, "test")
