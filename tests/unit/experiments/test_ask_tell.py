"""A study driven by another program, one call at a time, each with a new driver."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tables.memtune_search import NoRecords
from memtune.errors import SpaceError, StudyError
from memtune.experiments.ask_tell import AskTell, open_ask_tell
from memtune.objective import Objective
from memtune.results.study.study_catalogue import list_studies
from memtune.search import StoredTrial
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.tracking import Recorder
from memtune.trial_state import StopReason, TrialState
from tests.unit.studies.study_files import resolve

HALVING = '\n[early_stopping]\nkind = "successive_halving"\ngrace = 300\nfactor = 2\n'
POINT = {"model.layers": 2, "training": {"optimiser": {"learning_rate": 0.5}}}


@pytest.fixture
def resolved(study_file: Path, settings: Settings) -> ResolvedStudy:
    study_file.write_text(study_file.read_text() + HALVING)
    return resolve(study_file, settings)


def call(resolved: ResolvedStudy) -> AskTell:
    return AskTell(resolved, resolved.open_proposals(), NoRecords())


def drive(resolved: ResolvedStudy) -> None:
    """Report open trials until they end, then ask for another, until the study starts no further trial.

    A driver lasts until its ask; one for each call would take twice as long.
    """
    while True:
        session = call(resolved)
        for trial in session.list_open():
            rate = trial.configuration["training"]["optimiser"]["learning_rate"]
            for tokens in (300, 900):
                result = session.tell(trial.number, tokens, rate + 100 / tokens, is_complete=tokens == 900)
                if result.state is not TrialState.RUNNING:
                    break
        try:
            session.ask()
        except StudyError:
            return


def read_results(resolved: ResolvedStudy) -> list[StoredTrial]:
    """All fields except the numbers, because a kill may skip a number."""
    return [replace(outcome, number=0) for outcome in resolved.open_proposals().list_outcomes()]


def test_a_study_killed_at_any_write_equals_the_undisturbed_one(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text() + HALVING)
    resolved = resolve(study_file, settings, **{"budget.trials": 2})
    journal = Path(settings.study_database.removeprefix("journal://"))
    drive(resolved)
    expected, lines = read_results(resolved), journal.read_bytes().splitlines(keepends=True)
    assert [outcome.state for outcome in expected] == [TrialState.COMPLETE, TrialState.STOPPED]
    for count in range(1, len(lines)):
        journal.write_bytes(b"".join(lines[:count]))
        drive(resolved)
        assert read_results(resolved) == expected, f"killed after {count} writes"


def test_open_trials_report_where_the_budget_is_lower_than_when_they_started(
    study_file: Path, settings: Settings
) -> None:
    trials = [call(resolve(study_file, settings)).ask() for _ in range(3)]
    lowered = resolve(study_file, settings, **{"budget.trials": 1})
    told = [call(lowered).tell(trial.number, 900, 1.0, is_complete=True) for trial in trials]
    assert [trial.state for trial in told] == 3 * [TrialState.COMPLETE]


def test_the_rule_of_the_study_stops_a_trial(resolved: ResolvedStudy) -> None:
    for cost in (1.0, 2.0, 3.0):
        trial = call(resolved).tell(call(resolved).ask().number, 300, cost)
    assert trial.state is TrialState.STOPPED
    assert trial.end is not None
    assert trial.end.reason is StopReason.EARLY_STOPPING


def test_a_value_told_again_changes_nothing(resolved: ResolvedStudy) -> None:
    number = call(resolved).ask().number
    for _ in range(2):
        assert call(resolved).tell(number, 300, 2.0).state is TrialState.RUNNING
    assert call(resolved).list_open()[0].curve == {300: 2.0}
    for _ in range(2):
        assert call(resolved).tell(number, 900, 1.5, is_complete=True).state is TrialState.COMPLETE
    assert read_results(resolved)[0].value == 1.5
    with pytest.raises(StudyError, match=r"has ended \(complete\)"):
        call(resolved).tell(number, 1200, 1.0)


def test_a_share_of_wrong_answers_is_the_same_value_again(resolved: ResolvedStudy) -> None:
    """Its trial has the accuracy, 0.7, and 1 - 0.7 is not 0.3."""
    number = call(resolved).ask().number
    for _ in range(2):
        session = call(resolved)
        session._objective = Objective.ACCURACY
        assert session.tell(number, 300, 0.3).state is TrialState.RUNNING


@pytest.mark.parametrize(
    ("tokens", "cost", "message"),
    [
        (600, 3.0, r"trial 0 has the value 1\.9 at 600 tokens, got 3"),
        (600, float("nan"), r"trial 0 has the value 1\.9 at 600 tokens, got nan"),
        (500, 1.5, r"trial 0 has a value at 600 tokens; the next one has more, got 500"),
    ],
)
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_value_that_contradicts_or_precedes_another_is_refused(
    resolved: ResolvedStudy, tokens: int, cost: float, message: str, is_complete: bool
) -> None:
    number = call(resolved).ask().number
    call(resolved).tell(number, 300, 2.0)
    call(resolved).tell(number, 600, 1.9, is_complete=is_complete)
    with pytest.raises(StudyError, match=message):
        call(resolved).tell(number, tokens, cost)
    assert read_results(resolved)[0].curve == {300: 2.0, 600: 1.9}


def test_a_failed_trial_keeps_its_error(resolved: ResolvedStudy) -> None:
    number = call(resolved).ask().number
    trial = call(resolved).tell(number, 0, None, error="no memory left")
    assert (trial.state, trial.end and trial.end.detail) == (TrialState.FAILED, "no memory left")


def test_a_failure_is_told_again_and_takes_no_value_after_it(resolved: ResolvedStudy) -> None:
    number = call(resolved).ask().number
    for _ in range(2):
        assert call(resolved).tell(number, 0, None, error="no memory left").state is TrialState.FAILED
    with pytest.raises(StudyError, match=r"trial 0 has ended \(failed\) and takes no more values"):
        call(resolved).tell(number, 300, 2.0)


@pytest.mark.parametrize(("cost", "error"), [(None, "no memory left"), (float("nan"), None)])
def test_a_complete_trial_cannot_fail(resolved: ResolvedStudy, cost: float | None, error: str | None) -> None:
    number = call(resolved).ask().number
    call(resolved).tell(number, 900, 1.5, is_complete=True)
    with pytest.raises(StudyError, match=r"trial 0 has ended \(complete\) and cannot fail"):
        call(resolved).tell(number, 1200, cost, error=error)


def test_a_paused_trial_takes_no_value_until_it_is_asked_for(study_file: Path, settings: Settings) -> None:
    study_file.write_text(study_file.read_text() + HALVING.replace("successive_halving", "promotion"))
    paused = resolve(study_file, settings)
    number = call(paused).ask().number
    assert call(paused).tell(number, 300, 2.0).state is TrialState.PAUSED
    with pytest.raises(StudyError, match="trial 0 is paused and takes no more values until a later ask"):
        call(paused).tell(number, 600, 1.9)


def test_no_number_after_a_value_ends_the_trial_with_that_value_once(resolved: ResolvedStudy) -> None:
    number = call(resolved).ask().number
    call(resolved).tell(number, 300, 2.0)
    for _ in range(2):
        told = call(resolved).tell(number, 600, float("nan"))
        assert (told.state, str(told.end)) == (TrialState.COMPLETE, "the value is nan")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("objective", [Objective.PERPLEXITY, Objective.ACCURACY])
def test_a_value_that_is_not_finite_fails_the_trial(
    objective: Objective, value: float, resolved: ResolvedStudy
) -> None:
    number, session = call(resolved).ask().number, call(resolved)
    session._objective = objective
    assert session.tell(number, 300, value).state is TrialState.FAILED


@pytest.mark.parametrize(
    ("tokens", "cost", "message"),
    [
        (0, 2.0, "needs the tokens it was measured at"),
        (2**63 - 1, 2.0, "1 to 100,000,000,000,000, got 9,223,372,036,854,775,807"),
        (300, -0.1, "in nats per token, 0 to 4.61, got -0.1"),
        (300, 50.0, "0 to 4.61, got 50; tell nan for a training that diverged"),
    ],
)
def test_a_value_that_cannot_be_measured_is_refused(
    resolved: ResolvedStudy, tokens: int, cost: float, message: str
) -> None:
    number = call(resolved).ask().number
    with pytest.raises(StudyError, match=message):
        call(resolved).tell(number, tokens, cost)
    assert read_results(resolved)[0].curve == {}


def test_an_external_configuration_is_checked_and_started_once(resolved: ResolvedStudy) -> None:
    asked = call(resolved).ask({**POINT, "model.layers": np.int64(2)})
    assert asked.configuration["model"]["layers"] == 2
    assert asked.configuration["training"]["optimiser"]["learning_rate"] == 0.5
    assert [trial.number for trial in call(resolved).list_open()] == [asked.number]
    with pytest.raises(StudyError, match="not started: the same configuration as trial 0"):
        call(resolved).ask(asked.configuration)
    with pytest.raises(SpaceError, match=r"model.layers = 9 is not in the space; .* value is 2"):
        call(resolved).ask({"model": {"layers": 9}})


def test_no_more_trials_start_than_the_budget_has(resolved: ResolvedStudy) -> None:
    for _ in range(resolved.study.budget.trials):
        call(resolved).ask()
    with pytest.raises(StudyError, match=r"budget.trials = 4"):
        call(resolved).ask()
    with pytest.raises(StudyError, match=r"budget.trials = 4"):
        call(resolved).ask(POINT)


def test_an_unknown_trial_is_an_error(resolved: ResolvedStudy) -> None:
    with pytest.raises(StudyError, match="has started no trial 7"):
        call(resolved).tell(7, 300, 1.0)


def test_a_call_records_the_trial_in_the_tracking_store(study_file: Path, resolved: ResolvedStudy) -> None:
    with open_ask_tell(resolved, starts=True) as session:
        number = session.ask().number
    with open_ask_tell(resolved) as session:
        session.tell(number, 300, 2.0)
    with open_ask_tell(resolved) as session:
        session.tell(number, 900, 1.5, is_complete=True)
    (listed,) = list_studies(resolved.settings)
    assert (listed.corpus, listed.question) == ("tiny", "Does a second layer help?")
    with Recorder(resolved.settings.tracking_uri, resolved.corpus.name) as recorder:
        recorder.start_study(resolved.id, "layers", {}, {})
        (recorded,) = recorder.list_recorded_trials().values()
    assert (recorded.state, recorded.validated_tokens) == (TrialState.COMPLETE, 900)


def test_only_an_ask_starts_a_study(study_file: Path, resolved: ResolvedStudy) -> None:
    with (
        pytest.raises(StudyError, match=r"has begun; start it with: memtune study ask .*layers\.toml"),
        open_ask_tell(resolved),
    ):
        pass
    assert not list_studies(resolved.settings)
    assert not Path(resolved.settings.studies_folder, resolved.id).exists()


def test_a_study_that_starts_beside_one_of_its_name_says_what_changed(
    study_file: Path, resolved: ResolvedStudy, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # a call that was killed before its first trial is repeated
        with open_ask_tell(resolved, starts=True) as session:
            pass
    assert not caplog.records
    changed = resolve(study_file, resolved.settings, **{"training.tokens": 1200})
    with open_ask_tell(changed, starts=True) as session:
        session.ask()
    (warning,) = caplog.messages
    assert warning.startswith(
        f"study {changed.id} is new: changed since study {resolved.id}: training.tokens"
    )
