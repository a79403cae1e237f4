"""Drivers that are killed, stopped or started twice: the study ends with the result of an undisturbed one."""

import random
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.results.comparison import compare, find_champions
from memtune.search import Outcome
from memtune.studies.checkpoint_store import parse_tokens
from memtune.trial_state import TrialState
from tests.cluster.disks import Disk, MountDisk
from tests.cluster.drivers import (
    Driver,
    RayInstance,
    list_session_processes,
    poll_until,
    read_outcomes,
    run_driver,
    start_ray_instance,
)
from tests.cluster.fault_table import RecordFault
from tests.cluster.places import CHECKPOINT_INTERVAL_TOKENS, EARLY_STOPPING_TOML, STUDY_TOML, StudySetup
from tests.conftest import SPACE_TOML

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_places")]


@pytest.fixture(scope="module")
def ray() -> Iterator[RayInstance]:
    """A Ray instance that the drivers share, like a cluster."""
    with start_ray_instance(cores=4) as instance:
        yield instance


@pytest.fixture
def place(tmp_path: Path, ray: RayInstance) -> StudySetup:
    return StudySetup(tmp_path, ray)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, ray: RayInstance) -> list[Outcome]:
    """The trials of the study without faults."""
    place = StudySetup(tmp_path_factory.mktemp("undisturbed"), ray)
    with run_driver(place.study_file, environment=place.environment) as driver:
        driver.wait_for_success()
    return place.read_outcomes()


def describe_outcomes(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """The trials without their numbers, which skip proposals that a kill interrupted."""
    return [(each.identity, each.state, each.value, each.curve, each.end) for each in outcomes]


def kill_at_line(driver: Driver, place: StudySetup, pattern: str, times: int) -> dict[int, str]:
    """Kill the driver at a line of its output, and wait until its workers have ended.

    Returns the checkpoints from which its trials must resume. They contain every report, so a resumed trial
    repeats less than one checkpoint interval.
    """
    driver.wait_for_line(pattern, times)
    driver.kill()
    poll_until(lambda: not place.ray.find_trial_processes(), "the end of a dead driver's workers")
    saved = place.find_interrupted_checkpoints()
    reported = dict.fromkeys(saved, 0)
    for number, tokens in re.findall(r"trial +(\d+)  running .* (\d+) tokens", "".join(driver.lines)):
        reported[int(number)] = int(tokens)
    for number, newest in saved.items():
        assert reported[number] <= parse_tokens(newest) <= reported[number] + CHECKPOINT_INTERVAL_TOKENS
    return saved


def kill_after_two_checkpoints(place: StudySetup) -> dict[int, str]:
    """As `kill_at_line`; repeated when the trial ended before the kill."""
    resume: list[str] = []
    while True:
        with run_driver(place.study_file, *resume, environment=place.environment) as driver:
            if saved := kill_at_line(driver, place, "running .* 680 tokens", 1):
                return saved
        resume = ["--resume"]


def parse_resumed_checkpoints(output: str) -> dict[int, str]:
    """The checkpoints from which trials resumed, by trial number."""
    found = re.findall(r"trial +(\d+)  resumes from checkpoint (\S+)", output)
    return {int(number): name for number, name in found}


def test_a_driver_killed_repeatedly_ends_with_the_trials_of_an_undisturbed_one(
    place: StudySetup, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    """Kills come after a report, before an ask, and during promotion."""
    chance = random.Random(5)
    over: list[int] = []
    saved: dict[int, str] = {}
    report, end = r"running .* tokens", r" (complete|stopped) "
    for pattern, times in ((report, chance.randint(3, 5)), (end, chance.randint(1, 2)), (end, None)):
        resume = [] if pattern == report else ["--resume"]
        with run_driver(place.study_file, *resume, environment=place.environment) as driver:
            left, saved = saved, kill_at_line(driver, place, pattern, times or len(undisturbed) - len(over))
        output = "".join(driver.lines)
        assert parse_resumed_checkpoints(output) == left
        again = re.findall(r"trial +(\d+) +running", output)
        assert not {int(number) for number in again} & set(over)
        over = [
            outcome.number for outcome in place.read_outcomes() if outcome.state is not TrialState.RUNNING
        ]
    with run_driver(place.study_file, "--resume", environment=place.environment) as driver:
        assert "running" not in driver.wait_for_success()

    assert describe_outcomes(place.read_outcomes()) == describe_outcomes(undisturbed)
    place.check_records()
    record_fault(
        "driver killed",
        3,
        0,
        "killed after a report, after the end of a trial and after that of the last; resumed each time, from "
        "the newest checkpoints, every trial, curve and rung is that of a run that was left alone, no ended "
        "trial ran again, no worker stayed, MLflow holds each trial once and one champion",
    )


def test_a_truncated_checkpoint_is_named_and_the_trial_resumes_from_the_one_before(
    place: StudySetup, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    ((number, newest),) = kill_after_two_checkpoints(place).items()
    (cut_off,) = [outcome for outcome in place.read_outcomes() if outcome.number == number]
    weights = place.list_checkpoints(cut_off.identity)[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with run_driver(place.study_file, "--resume", environment=place.environment) as driver:
        out = driver.wait_for_success()
    assert re.search(rf"trial +{number} .*{newest} is skipped.*truncated", out)
    assert (
        0
        < parse_tokens(newest) - parse_tokens(parse_resumed_checkpoints(out)[number])
        <= CHECKPOINT_INTERVAL_TOKENS
    )
    assert describe_outcomes(place.read_outcomes()) == describe_outcomes(undisturbed)
    record_fault(
        "files damaged",
        1,
        0,
        "the newest checkpoint of a trial in the middle of a study lost its last byte: the driver named it "
        "and the trial went on from the one before, with the same figures",
    )


def test_a_full_disk_ends_the_trial_that_fills_it_and_no_other(
    place: StudySetup, mounted: MountDisk, record_fault: RecordFault
) -> None:
    mounted(Path(place.settings.studies_folder), 600)
    place.study_file.write_text(place.study_file.read_text().replace("trials = 6", "trials = 3"))
    place.study_file.with_name("space.toml").write_text(
        SPACE_TOML.replace("[4, 8]", "[4, 5, 150]")
        .replace("{ int = [1, 2] }", "1")
        .replace("{ float = [0.1, 1.0], log = true }", "0.5")
    )
    place.study_file.write_text(place.study_file.read_text().replace(EARLY_STOPPING_TOML, ""))
    with run_driver(place.study_file, environment=place.environment) as driver:
        out = driver.wait_for_success()
    ended = {each.configuration["model"]["width"]: each for each in place.read_outcomes()}
    assert {width: each.state for width, each in ended.items()} == {
        4: TrialState.COMPLETE,
        5: TrialState.COMPLETE,
        150: TrialState.FAILED,
    }
    assert "No space left on device" in str(ended[150].end)
    assert place.list_checkpoints(ended[150].identity) == []
    assert "new champion models:/tiny@champion" in out
    record_fault(
        "disk full",
        1,
        0,
        "checkpoints on a disk of 600 kB: a trial whose first does not fit ended with "
        '"No space left on device", left no file, and the others completed',
    )


def test_a_full_cache_and_a_damaged_corpus_are_named_and_no_trial_is_blamed(
    place: StudySetup,
    mounted: MountDisk,
    tmp_path: Path,
    undisturbed: list[Outcome],
    record_fault: RecordFault,
) -> None:
    """The faults come one after the other; each is repaired before the study resumes.

    It is the cache of the workers: the driver has its own, as on another machine.
    """
    environment = place.environment | {"MEMTUNE_CACHE": str(tmp_path / "cache")}
    disk = fill_cache(mounted, tmp_path / "copy")
    with run_driver(place.study_file, environment=environment) as driver:
        check_stopped(
            driver, place.study_file, rf"cannot write to the cache {disk.folder}: .*No space left.*free space"
        )
    assert {path.suffix for path in (disk.folder / "verified").iterdir()} == {".lock"}
    disk.release()

    damages = list_corpus_damages(Path(place.settings.corpus_store) / "tiny")
    for path, content, named in damages:
        whole = path.read_bytes()
        with run_driver(place.study_file, "--resume", environment=environment) as driver:
            driver.wait_for_line("running")
            replace(path, content)
            check_stopped(driver, place.study_file, named)
        replace(path, whole)
    with run_driver(place.study_file, "--resume", environment=environment) as driver:
        driver.wait_for_success()
    assert describe_outcomes(place.read_outcomes()) == describe_outcomes(undisturbed)
    record_fault(
        "disk full",
        1,
        0,
        "no space under the workers' cache: the study stopped and said so, left nothing there, and with "
        "space made ended as one left alone",
    )
    record_fault(
        "files damaged",
        len(damages),
        0,
        "a byte of a shard altered, then the manifest cut short, while the study ran: the study stopped and "
        "named it, no trial was recorded as failed, and with the corpus put right it ended as one left alone",
    )


def fill_cache(mounted: MountDisk, copy: Path) -> Disk:
    """A full disk with the contents of the cache, except the records of verified corpora."""
    shutil.copytree(resolve_cache_folder(), copy, ignore=shutil.ignore_patterns("verified"))
    disk = mounted(resolve_cache_folder(), 256)
    shutil.copytree(copy, disk.folder, dirs_exist_ok=True)
    disk.fill()
    return disk


def list_corpus_damages(folder: Path) -> list[tuple[Path, bytes, str]]:
    """Files of a corpus, their damaged contents, and a pattern of the error."""
    shard, manifest = next(folder.rglob("train*.arrow")), folder / "manifest.json"
    tokens = shard.read_bytes()
    middle = len(tokens) // 2
    altered = tokens[:middle] + bytes([tokens[middle] ^ 1]) + tokens[middle + 1 :]
    return [
        (shard, altered, f"{shard.name} has another SHA-256 .* altered"),
        (manifest, manifest.read_bytes()[:-10], r"tiny/manifest.json: not a manifest"),
    ]


def replace(path: Path, content: bytes) -> None:
    """Replace a file by a new one, because the old one may be mapped into memory."""
    path.with_suffix(".copy").write_bytes(content)
    path.with_suffix(".copy").replace(path)


def check_stopped(driver: Driver, study: Path, named: str) -> None:
    """The driver failed with the cause and the command that resumes the study."""
    code, out, err = driver.wait_for_exit()
    assert code == 1, out
    assert re.search(named, out), out
    assert f"memtune search {study} --resume" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_driver_waits_while_the_disk_of_the_study_database_is_full(
    kind: str,
    place: StudySetup,
    mounted: MountDisk,
    tmp_path: Path,
    undisturbed: list[Outcome],
    record_fault: RecordFault,
) -> None:
    disk = mounted(tmp_path / "disk", 2048)
    url = f"{kind}:///{disk.folder}/proposals"
    place.settings = place.settings.model_copy(update={"study_database": url})
    environment = place.environment | {"MEMTUNE_PROPOSALS": url}
    disk.fill()
    with run_driver(place.study_file, environment=environment) as driver:
        code, _, err = driver.wait_for_exit()
    assert code == 1
    assert f"error: the study's storage {url}" in err
    assert "Traceback" not in err
    disk.release()
    with run_driver(place.study_file, environment=environment) as driver:
        driver.wait_for_line("running .* tokens", 2)
        disk.fill()
        driver.wait_for_error_line("is unavailable; training continues")
        disk.release()
        driver.wait_for_success()
    assert describe_outcomes(place.read_outcomes()) == describe_outcomes(undisturbed)
    place.check_records()
    record_fault(
        "disk full",
        2,
        0,
        f"the proposals' {kind} on a full disk: a driver that starts says so; one that runs went on when "
        "there was space, and all figures are those of a run left alone",
    )


def test_a_second_driver_is_refused_with_who_holds_the_study_and_a_killed_first_leaves_no_process(
    place: StudySetup, tmp_path: Path, record_fault: RecordFault
) -> None:
    """The first has its own Ray instance; the second has its own home folder, as on another machine."""
    place.study_file.write_text(place.study_file.read_text().replace("tokens = 900", "tokens = 900_000_000"))
    with run_driver(place.study_file, environment={"MEMTUNE_HOME": str(place.home)}) as first:
        first.wait_for_line("running")
        with run_driver(
            place.study_file, "--resume", environment=place.build_environment_without_home(tmp_path)
        ) as second:
            code, _, err = second.wait_for_exit()
        assert code == 1
        assert f"is run by process {first.process.pid} on " in err
        first.kill()
        poll_until(
            lambda: not list(list_session_processes(first.process.pid)),
            "the end of all that a driver started",
        )
    record_fault(
        "two at once",
        1,
        0,
        "a second driver of a study, with a home of its own, was refused with the first's process and host; "
        "the first was killed, and nothing of its own Ray stayed",
    )


def stop_without_lock(driver: Driver, place: StudySetup) -> None:
    """Stop the driver while it does not hold the lock of MLflow's file, which would block every process."""

    def stopped() -> bool:
        driver.process.send_signal(signal.SIGSTOP)
        poll_until(lambda: Path(f"/proc/{driver.process.pid}/stat").read_text().split()[2] == "T", "a stop")
        try:
            with sqlite3.connect(place.settings.home / "mlflow.db", timeout=0) as store:
                store.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            driver.process.send_signal(signal.SIGCONT)
            return False
        finally:
            store.close()
        return True

    poll_until(stopped, "an instant without a lock")


def test_a_driver_stopped_too_long_loses_its_study_to_another_and_writes_nothing_more(
    place: StudySetup, tmp_path: Path, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    """The other one has a home of its own, as on another machine; what is shared are the study's places."""
    with run_driver(place.study_file, environment=place.environment) as stopped:
        stopped.wait_for_line("running .* tokens", 2)
        stop_without_lock(stopped, place)
        with run_driver(
            place.study_file, "--resume", environment=place.build_environment_without_home(tmp_path)
        ) as successor:
            assert f"is held by process {stopped.process.pid} on " in successor.wait_for_success()
        stopped.process.send_signal(signal.SIGCONT)
        code, _, err = stopped.wait_for_exit()
    assert code == 1
    assert f"was taken over by process {successor.process.pid} on " in err
    assert describe_outcomes(place.read_outcomes()) == describe_outcomes(undisturbed)
    place.check_records()
    record_fault(
        "clock and pause",
        1,
        0,
        "a driver was stopped (SIGSTOP), another one took the study over from another home and ended it; the "
        "first, continued, noticed and stopped; all figures are those of a run left alone",
    )


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static time_t back(void) { return access(getenv("CLOCK_SET_BACK"), F_OK) == 0 ? 3600 : 0; }
int clock_gettime(clockid_t id, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec -= back();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(now, zone);
    if (!failed) now->tv_sec -= back();
    return failed;
}
time_t time(time_t *out) {
    time_t (*real)(time_t *) = dlsym(RTLD_NEXT, "time");
    time_t now = real(NULL) - back();
    if (out) *out = now;
    return now;
}
"""


@pytest.fixture
def settable_clock(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment of a process whose clock is an hour behind once the file exists, and that file."""
    if shutil.which("cc") is None:
        pytest.skip("no clock to set back without a C compiler")
    source, library, switch = (tmp_path / name for name in ("clock.c", "clock.so", "set_back"))
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_SET_BACK": str(switch)}, switch


def test_two_studies_at_once_do_not_mix_and_a_clock_set_back_changes_nothing(
    place: StudySetup,
    settable_clock: tuple[dict[str, str], Path],
    undisturbed: list[Outcome],
    record_fault: RecordFault,
) -> None:
    """They share the home folder and every record. Only one driver's clock is set back."""
    clock, switch = settable_clock
    other = place.study_file.with_name("other.toml")
    other.write_text(STUDY_TOML.format(seed=1))
    with (
        run_driver(place.study_file, environment=place.environment | clock) as first,
        run_driver(other, environment=place.environment) as second,
    ):
        first.wait_for_line("running .* tokens")
        switch.touch()
        first.wait_for_success()
        second.wait_for_success()
    others = read_outcomes(other, place.settings)
    assert describe_outcomes(place.read_outcomes()) == describe_outcomes(undisturbed)
    assert {outcome.state for outcome in others} <= {TrialState.COMPLETE, TrialState.STOPPED}
    assert len(others) == len(undisturbed)
    ended = {outcome.identity: outcome for outcome in (*undisturbed, *others)}
    assert len(ended) == 2 * len(undisturbed)
    rows = compare("tiny", settings=place.settings).rows
    assert sorted(row.trial for row in rows) == sorted(ended)
    seen = {row.trial: row.tokens for row in rows}
    assert seen == {name: max(ended[name].curve) for name in ended}, first.errors + second.errors
    (champion,) = find_champions("tiny", place.settings)
    best = min(min(outcome.curve.values()) for outcome in ended.values())
    assert champion.cost == pytest.approx(best, rel=1e-9)
    with sqlite3.connect(place.settings.home / "mlflow.db") as store:
        (backwards,) = store.execute("SELECT count(*) FROM runs WHERE end_time < start_time").fetchone()
    store.close()
    assert backwards > 0, "the clock did go back"
    record_fault(
        "two at once",
        0,
        0,
        "two studies ran at once over one store, one storage of proposals, one MLflow and one Ray: each has "
        "its own trials, one of them those of a run left alone, and the better best model is champion",
    )
    record_fault(
        "clock and pause",
        1,
        0,
        "the clock of a driver was set back by an hour in the middle of its study: every trial and figure is "
        "that of a run left alone",
    )
