"""Which driver a study belongs to: a lease kept in the study's own storage, wherever its drivers run.

Drivers queue in an Optuna study of their own, a trial each. The storage gives no two of them one number and
lets nobody write to a trial that has ended, which makes two promises out of storages that lock nothing: the
holder is the first that has not ended, and a holder that was given up finds out with its next beat.

A holder beats by counting. Clocks of machines differ, so whoever waits looks whether the count moves, for as
long as its own clock says; a process of this machine that is no more need not be waited for.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from memtune.errors import StudyError
from memtune.search.patience import answering, is_away
from memtune.search.samplers import quiet
from memtune.search.storages import JOURNAL, open_storage, shown
from memtune.values import Value

__all__ = ["Holder", "Lease"]

BEAT = 4.0
"""Seconds between two beats of a holder."""
LAPSE = 20.0
"""Seconds without a beat after which a holder is given up that is not known to be gone."""
LOOK = 0.1
"""Seconds between two looks of one that waits."""
HOLDER, COUNT, SUCCESSOR = "holder", "count", "successor"

log = logging.getLogger(__name__)


class Holder(Value):
    """A driver's process, as others know it."""

    process: int
    host: str
    since: str
    machine: str = ""
    """This start of this machine, and the namespace its processes are numbered in; "" where none is known."""
    started: str = ""
    """When the process started, in the machine's own ticks: process numbers come again."""

    @classmethod
    def here(cls) -> "Holder":
        """This process."""
        return cls(
            process=os.getpid(),
            host=socket.gethostname(),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            machine=_machine(),
            started=_started(os.getpid()),
        )

    def is_gone(self) -> bool:
        """Whether this is a process of this machine that is no more; False where that cannot be known."""
        return bool(self.machine) and self.machine == _machine() and _started(self.process) != self.started

    def __str__(self) -> str:
        """The process and where it runs."""
        return f"process {self.process} on {self.host} since {self.since}"


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(process: int) -> str:
    """The time a process started; "" when there is none, or only what is left of one that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def seconds() -> float:
    """A clock that nobody sets, and that goes on while the machine sleeps where there is such a one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """A study for one driver alone, for the time of a `with` block.

    Entering raises StudyError that names who holds the study, after looking for up to a beat whether it is
    alive, or for `lapse` seconds when it is not; StorageError when the storage does not answer.
    """

    def __init__(
        self,
        storage_url: str,
        study_name: str,
        *,
        beat: float = BEAT,
        lapse: float = LAPSE,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        """`tell` is called when there is somebody to wait for."""
        self._study_name, self._beat, self._lapse, self._tell = study_name, beat, lapse, tell
        # A journal keeps every beat for ever, so these have one of their own.
        journal = storage_url.startswith(JOURNAL)
        self._storage = open_storage(f"{storage_url}.drivers" if journal else storage_url)
        self._shown = shown(storage_url)
        with quiet(), answering(self._shown):
            study = optuna.create_study(
                storage=self._storage, study_name=f"{study_name}.drivers", load_if_exists=True
            )
        self._queue_id = study._study_id
        self._count = 0
        self._beating, self._lost, self._closing = threading.Lock(), threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        """Queue, wait until everybody ahead has ended or was given up, and begin to beat."""
        with answering(self._shown):
            self._trial_id = self._storage.create_new_trial(self._queue_id)
            self._storage.set_trial_user_attr(self._trial_id, HOLDER, Holder.here().model_dump())
            self._confirmed = seconds()
            try:
                self._wait_for_turn()
            except BaseException:
                self._leave()
                raise
        self._thread = threading.Thread(target=self._keep_beating, name="memtune-lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the study to others.

        An error of a driver that lost it is told as that: a write that it was stopped in the middle of fails
        when what it was to change has ended meanwhile.
        """
        self._closing.set()
        self._thread.join(self._lapse)
        if isinstance(error, Exception):
            with suppress(Exception):
                self._confirm()
            self._raise_if_lost()
        self._leave()

    def check(self) -> None:
        """To be called before every write to what drivers share.

        Raises StudyError when the study was given to another driver, which happens to one that did not beat
        for long: because it was stopped, or cut off from the storage.
        """
        if not self._lost.is_set() and seconds() - self._confirmed > self._beat:
            self._confirm()
        self._raise_if_lost()

    def _raise_if_lost(self) -> None:
        if self._lost.is_set():
            successor = None
            with suppress(Exception):  # a storage that is away does not say
                successor = self._storage.get_trial(self._trial_id).user_attrs.get(SUCCESSOR)
            by = Holder.model_validate(successor) if successor else "another driver"
            raise StudyError(
                f"study {self._study_name} was taken over by {by} while this one was silent; "
                "it stops here and has written nothing since"
            )

    def _wait_for_turn(self) -> None:
        began, counts, told = seconds(), dict[int, object](), False
        while ahead := self._ahead():
            for trial in ahead:
                holder = _holder(trial)
                count = counts.setdefault(trial.number, trial.user_attrs.get(COUNT))
                if count != trial.user_attrs.get(COUNT):
                    raise StudyError(
                        f"study {self._study_name} is run by {holder or 'another driver'}; "
                        "wait for it or stop it"
                    )
                if (holder and holder.is_gone()) or seconds() - began > self._lapse:
                    self._give_up(trial)
                elif not told:
                    self._tell(f"study {self._study_name} is held by {holder}; looking whether it is alive")
                    told = True
            self.check()
            time.sleep(LOOK)

    def _ahead(self) -> list[FrozenTrial]:
        """Those that came earlier and have not ended."""
        own = self._storage.get_trial(self._trial_id).number
        queue = self._storage.get_all_trials(self._queue_id, deepcopy=False, states=(TrialState.RUNNING,))
        return [trial for trial in queue if trial.number < own]

    def _give_up(self, trial: FrozenTrial) -> None:
        try:
            self._storage.set_trial_user_attr(trial._trial_id, SUCCESSOR, Holder.here().model_dump())
        except UpdateFinishedTrialError:
            return
        self._end(trial._trial_id)

    def _leave(self) -> None:
        """End the own place; where the storage is away, others find this driver gone."""
        try:
            self._end(self._trial_id)
        except Exception as error:
            if not is_away(error):
                raise

    def _end(self, trial_id: int) -> None:
        try:
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)
        except UpdateFinishedTrialError:
            return

    def _keep_beating(self) -> None:
        """A storage that does not answer is told of by the driver's writes; it keeps successors off too."""
        while not self._closing.wait(self._beat) and not self._lost.is_set():
            with suppress(Exception):
                self._confirm()

    def _confirm(self) -> None:
        """Beat, unless the trial was ended by somebody else."""
        with self._beating:
            now = seconds()
            try:
                self._storage.set_trial_user_attr(self._trial_id, COUNT, self._count + 1)
            except UpdateFinishedTrialError:
                self._lost.set()
                return
            self._count, self._confirmed = self._count + 1, now


def _holder(trial: FrozenTrial) -> Holder | None:
    """Who a trial stands for; None for an instant after it queued."""
    found = trial.user_attrs.get(HOLDER)
    return None if found is None else Holder.model_validate(found)
