"""The recorder: runs, reports and files on their way to the tracking store, off the training path.

One experiment per corpus, one run per study, one nested run per trial, found again by its identity. Every
call returns at once; a thread writes to the store, in few requests, and keeps trying while the store is away.
Nothing is lost by that and nothing is written twice, also when a study goes on after its driver was killed.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from memtune.errors import StudyError, TrackingError
from memtune.tracking.commands import (
    Command,
    Curve,
    Ending,
    Files,
    LoggedReport,
    Opening,
    Reconciliation,
    RunKey,
)
from memtune.tracking.connection import connect, experiment_name, is_hopeless
from memtune.tracking.entries import CorpusInput
from memtune.tracking.post import Post
from memtune.tracking.runs import Runs
from memtune.tracking.version import code_version

__all__ = ["ALONE", "Recorder", "Status"]

Status = Literal["FINISHED", "FAILED", "KILLED"]

ALONE = "alone"  # the study of trials that belong to none


class Recorder:
    """Records one study on a corpus's experiment. Thread-safe; also a context manager that closes itself.

    `clock` gives seconds since the epoch. `guard` is called before each delivery; when it raises a StudyError
    (another driver has the study), nothing more is delivered. Raises TrackingError when the store's URI makes
    no sense; a server that does not answer is no error here, see `check_tracking`.
    """

    def __init__(
        self,
        tracking_uri: str,
        corpus: str,
        clock: Callable[[], float] = time.time,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self.tracking_uri = tracking_uri
        self.experiment = experiment_name(corpus)
        self._clock = clock
        self._study = ALONE
        self._started: set[RunKey] = set()
        self._guard = guard
        self._runs = Runs(connect(tracking_uri), tracking_uri, self.experiment)
        self._post: Post[RunKey, Command] = Post(self._deliver, is_hopeless)

    def start_study(
        self, study: str, name: str, parameters: Mapping[str, Any], tags: Mapping[str, str] | None = None
    ) -> None:
        """Open the study's run, or go on with the one there is; trials started from now on nest in it."""
        self._study = study
        opening = Opening(name, self._now(), dict(parameters), _tags(tags))
        self._start(RunKey(study), opening)

    def start_trial(
        self,
        identity: str,
        name: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        dataset: CorpusInput | None = None,
    ) -> None:
        """Open the trial's run, or go on with the one there is.

        `parameters` is the trial's configuration, nested or flat; `tags` (family, protocol, space, ...) are
        stored as `memtune.<name>`.
        """
        opening = Opening(name, self._now(), dict(parameters), _tags(tags), dataset)
        self._start(RunKey(self._study, identity), opening)

    def log_reports(self, identity: str, reports: Iterable[object]) -> None:
        """Record each report's numbers at its `tokens`; a step that is already recorded stays as it is."""
        now = self._now()
        self._put(identity, *(LoggedReport(now, report) for report in reports))

    def log_files(self, identity: str, files: Mapping[str, bytes | str | Path]) -> None:
        """Store artifacts by relative name: bytes, a text, or the content that a path has now."""
        self._put(identity, Files({name: _content(file) for name, file in files.items()}))

    def finish_trial(self, identity: str, status: Status, reason: str = "") -> None:
        """End the trial's run, with its learning curve as a figure."""
        self._put(identity, Curve(), Ending(status, reason, self._now()))

    def finish_study(self, status: Status = "FINISHED", reason: str = "") -> None:
        """End the study's run."""
        self._put(None, Ending(status, reason, self._now()))

    def reconcile(self, ended: Mapping[str, Status]) -> None:
        """Make the store agree with the study just started, which goes on after a crash, before any trial.

        `ended` gives the trials that the study knows to have ended, by identity. Each trial keeps one run:
        what a double holds is moved and the double deleted. A run that claims to run and did not end becomes
        KILLED; `start_trial` lets it run again.
        """
        self._put(None, Reconciliation(dict(ended), self._now()))

    @property
    def problems(self) -> list[str]:
        """What the store refused for good, for instance because a run was deleted meanwhile."""
        return list(self._post.problems)

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything is recorded; whether it is."""
        return self._post.flush(timeout)

    def close(self, timeout: float = 60.0) -> bool:
        """Flush and end the thread; whether everything was recorded."""
        return self._post.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, key: RunKey, opening: Opening) -> None:
        self._started.add(key)
        self._post.put(key, opening)

    def _deliver(self, key: RunKey, commands: deque[Command]) -> None:
        try:
            self._guard()
        except StudyError:
            self._post.abandon()
            return
        self._runs.carry_out(key, commands)

    def _put(self, identity: str | None, *commands: Command) -> None:
        key = RunKey(self._study, identity)
        if key not in self._started:
            raise TrackingError(f"{key} was not started; call start_trial or start_study first")
        self._post.put(key, *commands)

    def _now(self) -> int:
        return round(1000 * self._clock())


def _tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    named = {f"memtune.{name}": value for name, value in (tags or {}).items()}
    return {**named, "memtune.code": code_version()}


def _content(file: bytes | str | Path) -> bytes:
    if isinstance(file, Path):
        return file.read_bytes()
    return file.encode() if isinstance(file, str) else file
