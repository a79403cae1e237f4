"""Trials that an early-stopping rule pauses and resumes, through director, worker, storage and records."""

from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from memtune.api import run_search
from memtune.results.comparison import compare
from memtune.search import Proposals, StoredTrial
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.director import MAX_FAULTS, DirectedTrial, Director
from memtune.studies.executor import InProcessExecutor
from memtune.studies.study_run import make_assignment
from memtune.studies.trial_worker import TrialWorker
from memtune.trial_state import StopReason, TrialState
from tests.directors import report_curve
from tests.unit.studies.study_files import resolve
from tests.unit.studies.test_director import MemoryRecords, make_report, start_trial

RULES = {
    "none": 'kind = "none"\n',
    "promotion": 'kind = "promotion"\ngrace = 300\nfactor = 2\n',
    "successive_halving": 'kind = "successive_halving"\ngrace = 300\nfactor = 2\n',
}


@pytest.fixture
def open_resolved(study_file: Path, settings: Settings, tmp_path: Path) -> Callable[..., ResolvedStudy]:
    """Resolves the study with a rule; each folder has a storage of its own."""

    def open_resolved(place: str, rule: str = "promotion", trials: int = 6) -> ResolvedStudy:
        text = (
            study_file.read_text().split("\n[early_stopping]")[0].replace("trials = 4", f"trials = {trials}")
        )
        study_file.write_text(f"{text}\n[early_stopping]\n{RULES[rule]}")
        places = settings.model_copy(
            update={
                "studies_folder": str(tmp_path / place),
                "study_database": f"journal:///{tmp_path}/{place}.log",
            }
        )
        return resolve(study_file, places)

    return open_resolved


def open_director(resolved: ResolvedStudy) -> tuple[Director, Proposals, MemoryRecords]:
    proposals, records = resolved.open_proposals(), MemoryRecords()
    rule = resolved.make_early_stopping_rule()
    return Director(proposals, records, resolved.study.budget.trials, rule), proposals, records


def drive(resolved: ResolvedStudy, max_steps: int = 1000) -> bool:
    """Run the study with real workers, one trial at a time; return whether it ended within `max_steps`."""
    director, _, _ = open_director(resolved)
    steps = iter(range(max_steps))
    while trial := director.take_next_trial():
        director.on_started(trial.proposal.number)
        if not run_worker(director, TrialWorker(make_assignment(resolved, trial)), trial, steps):
            return False
    return True


def run_worker(director: Director, worker: TrialWorker, trial: DirectedTrial, steps: Iterator[int]) -> bool:
    for _ in steps:
        found = worker.step()
        if not director.on_worker_report(trial.proposal.number, found) or found.is_finished:
            director.on_ended(trial.proposal.number)
            return True
    return False


def describe(outcomes: list[StoredTrial]) -> list[tuple[object, ...]]:
    return [(each.identity, each.state, each.curve, each.value, each.end) for each in outcomes]


@pytest.mark.parametrize("rule", ["promotion", "successive_halving"])
def test_a_study_whose_drivers_die_after_each_step_ends_like_an_undisturbed_one(
    open_resolved: Callable[..., ResolvedStudy], rule: str
) -> None:
    """A driver makes two steps: the first of a restored trial only reports what is in its checkpoint."""
    whole, killed = open_resolved("whole", rule), open_resolved("killed", rule)
    assert drive(whole)
    drivers = 1
    while not drive(killed, max_steps=2):
        drivers += 1
    outcomes = whole.open_proposals().list_outcomes()
    assert describe(killed.open_proposals().list_outcomes()) == describe(outcomes)
    assert drivers > 5
    assert {outcome.state for outcome in outcomes} > {TrialState.COMPLETE}


def test_a_promoted_trial_has_the_curve_of_one_that_was_never_paused(
    open_resolved: Callable[..., ResolvedStudy],
) -> None:
    curves = []
    for rule in ("promotion", "none"):
        resolved = open_resolved(rule, rule)
        drive(resolved)
        complete = [
            outcome
            for outcome in resolved.open_proposals().list_outcomes()
            if outcome.state is TrialState.COMPLETE
        ]
        curves.append({outcome.identity: outcome.curve for outcome in complete})
    promoted, free = curves
    assert promoted
    assert promoted.items() <= free.items()


def test_a_paused_trial_is_resumed_before_a_new_one_is_asked_for(
    open_resolved: Callable[..., ResolvedStudy],
) -> None:
    director, proposals, records = open_director(open_resolved("study"))
    first, second = start_trial(director), start_trial(director)
    assert not report_curve(director, first, [make_report(300, 1.0)])
    director.on_ended(first)
    assert [outcome.state for outcome in proposals.list_outcomes()] == [
        TrialState.PAUSED,
        TrialState.RUNNING,
    ]
    assert records.finished == [(first, TrialState.PAUSED)]
    assert not report_curve(director, second, [make_report(300, 2.0)])
    director.on_ended(second)
    assert start_trial(director) == first
    assert records.started == [first, second, first]
    assert report_curve(director, first, [make_report(300, 1.0), make_report(400, 0.9)])
    assert records.reported == [(first, 300), (second, 300), (first, 400)]
    assert proposals.list_outcomes()[0].curve == {300: 1.0, 400: 0.9}


@pytest.mark.parametrize("trials", [1, 3])
def test_the_best_paused_trial_is_resumed_when_no_other_can_start(
    open_resolved: Callable[..., ResolvedStudy], study_file: Path, trials: int
) -> None:
    """The budget of trials is spent, or it is not and the space has no other configuration."""
    (study_file.parent / "space.toml").write_text('[model]\nfamily = "lstm"\nwidth = 4\n')
    director, _, _ = open_director(open_resolved("study", trials=trials))
    only = start_trial(director)
    assert not report_curve(director, only, [make_report(300, 1.0)])
    director.on_ended(only)
    assert start_trial(director) == only
    assert report_curve(director, only, [make_report(300, 1.0), make_report(400, 0.9)])


def test_a_trial_whose_worker_has_not_ended_is_not_resumed(
    open_resolved: Callable[..., ResolvedStudy],
) -> None:
    director, _, _ = open_director(open_resolved("study", trials=2))
    first, second = start_trial(director), start_trial(director)
    report_curve(director, first, [make_report(300, 1.0)])
    report_curve(director, second, [make_report(300, 2.0)])
    director.on_ended(second)
    assert director.take_next_trial() is None
    assert director.may_start_later
    director.on_ended(first)
    assert start_trial(director) == first


def test_a_later_driver_resumes_a_paused_trial(open_resolved: Callable[..., ResolvedStudy]) -> None:
    resolved = open_resolved("study")
    director, _, _ = open_director(resolved)
    first, second = start_trial(director), start_trial(director)
    for number, cost in ((first, 1.0), (second, 2.0)):
        report_curve(director, number, [make_report(300, cost)])
        director.on_ended(number)
    later, _, _ = open_director(resolved)
    assert start_trial(later) == first
    assert report_curve(later, first, [make_report(300, 1.0), make_report(400, 0.9)])


def test_a_study_whose_paused_trials_cannot_resume_is_finished(
    open_resolved: Callable[..., ResolvedStudy],
) -> None:
    resolved = open_resolved("study", trials=3)
    drive(resolved)
    director, proposals, _ = open_director(resolved)
    assert TrialState.PAUSED in [trial.state for trial in proposals.list_outcomes()]
    assert director.is_finished
    assert director.take_next_trial() is None
    assert not director.may_start_later


def test_faults_in_a_row_resume_no_paused_trial(open_resolved: Callable[..., ResolvedStudy]) -> None:
    director, _, _ = open_director(open_resolved("study", trials=3))
    numbers = [start_trial(director) for _ in range(3)]
    for number in numbers[:2]:
        report_curve(director, number, [make_report(300, 1.0 + number)])
        director.on_ended(number)
    for _ in range(MAX_FAULTS - 1):
        director.on_environment_fault(numbers[2], "no corpus there")
        assert start_trial(director) == numbers[2]
    director.on_environment_fault(numbers[2], "no corpus there")
    assert director.take_next_trial() is None
    assert not director.may_start_later


def test_paused_trials_are_shown_with_the_rules_reason_everywhere(
    open_resolved: Callable[..., ResolvedStudy], study_file: Path, settings: Settings
) -> None:
    open_resolved("elsewhere")
    output = StringIO()
    console = Console(file=output, width=300)
    result = run_search(study_file, settings=settings, console=console, executor=InProcessExecutor())
    paused = [outcome for outcome in result.outcomes if outcome.state is TrialState.PAUSED]
    assert paused
    assert all(outcome.end.reason is StopReason.EARLY_STOPPING for outcome in paused if outcome.end)
    rows = {row.trial: row for row in compare("tiny", settings=settings).rows}
    for outcome in paused:
        row = rows[outcome.identity]
        assert (row.state, row.end, row.tokens) == (TrialState.PAUSED, outcome.end, max(outcome.curve))
        assert str(outcome.end) in output.getvalue()
