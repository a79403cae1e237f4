"""A study has one driver at a time, on whatever machines its drivers run and however they end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Barrier

import pytest
from optuna.trial import TrialState

import memtune
from memtune.errors import StudyError
from memtune.search import Lease
from memtune.search.database.study_lease import HOLDER_KEY, IDLE_HEARTBEAT_SECONDS, Holder
from tests.cluster.poll import is_stopped, poll_until

HEARTBEAT = 0.1
LONG_TIMEOUT_SECONDS = 600.0

HOLD = """
import os, signal, sys
from memtune.errors import StudyError
from memtune.search import Lease
url, beat, timeout = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with Lease(url, "s", heartbeat_seconds=beat, timeout_seconds=timeout) as lease:
    print("holds", flush=True)
    for line in sys.stdin:
        if line == "stop\\n":
            with lease._heartbeat_lock:  # else it may stop in a write, and keep the lock of the database
                os.kill(os.getpid(), signal.SIGSTOP)
            continue
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

        def start(timeout: float = LONG_TIMEOUT_SECONDS) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, url, str(HEARTBEAT), str(timeout)],
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


def check_lease(process: subprocess.Popen[str]) -> str:
    """Let a holder check its lease; return its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a holder between two heartbeats."""
    assert process.stdin is not None
    process.stdin.write("stop\n")
    process.stdin.flush()
    poll_until(lambda: is_stopped(process.pid), "the stop")


def make_lease(url: str, timeout: float = LONG_TIMEOUT_SECONDS, name: str = "s") -> Lease:
    return Lease(url, name, heartbeat_seconds=HEARTBEAT, timeout_seconds=timeout)


def test_a_second_driver_is_refused_with_who_holds_the_study(url: str) -> None:
    message = f"study s is run by process {os.getpid()} on "
    with make_lease(url) as held:
        with pytest.raises(StudyError, match=message), make_lease(url):
            pass
        held.check()


def is_held(url: str, name: str = "s") -> bool:
    """Whether another driver is refused."""
    try:
        with make_lease(url, name=name):
            return False
    except StudyError:
        return True


def test_studies_of_other_names_have_other_leases(url: str) -> None:
    with make_lease(url, name="one"):
        assert is_held(url, "one")
        assert not is_held(url, "two")


def test_a_released_lease_is_free(url: str) -> None:
    with make_lease(url):
        assert is_held(url)
    waits: list[str] = []
    with Lease(url, "s", heartbeat_seconds=HEARTBEAT, timeout_seconds=1.0, notify=waits.append):
        assert waits == []


def test_a_driver_with_patience_waits_for_one_that_is_alive(url: str) -> None:
    """Calls of `ask` and `tell` from several processes take turns."""
    waits: list[str] = []

    def call() -> None:
        with Lease(url, "s", heartbeat_seconds=HEARTBEAT, patience_seconds=60, notify=waits.append) as lease:
            lease.check()

    with ThreadPoolExecutor(1) as others:
        with make_lease(url) as held:
            called = others.submit(call)
            poll_until(lambda: waits, "the other driver")
            seen = held._heartbeat_count
            poll_until(lambda: held._heartbeat_count > seen + 3, "heartbeats that the other driver sees")
            assert not called.done()
        called.result()


def test_a_lease_for_which_nobody_waits_is_renewed_with_few_writes(tmp_path: Path) -> None:
    """A journal keeps each heartbeat: those of a day would take 3 MB."""
    file = tmp_path / "study.log.drivers"
    with Lease(f"journal://{tmp_path}/study.log", "s", heartbeat_seconds=600.0) as held:
        sizes = [file.stat().st_size]
        for idle_seconds in (0.0, 0.0, IDLE_HEARTBEAT_SECONDS, 0.0):
            held._last_renewal -= 1000.0
            held._last_heartbeat -= idle_seconds
            held.check()
            sizes.append(file.stat().st_size)
    assert [after > before for before, after in pairwise(sizes)] == [False, False, True, False]


def test_a_driver_that_was_killed_while_it_waited_is_not_shown_heartbeats(tmp_path: Path) -> None:
    url = f"journal://{tmp_path}/study.log"
    with Lease(url, "s", heartbeat_seconds=600.0) as held:
        wait = f"from memtune.search import Lease; Lease({url!r}, 's', patience_seconds=600.0).__enter__()"
        with subprocess.Popen([sys.executable, "-c", wait]) as waiting:
            poll_until(lambda: len(held._list_queue()) > 1, "a driver that waits")
            poll_until(lambda: HOLDER_KEY in held._list_queue()[-1].user_attrs, "its name")
            waiting.kill()
        held._last_renewal -= 1000.0
        held.check()
        assert held._heartbeat_count == 0


def test_a_driver_whose_lease_was_replaced_by_that_of_another_ends(tmp_path: Path) -> None:
    url = f"journal://{tmp_path}/study.log"

    def lose_lease() -> None:
        with Lease(url, "s", heartbeat_seconds=600.0) as held:
            for _ in range(2):
                held._last_renewal -= 1000.0
                held._last_heartbeat -= IDLE_HEARTBEAT_SECONDS
                held.check()
                (tmp_path / "study.log.drivers").rename(tmp_path / "away")
                with Lease(url, "s", heartbeat_seconds=600.0):
                    pass

    with pytest.raises(StudyError, match=r"study\.log\.drivers"):
        lose_lease()


def test_the_lease_of_a_killed_process_of_this_machine_is_free_at_once(url: str, hold: Hold) -> None:
    holder = hold()
    holder.kill()
    began = time.monotonic()
    with make_lease(url, LONG_TIMEOUT_SECONDS) as held:
        held.check()
    assert time.monotonic() - began < LONG_TIMEOUT_SECONDS


def test_a_driver_that_was_stopped_too_long_loses_the_lease(url: str, hold: Hold) -> None:
    holder = hold()
    stop(holder)
    with make_lease(url, timeout=1.0) as held:
        holder.send_signal(signal.SIGCONT)
        assert f"study s was taken over by process {os.getpid()} on " in check_lease(holder)
        held.check()


def test_a_driver_that_was_stopped_briefly_keeps_the_lease(url: str, hold: Hold) -> None:
    holder = hold()
    stop(holder)
    time.sleep(3 * HEARTBEAT)
    holder.send_signal(signal.SIGCONT)
    assert check_lease(holder) == "may write\n"


def test_an_error_after_losing_the_lease_becomes_that_error(url: str) -> None:
    def fail() -> None:
        with make_lease(url) as held:
            held._storage.set_trial_state_values(held._trial_id, TrialState.FAIL)
            raise KeyError("a trial that has ended meanwhile")

    with pytest.raises(StudyError, match="was taken over by"):
        fail()


def test_one_of_several_concurrent_drivers_gets_the_lease(url: str) -> None:
    together, done = Barrier(4, timeout=60), Barrier(4, timeout=60)

    def try_to_hold(_: int) -> bool:
        together.wait()
        try:
            with make_lease(url):
                done.wait()
                return True
        except StudyError:
            done.wait()
            return False

    with ThreadPoolExecutor(4) as drivers:
        assert sorted(drivers.map(try_to_hold, range(4))) == [False, False, False, True]


def test_a_process_of_another_machine_does_not_count_as_exited() -> None:
    here = Holder.from_current_process()
    assert not here.has_exited()
    assert here.model_copy(update={"started": "1"}).has_exited(), "its number was given to another process"
    assert not here.model_copy(update={"started": "1", "machine": "elsewhere"}).has_exited()
