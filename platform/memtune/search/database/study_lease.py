"""A lease on a study: one driver at a time runs it, on whichever machine.

The lease needs no locks of the storage. Drivers queue in a separate Optuna study, one trial per driver. The
storage numbers trials uniquely and refuses writes to ended trials. So the holder is the first driver whose
trial has not ended, and a holder that another driver expired learns of it at its next look at the queue.

A heartbeat increments a counter, often while another driver waits to see it, else rarely: a journal keeps
each one permanently. Clocks of machines differ, so a waiting driver watches the counter by its own clock. It
does not wait for a process of its own machine that has exited.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.errors import StudyError
from memtune.search.compatibility import suppress_optuna_messages
from memtune.search.database.outage_buffer import convert_outage_errors, is_unavailable
from memtune.search.database.study_database import open_study_database, redact_url
from memtune.storage.uris import JOURNAL_PREFIX
from memtune.values import Value

HEARTBEAT_SECONDS = 4.0
"""Seconds between two looks at the queue of a driver that has the lease."""
IDLE_HEARTBEAT_SECONDS = 60.0
"""Seconds between two heartbeats that no other driver waits for."""
LEASE_TIMEOUT_SECONDS = 20.0
"""Seconds without a heartbeat after which a holder expires that may still be alive."""
POLL_SECONDS = 0.1
"""Seconds between two reads of the queue by a waiting driver."""
HOLDER_KEY, HEARTBEAT_COUNT_KEY, SUCCESSOR_KEY = "holder", "count", "successor"

log = logging.getLogger(__name__)


class Holder(Value):
    """The process of a driver."""

    process: int
    host: str
    since: str
    machine: str = ""
    """The machine's boot id and its namespace of process ids; "" where they cannot be read."""
    started: str = ""
    """When the process started, in clock ticks: process ids are reused."""

    @classmethod
    def from_current_process(cls) -> "Holder":
        """The current process."""
        return cls(
            process=os.getpid(),
            host=socket.gethostname(),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            machine=_read_machine_id(),
            started=_read_start_time(os.getpid()),
        )

    def has_exited(self) -> bool:
        """Whether this was a process of this machine; False when it runs, and for another machine."""
        is_here = bool(self.machine) and self.machine == _read_machine_id()
        return is_here and _read_start_time(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}"


def _read_machine_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _read_start_time(process: int) -> str:
    """The time a process started, in clock ticks; "" for none and for a zombie."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def read_clock_seconds() -> float:
    """A monotonic clock that also counts the time the machine sleeps, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Exclusive use of a study during a `with` block.

    Entering raises StudyError with the holder's name once its heartbeat shows that it is alive, and
    `patience_seconds` have passed. A holder without a heartbeat expires after `timeout_seconds`. Raises
    StorageError when the storage does not answer.
    """

    def __init__(
        self,
        storage_url: str,
        study_name: str,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        timeout_seconds: float = LEASE_TIMEOUT_SECONDS,
        patience_seconds: float = 0.0,
        notify: Callable[[str], object] = log.info,
    ) -> None:
        """`notify` is called with a message when the driver has to wait for the holder."""
        self._study_name, self._notify = study_name, notify
        self._heartbeat_seconds, self._timeout_seconds = heartbeat_seconds, timeout_seconds
        self._patience_seconds = patience_seconds
        # A journal is read whole, so that of the trials does not hold heartbeats.
        journal = storage_url.startswith(JOURNAL_PREFIX)
        self._storage = open_study_database(f"{storage_url}.drivers" if journal else storage_url)
        self._redacted_url = redact_url(storage_url)
        with suppress_optuna_messages(), convert_outage_errors(self._redacted_url):
            name = f"{study_name}.drivers"
            optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)
            self._queue_id = self._storage.get_study_id_from_name(name)
        self._heartbeat_count = 0
        self._heartbeat_lock = threading.Lock()
        self._lost, self._closing = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        """Join the queue, wait until every earlier driver has ended or expired, and start the heartbeat."""
        with convert_outage_errors(self._redacted_url):
            self._trial_id = self._storage.create_new_trial(self._queue_id)
            own = Holder.from_current_process().model_dump()
            self._storage.set_trial_user_attr(self._trial_id, HOLDER_KEY, own)
            self._number = self._storage.get_trial(self._trial_id).number
            self._last_renewal = self._last_heartbeat = read_clock_seconds()
            try:
                self._wait_for_turn()
            except BaseException:
                self._release()
                raise
        self._thread = threading.Thread(target=self._run_heartbeat_loop, name="memtune-lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Release the lease.

        Raises StudyError instead of the block's error when the lease was lost: a write that was interrupted
        fails with an unrelated message when another driver has ended the trial.
        """
        self._closing.set()
        self._thread.join(self._timeout_seconds)
        if isinstance(error, Exception):
            with suppress(Exception):
                self._renew()
            self._raise_if_lost()
        self._release()

    def check(self) -> None:
        """Raise StudyError when another driver has the lease; called before every shared write.

        A driver loses the lease when it sends no heartbeat for long although another one waits, because it
        was stopped or had no connection to the storage.
        """
        if not self._lost.is_set() and read_clock_seconds() - self._last_renewal > self._heartbeat_seconds:
            self._renew()
        self._raise_if_lost()

    def check_for_records(self) -> None:
        """As `check`, for writes elsewhere: a StorageError names the study database that does not answer."""
        with convert_outage_errors(self._redacted_url):
            self.check()

    def _raise_if_lost(self) -> None:
        if self._lost.is_set():
            successor = None
            with suppress(Exception):  # an unavailable storage cannot name the successor
                successor = self._storage.get_trial(self._trial_id).user_attrs.get(SUCCESSOR_KEY)
            by = Holder.model_validate(successor) if successor else "another driver"
            raise StudyError(
                f"study {self._study_name} was taken over by {by} while this driver sent no heartbeat; "
                "it stops here and has written nothing since"
            )

    def _wait_for_turn(self) -> None:
        start, is_notified = read_clock_seconds(), False
        # The last heartbeat of each driver ahead, and since when it is the last.
        seen: dict[int, tuple[object, float]] = {}
        while ahead := [trial for trial in self._list_queue() if trial.number < self._number]:
            for trial in ahead:
                found = trial.user_attrs.get(HOLDER_KEY)  # None for an instant after the trial was created
                holder = None if found is None else Holder.model_validate(found)
                now, count = read_clock_seconds(), trial.user_attrs.get(HEARTBEAT_COUNT_KEY)
                known, since = seen.setdefault(trial.number, (count, now))
                if count != known and now - start >= self._patience_seconds:
                    raise StudyError(
                        f"study {self._study_name} is run by {holder or 'another driver'}; "
                        "wait for it or stop it"
                    )
                if count != known:
                    seen[trial.number] = count, now
                elif (holder and holder.has_exited()) or now - since > self._timeout_seconds:
                    self._expire(trial)
                elif not is_notified:
                    self._notify(
                        f"study {self._study_name} is held by {holder}; checking whether it is alive"
                    )
                    is_notified = True
            self.check()
            time.sleep(POLL_SECONDS)

    def _list_queue(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._queue_id, deepcopy=False, states=(OptunaState.RUNNING,))

    def _expire(self, trial: FrozenTrial) -> None:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._queue_id, trial.number)
        own = Holder.from_current_process().model_dump()
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial_id, SUCCESSOR_KEY, own)
            self._storage.set_trial_state_values(trial_id, OptunaState.FAIL)

    def _release(self) -> None:
        """End the own trial; without the storage, the next driver finds that this process has exited."""
        try:
            with suppress(UpdateFinishedTrialError):
                self._storage.set_trial_state_values(self._trial_id, OptunaState.FAIL)
        except StudyError:
            log.warning("the lease of study %s cannot be released: its file is gone", self._study_name)
        except Exception as error:
            if not is_unavailable(error):
                raise

    def _run_heartbeat_loop(self) -> None:
        """Renew the lease. Errors are ignored: an unavailable storage also keeps other drivers out."""
        while not self._closing.wait(self._heartbeat_seconds) and not self._lost.is_set():
            with suppress(Exception):
                self._renew()

    def _renew(self) -> None:
        """Note whether another driver has ended the own trial; send a heartbeat where another one waits.

        Without one a heartbeat is rare: its write fails where the file of the lease was replaced.
        """
        with self._heartbeat_lock:
            now, queue = read_clock_seconds(), self._list_queue()
            if self._number not in (trial.number for trial in queue):
                self._lost.set()
                return
            later = [trial.user_attrs.get(HOLDER_KEY) for trial in queue if trial.number > self._number]
            is_watched = any(own is None or not Holder.model_validate(own).has_exited() for own in later)
            if is_watched or now - self._last_heartbeat > IDLE_HEARTBEAT_SECONDS:
                count = self._heartbeat_count + 1
                try:
                    self._storage.set_trial_user_attr(self._trial_id, HEARTBEAT_COUNT_KEY, count)
                except UpdateFinishedTrialError:
                    self._lost.set()
                    return
                self._heartbeat_count, self._last_heartbeat = count, now
            self._last_renewal = now
