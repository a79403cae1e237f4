"""Drivers that are killed, stopped or started twice: what a study comes to is what it would have come to."""

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.corpora import import_corpus
from memtune.execution.comparison import champions, compare
from memtune.execution.settings import Settings
from memtune.search import Outcome
from tests.cluster.drivers import (
    Driver,
    RayInstance,
    driving,
    eventually,
    members,
    outcomes,
    prepared,
    ray_instance,
)
from tests.cluster.fault_table import RecordFault
from tests.conftest import SENTENCES, SPACE

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_places")]

STUDY = """question = "Does a second layer help?"

corpus = "tiny"
spaces = ["space.toml"]
seed = {seed}

[training]
tokens = 900
report_every = 300

[sampler]
startup_trials = 3

[halving]
grace = 300
factor = 2

[budget]
trials = 6

[resources]
max_concurrent = 1
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayInstance]:
    """A Ray that the drivers share, as they would a cluster."""
    folder = Path("/tmp") / tmp_path_factory.mktemp("r").name  # sockets have short names
    with ray_instance(folder, cores=4) as instance:
        yield instance
    shutil.rmtree(folder, ignore_errors=True)


class Place:
    """A home with the tiny corpus in it, and a study."""

    def __init__(self, folder: Path, ray: RayInstance, seed: int = 0) -> None:
        self.home = folder / "home"
        self.environment = ray.environment | {"MEMTUNE_HOME": str(self.home)}
        self.settings = Settings.read(self.home)
        import_corpus("tiny", dict.fromkeys(("train", "valid", "test"), SENTENCES * 20), self.settings.store)
        (folder / "space.toml").write_text(SPACE)
        self.study = folder / "layers.toml"
        self.study.write_text(STUDY.format(seed=seed))

    def elsewhere(self, folder: Path) -> dict[str, str]:
        """What a driver has that shares the study's places and no home."""
        return self.environment | {
            "MEMTUNE_HOME": str(folder / "elsewhere"),
            "MEMTUNE_STORE": self.settings.store,
            "MEMTUNE_STUDIES": self.settings.studies,
            "MEMTUNE_PROPOSALS": self.settings.proposals,
            "MLFLOW_TRACKING_URI": self.settings.tracking,
        }

    def outcomes(self) -> list[Outcome]:
        return outcomes(self.study, self.settings)

    def checkpoints(self, identity: str) -> list[Path]:
        """Those of a trial, oldest first."""
        folder = Path(prepared(self.study, self.settings).checkpoints) / identity
        return sorted(path for path in folder.iterdir() if path.is_dir())

    def check_records(self) -> None:
        """MLflow tells of each trial what the study's own records tell, once, and of one champion."""
        ended = self.outcomes()
        rows = compare("tiny", settings=self.settings).rows
        assert sorted(row.trial for row in rows) == sorted(outcome.identity for outcome in ended)
        assert {row.state for row in rows} == {"finished"}
        assert {row.trial: row.tokens for row in rows} == {
            outcome.identity: max(outcome.curve) for outcome in ended
        }
        (champion,) = champions("tiny", self.settings)
        assert champion.version == 1


@pytest.fixture
def place(tmp_path: Path, ray: RayInstance) -> Place:
    return Place(tmp_path, ray)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, ray: RayInstance) -> list[Outcome]:
    """The trials of the study when nothing goes wrong."""
    place = Place(tmp_path_factory.mktemp("undisturbed"), ray)
    with driving(place.study, environment=place.environment) as driver:
        driver.succeed()
    return place.outcomes()


def told(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """All there is of the trials but their numbers, which skip what a kill cut off."""
    return [(each.identity, each.state, each.value, each.curve, each.reason) for each in outcomes]


def strike(driver: Driver, ray: RayInstance, pattern: str, times: int) -> None:
    """Kill the driver at a line of its output; nothing that it started stays."""
    driver.wait_for(pattern, times)
    driver.kill()
    eventually(lambda: not ray.workers(), "the end of a dead driver's workers")


def test_a_driver_killed_again_and_again_ends_with_the_trials_of_one_that_was_not(
    place: Place, ray: RayInstance, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    """After a report, when about to ask, and at the crowning."""
    chance = random.Random(5)
    over: list[int] = []
    report, end = r"running .* tokens", r" (done|stopped) "
    for pattern, times in ((report, chance.randint(3, 5)), (end, chance.randint(1, 2)), (end, None)):
        resume = [] if pattern == report else ["--resume"]
        with driving(place.study, *resume, environment=place.environment) as driver:
            strike(driver, ray, pattern, times or len(undisturbed) - len(over))
        again = re.findall(r"trial +(\d+) +running", "".join(driver.lines))
        assert not {int(number) for number in again} & set(over)
        over = [outcome.number for outcome in place.outcomes() if outcome.state != "running"]
    with driving(place.study, "--resume", environment=place.environment) as driver:
        assert "running" not in driver.succeed()

    assert told(place.outcomes()) == told(undisturbed)
    place.check_records()
    record_fault(
        "driver killed",
        3,
        0,
        "killed after a report, after the end of a trial and after that of the last; resumed each time, all "
        "trials, curve and rung is that of a run that was left alone, no ended trial ran again, no worker "
        "stayed, MLflow holds each trial once and one champion",
    )


def test_a_truncated_checkpoint_is_named_and_the_one_before_goes_on(
    place: Place, ray: RayInstance, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    with driving(place.study, environment=place.environment) as driver:
        strike(driver, ray, "running .* 680 tokens", 1)
    (cut_off,) = [outcome for outcome in place.outcomes() if outcome.state == "running"]
    weights = place.checkpoints(cut_off.identity)[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with driving(place.study, "--resume", environment=place.environment) as driver:
        out = driver.succeed()
    assert re.search(rf"trial +{cut_off.number} .*{weights.parent.name} is passed over.*truncated", out)
    assert told(place.outcomes()) == told(undisturbed)
    record_fault(
        "files damaged",
        1,
        0,
        "the newest checkpoint of a trial in the middle of a study lost its last byte: the driver named it "
        "and the trial went on from the one before, with the same figures",
    )


def replace(path: Path, content: bytes) -> None:
    """Another file in place of one that may be mapped into memory, as a copying program makes it."""
    path.with_suffix(".copy").write_bytes(content)
    path.with_suffix(".copy").replace(path)


def test_a_shard_damaged_in_the_middle_of_a_study_is_named_and_no_trial_is_blamed(
    place: Place, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    (shard, *_) = sorted((Path(place.settings.store) / "tiny").rglob("train*.arrow"))
    whole = shard.read_bytes()
    with driving(place.study, environment=place.environment) as driver:
        driver.wait_for("running")
        replace(shard, whole[: len(whole) // 2])
        code, out, err = driver.finish()
    assert code == 1
    assert shard.name in out + err
    assert f"memtune search {place.study} --resume" in err
    replace(shard, whole)
    assert {outcome.state for outcome in place.outcomes()} <= {"complete", "pruned", "running"}
    with driving(place.study, "--resume", environment=place.environment) as driver:
        driver.succeed()
    assert told(place.outcomes()) == told(undisturbed)
    record_fault(
        "files damaged",
        1,
        0,
        "a shard lost its second half while a study ran: the study stopped and named it, no trial was "
        "recorded as failed, and with the shard back the study ended as one left alone",
    )


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    """A disk of 600 kB under the study's checkpoints."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk that can be filled")
    studies = Path(place.settings.studies)
    studies.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", "size=600k", "tmpfs", str(studies)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no disk to fill here: {mounted.stderr.strip()}")
    yield studies
    subprocess.run(["umount", str(studies)], check=True)


def test_a_full_disk_ends_the_trial_that_fills_it_and_no_other(
    place: Place, small_disk: Path, record_fault: RecordFault
) -> None:
    place.study.write_text(place.study.read_text().replace("trials = 6", "trials = 3"))
    place.study.with_name("space.toml").write_text(
        SPACE.replace("[4, 8]", "[4, 5, 150]")
        .replace("{ int = [1, 2] }", "1")
        .replace("{ float = [0.1, 1.0], log = true }", "0.5")
    )
    place.study.write_text(place.study.read_text().replace("[halving]\ngrace = 300\nfactor = 2\n", ""))
    with driving(place.study, environment=place.environment) as driver:
        out = driver.succeed()
    ended = {each.configuration["model"]["width"]: each for each in place.outcomes()}
    assert {width: each.state for width, each in ended.items()} == {
        4: "complete",
        5: "complete",
        150: "failed",
    }
    assert "No space left on device" in (ended[150].reason or "")
    assert place.checkpoints(ended[150].identity) == []
    assert "new champion models:/tiny@champion" in out
    record_fault(
        "disk full",
        1,
        0,
        "checkpoints on a disk of 600 kB: a trial whose first does not fit ended with "
        '"No space left on device", left no file, and the others completed',
    )


def test_a_second_driver_is_refused_with_who_holds_the_study_and_a_killed_first_leaves_no_process(
    place: Place, tmp_path: Path, record_fault: RecordFault
) -> None:
    """The first has a Ray of its own; the second a home of its own, as on another machine."""
    place.study.write_text(place.study.read_text().replace("tokens = 900", "tokens = 900_000_000"))
    with driving(place.study, environment={"MEMTUNE_HOME": str(place.home)}) as first:
        first.wait_for("running")
        with driving(place.study, "--resume", environment=place.elsewhere(tmp_path)) as second:
            code, _, err = second.finish()
        assert code == 1
        assert f"is run by process {first.process.pid} on " in err
        first.kill()
        eventually(lambda: not list(members(first.process.pid)), "the end of all that a driver started")
    record_fault(
        "two at once",
        1,
        0,
        "a second driver of a study, with a home of its own, was refused with the first's process and host; "
        "the first was killed, and nothing of its own Ray stayed",
    )


def stop_without_lock(driver: Driver, place: Place) -> None:
    """SIGSTOP, where it does not leave MLflow's file locked: it would be for everybody until it goes on."""

    def stopped() -> bool:
        driver.process.send_signal(signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{driver.process.pid}/stat").read_text().split()[2] == "T", "a stop")
        try:
            with sqlite3.connect(place.settings.home / "mlflow.db", timeout=0) as store:
                store.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            driver.process.send_signal(signal.SIGCONT)
            return False
        finally:
            store.close()
        return True

    eventually(stopped, "an instant without a lock")


def test_a_driver_stopped_for_long_has_lost_its_study_to_another_and_writes_nothing_more(
    place: Place, tmp_path: Path, undisturbed: list[Outcome], record_fault: RecordFault
) -> None:
    """The other one has a home of its own, as on another machine; what is shared are the study's places."""
    with driving(place.study, environment=place.environment) as stopped:
        stopped.wait_for("running .* tokens", 2)
        stop_without_lock(stopped, place)
        with driving(place.study, "--resume", environment=place.elsewhere(tmp_path)) as successor:
            assert f"is held by process {stopped.process.pid} on " in successor.succeed()
        stopped.process.send_signal(signal.SIGCONT)
        code, _, err = stopped.finish()
    assert code == 1
    assert f"was taken over by process {successor.process.pid} on " in err
    assert told(place.outcomes()) == told(undisturbed)
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
    """What gives a process a clock that is an hour behind from when the file is there."""
    if shutil.which("cc") is None:
        pytest.skip("no clock to set back without a C compiler")
    source, library, switch = (tmp_path / name for name in ("clock.c", "clock.so", "set_back"))
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_SET_BACK": str(switch)}, switch


def test_two_studies_at_once_do_not_mix_and_a_clock_set_back_changes_nothing(
    place: Place,
    settable_clock: tuple[dict[str, str], Path],
    undisturbed: list[Outcome],
    record_fault: RecordFault,
) -> None:
    """They share the home, and with it every record. The clock is that of one of the drivers."""
    clock, switch = settable_clock
    other = place.study.with_name("other.toml")
    other.write_text(STUDY.format(seed=1))
    with (
        driving(place.study, environment=place.environment | clock) as first,
        driving(other, environment=place.environment) as second,
    ):
        first.wait_for("running .* tokens")
        switch.touch()
        first.succeed()
        second.succeed()
    others = outcomes(other, place.settings)
    assert told(place.outcomes()) == told(undisturbed)
    assert {outcome.state for outcome in others} <= {"complete", "pruned"}
    assert len(others) == len(undisturbed)
    ended = {outcome.identity: outcome for outcome in (*undisturbed, *others)}
    assert len(ended) == 2 * len(undisturbed)
    rows = compare("tiny", settings=place.settings).rows
    assert sorted(row.trial for row in rows) == sorted(ended)
    assert {row.trial: row.tokens for row in rows} == {name: max(ended[name].curve) for name in ended}
    (champion,) = champions("tiny", place.settings)
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
