"""A study belongs to one driver at a time, wherever its drivers run and however they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest

import memtune
from memtune.errors import StudyError
from memtune.search import Holder, Lease

BEAT = 0.1
FOREVER = 600.0

HOLD = """
import sys
from memtune.errors import StudyError
from memtune.search import Lease
url, beat, lapse = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with Lease(url, "s", beat=beat, lapse=lapse) as lease:
    print("holds", flush=True)
    for line in sys.stdin:
        try:
            lease.check()
            print("may write", flush=True)
        except StudyError as error:
            print(error, flush=True)
"""


@pytest.fixture(params=["journal", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"journal": f"journal://{tmp_path}/study.log", "sqlite": f"sqlite:///{tmp_path}/study.db"}[
        request.param
    ]


Hold = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def hold(url: str) -> Iterator[Hold]:
    """Starts a process that holds the lease, and asks to write with each line it is sent."""
    with ExitStack() as started:

        def start(lapse: float = FOREVER) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, url, str(BEAT), str(lapse)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(Path(memtune.__file__).parents[1])},
            )
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "holds\n"
            return process

        yield start


def may_write(process: subprocess.Popen[str]) -> str:
    """What a holder says when it is asked."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def lease(url: str, lapse: float = FOREVER, name: str = "s") -> Lease:
    return Lease(url, name, beat=BEAT, lapse=lapse)


def test_a_second_driver_is_refused_with_who_holds_the_study(url: str, hold: Hold) -> None:
    holder = hold()
    with pytest.raises(StudyError, match=f"study s is run by process {holder.pid} on "), lease(url):
        pass
    assert may_write(holder) == "may write\n"


def test_studies_of_other_names_are_nobody_s_business(url: str) -> None:
    with lease(url, name="one"), lease(url, name="two") as other:
        other.check()


def test_who_leaves_leaves_the_study_to_the_next(url: str) -> None:
    for _ in range(2):
        with lease(url) as held:
            held.check()


def test_a_driver_that_was_killed_on_this_machine_is_not_waited_for(url: str, hold: Hold) -> None:
    holder = hold()
    holder.kill()
    began = time.monotonic()
    with lease(url, FOREVER) as held:
        held.check()
    assert time.monotonic() - began < FOREVER


def test_a_driver_that_was_stopped_too_long_loses_the_study_and_finds_out(url: str, hold: Hold) -> None:
    holder = hold()
    holder.send_signal(signal.SIGSTOP)
    with lease(url, lapse=1.0) as held:
        holder.send_signal(signal.SIGCONT)
        assert f"study s was taken over by process {os.getpid()} on " in may_write(holder)
        held.check()


def test_a_driver_that_was_stopped_for_less_than_that_goes_on(url: str, hold: Hold) -> None:
    holder = hold()
    holder.send_signal(signal.SIGSTOP)
    time.sleep(3 * BEAT)
    holder.send_signal(signal.SIGCONT)
    assert may_write(holder) == "may write\n"


def test_whatever_fails_because_the_study_was_lost_is_told_as_that(url: str) -> None:
    def fail() -> None:
        with lease(url) as held:
            held._end(held._trial_id)
            raise KeyError("a trial that has ended meanwhile")

    with pytest.raises(StudyError, match="was taken over by"):
        fail()


def test_of_drivers_that_start_at_once_one_gets_the_study(url: str) -> None:
    together, done = Barrier(4, timeout=60), Barrier(4, timeout=60)

    def try_to_hold(_: int) -> bool:
        together.wait()
        try:
            with lease(url):
                done.wait()
                return True
        except StudyError:
            done.wait()
            return False

    with ThreadPoolExecutor(4) as drivers:
        assert sorted(drivers.map(try_to_hold, range(4))) == [False, False, False, True]


def test_a_process_of_another_machine_is_not_known_to_be_gone() -> None:
    here = Holder.here()
    assert not here.is_gone()
    assert here.model_copy(update={"started": "1"}).is_gone(), "its number was given to another process"
    assert not here.model_copy(update={"started": "1", "machine": "elsewhere"}).is_gone()
