"""The director keeps sampler, early-stopping rule and records consistent, for any order of events."""

import gc
import weakref
from collections.abc import Callable, Sequence

import pytest

from memtune.search import Proposals
from memtune.search.early_stopping import SuccessiveHalving, SuccessiveHalvingConfig
from memtune.studies.director import MAX_FAULTS, DirectedTrial, Director
from memtune.training import Report
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import Usage
from tests.directors import report_curve
from tests.presence import require


class MemoryRecords:
    """Records kept in memory."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.reported: list[tuple[int, int]] = []
        self.finished: list[tuple[int, str]] = []
        self.remarked: list[tuple[int, list[str]]] = []

    def start(self, trial: DirectedTrial) -> None:
        self.started.append(trial.proposal.number)

    def report(self, trial: DirectedTrial, reports: Sequence[Report]) -> None:
        self.reported += [(trial.proposal.number, report.tokens) for report in reports]

    def remark(self, trial: DirectedTrial) -> None:
        self.remarked.append((trial.proposal.number, list(trial.remarks)))

    def finish(self, trial: DirectedTrial) -> None:
        self.finished.append((trial.proposal.number, trial.state))


def make_report(tokens: int, loss: float | None, reason: str | None = None) -> Report:
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
        end=TrialEnd(reason=StopReason(reason)) if reason else None,
    )


def start_trial(director: Director) -> int:
    trial = director.take_next_trial()
    assert trial is not None
    director.on_started(trial.proposal.number)
    return trial.proposal.number


def test_a_trial_that_ends_is_complete_with_its_best_validation_loss(
    open_proposals: Callable[[], Proposals],
) -> None:
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=1)
    number = start_trial(director)
    assert report_curve(director, number, [make_report(300, 3.0)], None)
    report_curve(
        director,
        number,
        [make_report(300, 3.0), make_report(600, 2.0), make_report(900, 2.5, "budget")],
        None,
    )
    director.on_ended(number)
    (outcome,) = opened.list_finished()
    assert (outcome.state, outcome.value) == (TrialState.COMPLETE, 2.0)
    assert outcome.curve == {300: 3.0, 600: 2.0, 900: 2.5}
    assert director.take_next_trial() is None


def test_a_repeated_curve_is_recorded_once(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(open_proposals(), records := MemoryRecords(), max_trials=1)
    number = start_trial(director)
    for _ in range(3):
        report_curve(director, number, [make_report(300, 3.0)], None)
    assert records.reported == [(number, 300)]


def test_a_remark_is_recorded_once(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(open_proposals(), records := MemoryRecords(), max_trials=1)
    number = start_trial(director)
    for _ in range(2):
        report_curve(director, number, [], None, ["checkpoint 300 is skipped"])
    assert records.remarked == [(number, ["checkpoint 300 is skipped"])]


def test_a_trial_that_meets_a_fault_of_the_environment_starts_again_before_others(
    open_proposals: Callable[[], Proposals],
) -> None:
    director = Director(open_proposals(), MemoryRecords(), max_trials=3)
    number = start_trial(director)
    director.on_environment_fault(number, "no corpus there")
    assert start_trial(director) == number
    assert director.fault is None


def test_the_last_running_trial_may_still_meet_a_fault_and_start_again(
    open_proposals: Callable[[], Proposals],
) -> None:
    director = Director(open_proposals(), MemoryRecords(), max_trials=1)
    number = start_trial(director)
    assert director.take_next_trial() is None
    assert director.may_start_later
    director.on_environment_fault(number, "no corpus there")
    assert start_trial(director) == number


def test_three_faults_in_a_row_leave_the_trial_open_and_no_other_is_started(
    open_proposals: Callable[[], Proposals],
) -> None:
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=3)
    for _ in range(MAX_FAULTS):
        number = start_trial(director)
        director.on_environment_fault(number, "no corpus there")
    assert director.take_next_trial() is None
    assert director.fault == "no corpus there"
    assert [(trial.proposal.number, trial.remarks) for trial in director.interrupt()] == [
        (number, ["no corpus there"])
    ]
    assert [proposal.number for proposal in opened.list_unfinished()] == [number]


def test_a_fault_after_further_training_counts_as_the_first(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(open_proposals(), MemoryRecords(), max_trials=1)
    for step in range(2 * MAX_FAULTS):
        number = start_trial(director)
        report_curve(director, number, [], usage=Usage(tokens=100 * step))
        director.on_environment_fault(number, "no space")
    assert director.fault is None


def test_a_fault_after_the_end_of_a_trial_changes_no_end(open_proposals: Callable[[], Proposals]) -> None:
    director, opened, number = start_trial_behind_others(open_proposals)
    assert not report_curve(director, number, [make_report(300, 2.0)])
    director.on_environment_fault(number, "no space")
    assert [outcome.state for outcome in opened.list_finished()] == [TrialState.STOPPED]
    assert director.take_next_trial() is None


def test_a_trial_behind_at_a_rung_is_stopped_and_pruned(open_proposals: Callable[[], Proposals]) -> None:
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)
    director = Director(opened := open_proposals(), records := MemoryRecords(), max_trials=2, rule=rule)
    good, bad = start_trial(director), start_trial(director)
    assert report_curve(director, good, [make_report(300, 1.0)], None)
    assert not report_curve(director, bad, [make_report(300, 2.0)], None)
    director.on_ended(bad)
    outcome = next(outcome for outcome in opened.list_finished() if outcome.number == bad)
    assert outcome.state is TrialState.STOPPED
    assert str(outcome.end) == ("successive halving: rank 2 of 2 at the rung of 300; the best continues")
    assert records.finished == [(bad, "stopped")]


@pytest.mark.parametrize(("compared", "continues"), [("model.family", False), ("model.layers", True)])
def test_the_best_trial_of_each_value_of_the_compared_field_continues(
    open_proposals: Callable[[], Proposals], compared: str, continues: bool
) -> None:
    def direct() -> Director:
        rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)
        return Director(opened, MemoryRecords(), max_trials=2, rule=rule, compared=compared)

    opened = open_proposals()
    given = [opened.propose({"model.layers": layers}) for layers in (1, 2)]
    first = direct()
    better, worse = (start_trial(first) for _ in given)
    assert report_curve(first, better, [make_report(300, 1.0)], None)
    resumed = direct()
    assert start_trial(resumed) == better
    assert start_trial(resumed) == worse
    assert report_curve(resumed, worse, [make_report(300, 2.0)], None) is continues


def test_an_interruption_records_a_stopped_trial_whose_worker_has_not_ended_yet(
    open_proposals: Callable[[], Proposals],
) -> None:
    records = MemoryRecords()
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)
    director = Director(open_proposals(), records, 3, rule)
    better, worse, open_number = (start_trial(director) for _ in range(3))
    assert report_curve(director, better, [make_report(300, 1.0)], None)
    assert not report_curve(director, worse, [make_report(300, 2.0)], None)
    assert [trial.proposal.number for trial in director.interrupt()] == [better, open_number]
    assert (worse, TrialState.STOPPED) in records.finished


def test_reports_after_the_one_that_stops_a_trial_are_recorded_nowhere(
    open_proposals: Callable[[], Proposals],
) -> None:
    """The worker of a killed driver may have stored them in a checkpoint that the next worker reads."""
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), 900)
    director = Director(opened := open_proposals(), records := MemoryRecords(), max_trials=2, rule=rule)
    first, second = start_trial(director), start_trial(director)
    report_curve(director, first, [make_report(300, 2.0)])
    curve = [make_report(300, 3.0), make_report(600, 2.9), make_report(900, 2.8, "budget")]
    assert not report_curve(director, second, curve)
    director.on_ended(second)
    assert records.reported == [(first, 300), (second, 300)]
    (stopped,) = opened.list_finished()
    assert (stopped.state, require(stopped.end).reason) == (TrialState.STOPPED, StopReason.EARLY_STOPPING)
    assert stopped.curve == {300: 3.0}


def test_a_trial_of_one_report_enters_no_rung(
    open_proposals: Callable[[], Proposals],
) -> None:
    """This holds during the study and after a resume."""

    def make_halving() -> SuccessiveHalving:
        return SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)

    director = Director(open_proposals(), MemoryRecords(), max_trials=3, rule=make_halving())
    counted, network = start_trial(director), start_trial(director)
    report_curve(director, counted, [make_report(600, 1.0, "budget")], None)
    director.on_ended(counted)
    assert report_curve(director, network, [make_report(300, 2.0)], None)
    Director(open_proposals(), MemoryRecords(), max_trials=3, rule=(resumed := make_halving()))
    assert resumed.rungs[0].values == {network: 2.0}


def start_trial_behind_others(open_proposals: Callable[[], Proposals]) -> tuple[Director, Proposals, int]:
    """A director whose only trial is behind at the rung of 300 tokens."""
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)
    rule.decide(98, "lstm", 300, 1.0)
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=1, rule=rule)
    return director, opened, start_trial(director)


def test_a_trial_that_a_report_stops_keeps_that_end_when_the_report_carries_an_error(
    open_proposals: Callable[[], Proposals],
) -> None:
    director, opened, number = start_trial_behind_others(open_proposals)
    (trial,) = director.trials
    assert not report_curve(director, number, [make_report(300, 2.0)], "StorageError: read-only file system")
    director.on_ended(number)
    (outcome,) = opened.list_finished()
    assert (outcome.state, require(outcome.end).reason) == (TrialState.STOPPED, StopReason.EARLY_STOPPING)
    assert trial.remarks == ["after its end: StorageError: read-only file system"]


def test_nothing_is_kept_of_a_trial_that_has_ended(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(open_proposals(), MemoryRecords(), max_trials=2)
    ended, running = start_trial(director), start_trial(director)
    trial = weakref.ref(director.trials[0])
    report_curve(director, ended, [make_report(900, 2.0, "budget")])
    director.on_ended(ended)
    assert [trial.proposal.number for trial in director.trials] == [running]
    gc.collect()
    assert trial() is None


def test_reports_beyond_the_rung_that_stops_a_trial_are_recorded_nowhere(
    open_proposals: Callable[[], Proposals],
) -> None:
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)
    rule.decide(98, "lstm", 300, 1.0)
    director = Director(opened := open_proposals(), records := MemoryRecords(), max_trials=1, rule=rule)
    number = start_trial(director)
    assert not report_curve(
        director, number, [make_report(300, 2.0), make_report(600, 0.5), make_report(900, 0.1, "budget")]
    )
    director.on_ended(number)
    (outcome,) = opened.list_finished()
    assert outcome.curve == {300: 2.0}
    assert records.reported == [(number, 300)]


def test_faults_in_a_row_drop_waiting_unfinished_trials(open_proposals: Callable[[], Proposals]) -> None:
    first = Director(open_proposals(), MemoryRecords(), max_trials=3)
    halted, waiting = start_trial(first), start_trial(first)
    second = Director(opened := open_proposals(), MemoryRecords(), max_trials=3)
    assert start_trial(second) == halted
    for _ in range(MAX_FAULTS - 1):
        second.on_environment_fault(halted, "no corpus there")
        assert start_trial(second) == halted
    second.on_environment_fault(halted, "no corpus there")
    assert second.take_next_trial() is None
    assert [proposal.number for proposal in opened.list_unfinished()] == [halted, waiting]


def test_the_storage_is_checked_every_ten_seconds(
    open_proposals: Callable[[], Proposals], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, checks = [100.0], []
    monkeypatch.setattr("memtune.studies.director.time.monotonic", lambda: now[0])
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=1)
    monkeypatch.setattr(opened, "check", lambda: checks.append(now[0]))
    for now[0] in (105.0, 110.0, 115.0, 121.0):
        director.check()
    assert checks == [110.0, 121.0]


@pytest.mark.parametrize(
    ("curve", "failure", "reason"),
    [
        ([make_report(300, None, "diverged")], None, "diverged"),
        ([], "TrialError: out of memory", "out of memory"),
        ([make_report(300, 2.0)], "CorpusError: shard altered", "shard altered"),
    ],
)
def test_a_trial_fails_with_its_reason(
    open_proposals: Callable[[], Proposals], curve: list[Report], failure: str | None, reason: str
) -> None:
    director = Director(opened := open_proposals(), records := MemoryRecords(), max_trials=1)
    number = start_trial(director)
    assert not report_curve(director, number, curve, failure)
    director.on_ended(number)
    (outcome,) = opened.list_finished()
    assert outcome.state is TrialState.FAILED
    assert reason in str(outcome.end)
    assert records.finished == [(number, "failed")]


def test_a_trial_that_diverges_is_complete_with_its_best_validation_from_before(
    open_proposals: Callable[[], Proposals],
) -> None:
    diverged = make_report(300, None, "diverged")
    for earlier, state in (([], TrialState.FAILED), ([make_report(150, 2.0)], TrialState.COMPLETE)):
        director = Director(opened := open_proposals(), MemoryRecords(), max_trials=2)
        number = start_trial(director)
        assert not report_curve(director, number, [*earlier, diverged])
        director.on_ended(number)
        outcome = opened.list_finished()[-1]
        assert (outcome.state, outcome.has_diverged) == (state, True)
        assert outcome.curve == {report.tokens: report.cost for report in earlier}
    assert outcome.value == 2.0


def test_a_later_driver_resumes_the_open_trial_and_counts_the_ended_one(
    open_proposals: Callable[[], Proposals],
) -> None:
    first = Director(open_proposals(), MemoryRecords(), max_trials=3)
    ended, left_open = start_trial(first), start_trial(first)
    report_curve(first, ended, [make_report(900, 2.0, "budget")], None)
    first.on_ended(ended)
    report_curve(first, left_open, [make_report(300, 3.0)], None)

    second = Director(opened := open_proposals(), MemoryRecords(), max_trials=3)
    assert start_trial(second) == left_open
    start_trial(second)
    assert second.take_next_trial() is None
    assert opened.list_outcomes()[1].curve == {300: 3.0}


def test_a_finished_study_has_no_trial_to_run(open_proposals: Callable[[], Proposals]) -> None:
    first = Director(open_proposals(), MemoryRecords(), max_trials=1)
    number = start_trial(first)
    report_curve(first, number, [make_report(900, 2.0, "budget")], None)
    first.on_ended(number)
    assert Director(open_proposals(), MemoryRecords(), max_trials=1).is_finished


def test_open_trials_beyond_a_lowered_budget_stay_open(open_proposals: Callable[[], Proposals]) -> None:
    first = Director(open_proposals(), MemoryRecords(), max_trials=3)
    ended, left_open, last = start_trial(first), start_trial(first), start_trial(first)
    report_curve(first, ended, [make_report(900, 2.0, "budget")], None)
    first.on_ended(ended)

    assert Director(open_proposals(), MemoryRecords(), max_trials=1).is_finished
    lowered = Director(opened := open_proposals(), MemoryRecords(), max_trials=2)
    assert start_trial(lowered) == left_open
    assert lowered.take_next_trial() is None
    assert [proposal.number for proposal in opened.list_unfinished()] == [left_open, last]


def test_an_interrupted_trial_stays_open_for_the_next_driver(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(opened := open_proposals(), records := MemoryRecords(), max_trials=2)
    number = start_trial(director)
    assert [trial.proposal.number for trial in director.interrupt()] == [number]
    assert records.finished == [(number, "interrupted")]
    assert [proposal.number for proposal in opened.list_unfinished()] == [number]


def test_watchers_see_every_change(open_proposals: Callable[[], Proposals]) -> None:
    seen: list[str] = []
    director = Director(
        open_proposals(), MemoryRecords(), max_trials=1, watchers=[lambda trial: seen.append(trial.state)]
    )
    number = start_trial(director)
    report_curve(director, number, [make_report(900, 2.0, "budget")], None)
    director.on_ended(number)
    assert seen == ["running", "running", "complete"]


def test_a_trial_that_ends_without_a_validation_fails_with_that_reason(
    open_proposals: Callable[[], Proposals],
) -> None:
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=1)
    number = start_trial(director)
    director.on_ended(number)
    (outcome,) = opened.list_finished()
    assert outcome.end == TrialEnd(reason=StopReason.NO_VALIDATION, detail="no validation was reached")


def test_a_complete_trial_keeps_the_reason_of_its_end(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=1)
    number = start_trial(director)
    report_curve(director, number, [make_report(900, 2.0, "no_improvement")])
    director.on_ended(number)
    assert opened.list_finished()[0].end == TrialEnd(reason=StopReason.NO_IMPROVEMENT)


def test_remarks_accumulate_and_watchers_see_them_and_an_interrupt(
    open_proposals: Callable[[], Proposals],
) -> None:
    seen: list[tuple[str, int]] = []
    watch = [lambda trial: seen.append((trial.state, len(trial.remarks)))]
    director = Director(open_proposals(), MemoryRecords(), max_trials=1, watchers=watch)
    number = start_trial(director)
    report_curve(director, number, [], None, ["first"])
    report_curve(director, number, [], None, ["second"])
    director.interrupt()
    assert director.trials[0].remarks == ["first", "second"]
    assert seen == [("running", 0), ("running", 1), ("running", 2), ("interrupted", 2)]


def test_an_exhausted_space_is_asked_once(
    open_proposals: Callable[[], Proposals], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    director = Director(opened := open_proposals(), MemoryRecords(), max_trials=3)
    monkeypatch.setattr(opened, "ask", lambda: asked.append(1))
    assert (director.take_next_trial(), director.take_next_trial()) == (None, None)
    assert len(asked) == 1


def test_a_crashed_trial_fails_with_the_given_end(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(opened := open_proposals(), records := MemoryRecords(), max_trials=1)
    number = start_trial(director)
    report_curve(director, number, [make_report(300, 2.0)])
    end = TrialEnd(reason=StopReason.WORKER_LOST, detail="failed 4 times")
    director.on_crashed(number, end)
    (outcome,) = opened.list_finished()
    assert (outcome.state, outcome.end) == (TrialState.FAILED, end)
    assert records.finished == [(number, "failed")]


def test_a_trial_that_lost_its_worker_waits_for_another(open_proposals: Callable[[], Proposals]) -> None:
    director = Director(open_proposals(), MemoryRecords(), max_trials=1)
    number = start_trial(director)
    director.on_worker_lost(number)
    assert director.trials[0].state is TrialState.WAITING
