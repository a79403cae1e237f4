"""Drivers that are killed, stopped or started twice: the study has the results of an undisturbed one."""

import random
import re
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.errors import StudyError
from memtune.results.comparison import compare, find_champions
from memtune.search import StoredTrial
from memtune.studies.checkpoint_store import parse_tokens
from memtune.studies.executor import InProcessExecutor
from memtune.trial_state import TrialState
from tests.cluster.drivers import Driver, read_outcomes, run_driver
from tests.cluster.fault_table import RecordFault
from tests.cluster.poll import is_stopped, poll_until
from tests.cluster.study_setup import CHECKPOINT_INTERVAL_TOKENS, STUDY_TOML, StudySetup, describe_outcomes

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_locations")]

SHORT = {"budget.time": "1s"}
"""Ends a driver that should have been refused."""


def kill_at_line(driver: Driver, study_setup: StudySetup, pattern: str, times: int) -> dict[int, str]:
    """Kill the driver at a line of its output, and wait until its workers have ended.

    Returns the checkpoints from which its trials must resume. They contain every report, so a resumed trial
    repeats less than one checkpoint interval.
    """
    driver.wait_for_line(pattern, times)
    driver.kill()
    poll_until(lambda: not study_setup.ray.find_trial_processes(), "the end of a killed driver's workers")
    saved = study_setup.find_interrupted_checkpoints()
    reported = dict.fromkeys(saved, 0)
    for number, tokens in re.findall(r"trial +(\d+)  running .* (\d+) tokens", "".join(driver.lines)):
        reported[int(number)] = int(tokens)
    for number, newest in saved.items():
        assert reported[number] <= parse_tokens(newest) <= reported[number] + CHECKPOINT_INTERVAL_TOKENS
    return saved


def kill_after_two_checkpoints(study_setup: StudySetup) -> dict[int, str]:
    """As `kill_at_line`, repeated if the trial ended before the kill."""
    resume: list[str] = []
    while True:
        with run_driver(study_setup.study_file, *resume, environment=study_setup.environment) as driver:
            if saved := kill_at_line(driver, study_setup, "running .* 680 tokens", 1):
                return saved
        resume = ["--resume"]


def parse_resumed_checkpoints(output: str) -> dict[int, str]:
    """The checkpoints from which trials resumed, by trial number."""
    found = re.findall(r"trial +(\d+)  resumes from checkpoint (\S+)", output)
    return {int(number): name for number, name in found}


def test_a_driver_killed_repeatedly_ends_with_the_trials_of_an_undisturbed_one(
    study_setup: StudySetup, undisturbed: list[StoredTrial], record_fault: RecordFault
) -> None:
    """Kills come after a report, before an ask, and during registration."""
    rng = random.Random(5)
    ended: list[int] = []
    saved: dict[int, str] = {}
    report, end = r"running .* tokens", r" (complete|stopped) "
    for pattern, times in ((report, rng.randint(3, 5)), (end, rng.randint(1, 2)), (end, None)):
        resume = [] if pattern == report else ["--resume"]
        with run_driver(study_setup.study_file, *resume, environment=study_setup.environment) as driver:
            expected = saved
            saved = kill_at_line(driver, study_setup, pattern, times or len(undisturbed) - len(ended))
        output = "".join(driver.lines)
        assert parse_resumed_checkpoints(output) == expected
        restarted = re.findall(r"trial +(\d+) +running", output)
        assert not {int(number) for number in restarted} & set(ended)
        ended = [
            outcome.number
            for outcome in study_setup.read_outcomes()
            if outcome.state is not TrialState.RUNNING
        ]
    with run_driver(study_setup.study_file, "--resume", environment=study_setup.environment) as driver:
        assert "running" not in driver.wait_for_success()

    assert describe_outcomes(study_setup.read_outcomes()) == describe_outcomes(undisturbed)
    study_setup.check_records()
    record_fault(
        "driver killed",
        3,
        0,
        "killed after a report, after the end of a trial and after that of the last trial; resumed each time "
        "from the newest checkpoints: every trial, curve and rung equals that of an undisturbed run, no "
        "ended trial ran again, no worker remained, MLflow has each trial once and one champion",
    )


@pytest.mark.long
def test_a_truncated_checkpoint_is_named_and_the_trial_resumes_from_the_one_before(
    study_setup: StudySetup, undisturbed: list[StoredTrial], record_fault: RecordFault
) -> None:
    ((number, newest),) = kill_after_two_checkpoints(study_setup).items()
    (interrupted,) = [outcome for outcome in study_setup.read_outcomes() if outcome.number == number]
    # The last folder may be one that the killed worker has not finished; it is not in the index.
    weights = study_setup.list_checkpoints(interrupted.identity)[0].with_name(newest) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with run_driver(study_setup.study_file, "--resume", environment=study_setup.environment) as driver:
        out = driver.wait_for_success()
    assert re.search(rf"trial +{number} .*{newest} is skipped.*truncated", out)
    assert (
        0
        < parse_tokens(newest) - parse_tokens(parse_resumed_checkpoints(out)[number])
        <= CHECKPOINT_INTERVAL_TOKENS
    )
    assert describe_outcomes(study_setup.read_outcomes()) == describe_outcomes(undisturbed)
    record_fault(
        "files damaged",
        1,
        0,
        "the newest checkpoint of a trial in the middle of a study lost its last byte: the driver named it "
        "and the trial resumed from the one before, with the same figures",
    )


def test_a_second_driver_is_refused_with_who_holds_the_study(
    study_setup: StudySetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_fault: RecordFault
) -> None:
    """The second has another home folder, as on another machine."""
    study_setup.study_file.write_text(
        study_setup.study_file.read_text().replace("tokens = 900", "tokens = 900_000_000")
    )
    with run_driver(study_setup.study_file, environment=study_setup.environment) as first:
        first.wait_for_line("running")
        for name, value in study_setup.build_environment_without_home(tmp_path).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StudyError, match=f"is run by process {first.process.pid} on "):
            run_search(study_setup.study_file, SHORT, executor=InProcessExecutor(), resume=True)
    record_fault(
        "two at once",
        0,
        0,
        "a second driver of a study, with another home, was refused with the process and host of the first",
    )


def stop_without_lock(driver: Driver, study_setup: StudySetup) -> None:
    """Stop the driver while it does not hold the lock of MLflow's file, which would block every process."""

    def stop_if_unlocked() -> bool:
        driver.process.send_signal(signal.SIGSTOP)
        poll_until(lambda: is_stopped(driver.process.pid), "the stop")
        try:
            with sqlite3.connect(study_setup.settings.home / "mlflow.db", timeout=0) as store:
                store.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            driver.process.send_signal(signal.SIGCONT)
            return False
        finally:
            store.close()
        return True

    poll_until(stop_if_unlocked, "a moment without a lock")


@pytest.mark.long
def test_a_driver_stopped_too_long_loses_its_study_to_another_and_writes_nothing_more(
    study_setup: StudySetup, tmp_path: Path, undisturbed: list[StoredTrial], record_fault: RecordFault
) -> None:
    """The other one has another home, as on another machine; both share the study's locations."""
    with run_driver(study_setup.study_file, environment=study_setup.environment) as stopped:
        stopped.wait_for_line("running .* tokens", 2)
        stop_without_lock(stopped, study_setup)
        with run_driver(
            study_setup.study_file,
            "--resume",
            environment=study_setup.build_environment_without_home(tmp_path),
        ) as successor:
            assert f"is held by process {stopped.process.pid} on " in successor.wait_for_success()
        stopped.process.send_signal(signal.SIGCONT)
        code, _, err = stopped.wait_for_exit()
    assert code == 1
    assert f"was taken over by process {successor.process.pid} on " in err
    assert describe_outcomes(study_setup.read_outcomes()) == describe_outcomes(undisturbed)
    study_setup.check_records()
    record_fault(
        "clock and pause",
        1,
        0,
        "a driver was stopped (SIGSTOP), another one with another home took over the study and ended it; the "
        "first one, continued, ended with an error; all figures are those of an undisturbed run",
    )


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static time_t offset(void) { return access(getenv("CLOCK_SET_BACK"), F_OK) == 0 ? 3600 : 0; }
int clock_gettime(clockid_t id, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec -= offset();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(now, zone);
    if (!failed) now->tv_sec -= offset();
    return failed;
}
time_t time(time_t *out) {
    time_t (*real)(time_t *) = dlsym(RTLD_NEXT, "time");
    time_t now = real(NULL) - offset();
    if (out) *out = now;
    return now;
}
"""


@pytest.fixture
def settable_clock(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment of a process whose clock is an hour behind once the file exists, and that file."""
    if shutil.which("cc") is None:
        pytest.skip("setting back the clock needs a C compiler")
    source, library, switch = (tmp_path / name for name in ("clock.c", "clock.so", "set_back"))
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_SET_BACK": str(switch)}, switch


@pytest.mark.long
def test_two_studies_at_once_do_not_mix_and_a_clock_set_back_changes_nothing(
    study_setup: StudySetup,
    settable_clock: tuple[dict[str, str], Path],
    undisturbed: list[StoredTrial],
    record_fault: RecordFault,
) -> None:
    """They share the home folder and all stores. Only one driver's clock is set back."""
    clock, switch = settable_clock
    other = study_setup.study_file.with_name("other.toml")
    other.write_text(STUDY_TOML.format(seed=1))
    with (
        run_driver(study_setup.study_file, environment=study_setup.environment | clock) as first,
        run_driver(other, environment=study_setup.environment) as second,
    ):
        first.wait_for_line("running .* tokens")
        switch.touch()
        first.wait_for_success()
        second.wait_for_success()
    others = read_outcomes(other, study_setup.settings)
    assert describe_outcomes(study_setup.read_outcomes()) == describe_outcomes(undisturbed)
    assert {outcome.state for outcome in others} <= {TrialState.COMPLETE, TrialState.STOPPED}
    assert len(others) == len(undisturbed)
    ended = {outcome.identity: outcome for outcome in (*undisturbed, *others)}
    assert len(ended) == 2 * len(undisturbed)
    rows = compare("tiny", settings=study_setup.settings).rows
    assert sorted(row.trial for row in rows) == sorted(ended)
    seen = {row.trial: row.tokens for row in rows}
    assert seen == {name: max(ended[name].curve) for name in ended}, first.errors + second.errors
    (champion,) = find_champions("tiny", study_setup.settings)
    best = min(min(outcome.curve.values()) for outcome in ended.values())
    assert champion.cost == pytest.approx(best, rel=1e-9)
    with sqlite3.connect(study_setup.settings.home / "mlflow.db") as store:
        (backwards,) = store.execute("SELECT count(*) FROM runs WHERE end_time < start_time").fetchone()
    store.close()
    assert backwards > 0, "the clock was not set back"
    record_fault(
        "two at once",
        0,
        0,
        "two studies ran at once with one corpus store, one study database, one MLflow and one Ray: each has "
        "its own trials, the first one those of an undisturbed run, and the better model is champion",
    )
    record_fault(
        "clock and pause",
        1,
        0,
        "the clock of a driver was set back by an hour in the middle of its study: every trial and figure is "
        "that of an undisturbed run",
    )


@pytest.mark.long
def test_a_driver_whose_journals_were_deleted_ends_with_their_name(study_setup: StudySetup) -> None:
    """Tune replaces an error of its callbacks by a traceback as text, which users must not see."""
    with run_driver(study_setup.study_file, environment=study_setup.environment) as driver:
        driver.wait_for_line("running .* 340 tokens")
        for journal in study_setup.home.glob("proposals.log*"):
            journal.unlink()
        code, _, errors = driver.wait_for_exit()
    assert code == 1
    assert re.search(rf"error: the study's journal {study_setup.home}/proposals\.log\S* was deleted", errors)
    assert "Traceback" not in errors
