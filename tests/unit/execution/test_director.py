"""The director keeps sampler, halving rule and records in step, whatever it hears and in whatever order."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memtune.execution.director import Director, Trial
from memtune.execution.settings import Settings
from memtune.execution.study import load_study, prepare
from memtune.search import HalvingConfig, Proposals, SuccessiveHalving
from memtune.training import Report


class Notebook:
    """Records that remember."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.reported: list[tuple[int, int]] = []
        self.finished: list[tuple[int, str]] = []
        self.remarked: list[tuple[int, list[str]]] = []

    def start(self, trial: Trial) -> None:
        self.started.append(trial.proposal.number)

    def report(self, trial: Trial, reports: Sequence[Report]) -> None:
        self.reported += [(trial.proposal.number, report.tokens) for report in reports]

    def remark(self, trial: Trial) -> None:
        self.remarked.append((trial.proposal.number, list(trial.remarks)))

    def finish(self, trial: Trial) -> None:
        self.finished.append((trial.proposal.number, trial.state))


def report(tokens: int, loss: float | None, reason: str | None = None) -> Report:
    return Report(
        tokens=tokens,
        epoch=0.0,
        train_loss=loss,
        train_perplexity=None,
        valid_loss=loss,
        valid_perplexity=None,
        gradient_norm=None,
        learning_rate=1.0,
        tokens_per_second=1.0,
        seconds=1.0,
        peak_memory_bytes=1,
        finished=reason is not None,
        reason=reason,
    )


@pytest.fixture
def proposals(study_file: Path, settings: Settings) -> Callable[[], Proposals]:
    """Opens the study's proposals, as each new driver does."""
    ready = prepare(study_file, load_study(study_file), settings)
    return lambda: Proposals(
        settings.proposals, ready.id, ready.space, ready.study.sampler, ready.identify, ready.refuse
    )


def begin(director: Director) -> int:
    trial = director.next()
    assert trial is not None
    director.started(trial.proposal.number)
    return trial.proposal.number


def test_a_trial_that_ends_is_complete_with_its_best_validation_loss(
    proposals: Callable[[], Proposals],
) -> None:
    director = Director(opened := proposals(), Notebook(), budget=1)
    number = begin(director)
    assert director.heard(number, [report(300, 3.0)], None)
    director.heard(number, [report(300, 3.0), report(600, 2.0), report(900, 2.5, "budget")], None)
    director.ended(number)
    (outcome,) = opened.finished()
    assert (outcome.state, outcome.value) == ("complete", 2.0)
    assert outcome.curve == {300: 3.0, 600: 2.0, 900: 2.5}
    assert director.next() is None


def test_hearing_a_curve_again_records_nothing_again(proposals: Callable[[], Proposals]) -> None:
    director = Director(proposals(), notebook := Notebook(), budget=1)
    number = begin(director)
    for _ in range(3):
        director.heard(number, [report(300, 3.0)], None)
    assert notebook.reported == [(number, 300)]


def test_a_remark_is_recorded_once(proposals: Callable[[], Proposals]) -> None:
    director = Director(proposals(), notebook := Notebook(), budget=1)
    number = begin(director)
    for _ in range(2):
        director.heard(number, [], None, ["checkpoint 300 is passed over"])
    assert notebook.remarked == [(number, ["checkpoint 300 is passed over"])]


def test_a_trial_no_worker_can_take_up_stays_open_and_nothing_else_is_started(
    proposals: Callable[[], Proposals],
) -> None:
    director = Director(opened := proposals(), Notebook(), budget=3)
    number = begin(director)
    director.halt(number, "no corpus there")
    assert director.next() is None
    assert [(trial.proposal.number, trial.reason) for trial in director.interrupt()] == [
        (number, "no corpus there")
    ]
    assert [proposal.number for proposal in opened.unfinished()] == [number]


def test_a_trial_behind_at_a_rung_is_told_to_stop_and_pruned(proposals: Callable[[], Proposals]) -> None:
    rule = SuccessiveHalving(HalvingConfig(grace=300, factor=2), budget=900)
    director = Director(opened := proposals(), notebook := Notebook(), budget=2, rule=rule)
    good, bad = begin(director), begin(director)
    assert director.heard(good, [report(300, 1.0)], None)
    assert not director.heard(bad, [report(300, 2.0)], None)
    director.ended(bad)
    outcome = next(outcome for outcome in opened.finished() if outcome.number == bad)
    assert outcome.state == "pruned"
    assert outcome.reason == "successive halving at 300 tokens"
    assert notebook.finished == [(bad, "stopped")]


def test_a_trial_of_one_report_takes_no_rung_from_those_on_their_way(
    proposals: Callable[[], Proposals],
) -> None:
    """Neither while the study runs nor when it is taken up again."""

    def halving() -> SuccessiveHalving:
        return SuccessiveHalving(HalvingConfig(grace=300, factor=2), budget=900)

    director = Director(proposals(), Notebook(), budget=3, rule=halving())
    counted, network = begin(director), begin(director)
    director.heard(counted, [report(600, 1.0, "budget")], None)
    director.ended(counted)
    assert director.heard(network, [report(300, 2.0)], None)
    Director(proposals(), Notebook(), budget=3, rule=(resumed := halving()))
    assert resumed.values(300) == {network: 2.0}


@pytest.mark.parametrize(
    ("curve", "failure", "reason"),
    [
        ([report(300, None, "diverged: the training loss is not finite")], None, "diverged"),
        ([], "TrialError: out of memory", "out of memory"),
        ([report(300, 2.0)], "CorpusError: shard altered", "shard altered"),
    ],
)
def test_a_trial_that_goes_wrong_fails_with_its_reason(
    proposals: Callable[[], Proposals], curve: list[Report], failure: str | None, reason: str
) -> None:
    director = Director(opened := proposals(), notebook := Notebook(), budget=1)
    number = begin(director)
    assert not director.heard(number, curve, failure)
    director.ended(number)
    (outcome,) = opened.finished()
    assert outcome.state == "failed"
    assert reason in (outcome.reason or "")
    assert notebook.finished == [(number, "failed")]


def test_a_later_driver_goes_on_with_the_open_trial_and_counts_the_ended_one(
    proposals: Callable[[], Proposals],
) -> None:
    first = Director(proposals(), Notebook(), budget=3)
    ended, left_open = begin(first), begin(first)
    first.heard(ended, [report(900, 2.0, "budget")], None)
    first.ended(ended)
    first.heard(left_open, [report(300, 3.0)], None)

    second = Director(opened := proposals(), Notebook(), budget=3)
    assert begin(second) == left_open
    begin(second)
    assert second.next() is None
    assert opened.outcomes()[1].curve == {300: 3.0}


def test_a_finished_study_has_nothing_left_to_run(proposals: Callable[[], Proposals]) -> None:
    first = Director(proposals(), Notebook(), budget=1)
    number = begin(first)
    first.heard(number, [report(900, 2.0, "budget")], None)
    first.ended(number)
    assert Director(proposals(), Notebook(), budget=1).finished


def test_an_interrupted_trial_stays_open_for_the_next_driver(proposals: Callable[[], Proposals]) -> None:
    director = Director(opened := proposals(), notebook := Notebook(), budget=2)
    number = begin(director)
    assert [trial.proposal.number for trial in director.interrupt()] == [number]
    assert notebook.finished == [(number, "interrupted")]
    assert [proposal.number for proposal in opened.unfinished()] == [number]


def test_when_time_is_up_open_trials_are_pruned_with_that_reason(proposals: Callable[[], Proposals]) -> None:
    director = Director(opened := proposals(), Notebook(), budget=2)
    number = begin(director)
    director.heard(number, [report(300, 3.0)], None)
    director.close("the study's time was up")
    (outcome,) = opened.finished()
    assert (outcome.state, outcome.reason) == ("pruned", "the study's time was up")
    assert director.interrupt() == []


def test_watchers_see_every_change(proposals: Callable[[], Proposals]) -> None:
    seen: list[str] = []
    director = Director(proposals(), Notebook(), budget=1, watchers=[lambda trial: seen.append(trial.state)])
    number = begin(director)
    director.heard(number, [report(900, 2.0, "budget")], None)
    director.ended(number)
    assert seen == ["running", "running", "done"]


def test_time_that_is_up_stops_the_trials_that_wait_too_and_starts_no_other(
    proposals: Callable[[], Proposals],
) -> None:
    first = Director(proposals(), Notebook(), budget=3)
    number = begin(first)
    first.heard(number, [report(300, 3.0)], None)

    second = Director(opened := proposals(), notebook := Notebook(), budget=3)
    second.close("the study's time was up")
    (outcome,) = opened.finished()
    assert (outcome.number, outcome.state, outcome.reason) == (number, "pruned", "the study's time was up")
    assert notebook.finished == [(number, "stopped")]
    assert second.next() is None
