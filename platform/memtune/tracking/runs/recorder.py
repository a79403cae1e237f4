"""The recorder: runs, reports and files on their way to the tracking store, off the training path.

One experiment per corpus, one run per study, one nested run per trial, found again by its identity. Calls
return at once unless the queue is full; a thread writes to the store in few requests and retries while the
store is unavailable. Nothing is lost and nothing is written twice, also when a study is resumed after its
driver was killed.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from memtune.errors import StudyError, TrackingError
from memtune.retry import Backoff
from memtune.tracking import mlflow_connection
from memtune.tracking.mlflow_connection import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from memtune.tracking.runs import run_tags
from memtune.tracking.runs.run_store import CorpusInput, RecordedTrial, RunKey
from memtune.tracking.runs.run_writer import RunCommand, RunWriter
from memtune.trial_state import TrialEnd, TrialState

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Key = TypeVar("Key", bound=Hashable)
Message = TypeVar("Message")

MAX_WAITING_COMMANDS = 10_000
"""About 20 MB: the reports of 1,000 to 2,000 short trials."""
MAX_DOUBTFUL_ATTEMPTS = 12
"""Attempts after an error that may be permanent or transient; the pauses between them add up to 40 s."""
PROGRESS_SECONDS = 10.0

logger = logging.getLogger(__name__)


class DeliveryQueue(Generic[Key, Message]):
    """Queues by key, emptied by a thread.

    `deliver(key, commands)` carries out commands from the left and removes each once it is done; when it
    raises, the remaining commands are retried with growing pauses. The leftmost command is dropped and logged
    as an error at once if `is_permanent(error)`, and after MAX_DOUBTFUL_ATTEMPTS attempts if
    `is_doubtful(error)`.
    """

    def __init__(
        self,
        deliver: Callable[[Key, deque[Message]], None],
        is_permanent: Callable[[Exception], bool],
        is_doubtful: Callable[[Exception], bool] = lambda error: False,
        capacity: int = MAX_WAITING_COMMANDS,
    ) -> None:
        self._deliver = deliver
        self._is_permanent = is_permanent
        self._is_doubtful = is_doubtful
        self._capacity = capacity
        self._queues: dict[Key, deque[Message]] = {}
        self._taken: deque[Message] = deque()
        self._put_count = 0
        self._busy = False
        self._outage = ""
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._deliver_until_closed, name="memtune-tracking", daemon=True
        )
        self._thread.start()

    def put(self, key: Key, *commands: Message) -> None:
        """Add commands to the key's queue; wait while the queues are full.

        Waiting bounds the memory and loses nothing: training runs in other processes meanwhile.
        """
        with self._changed:
            if self._count_waiting() >= self._capacity:
                logger.warning(
                    "tracking is behind: the search waits until half of %s entries are recorded",
                    f"{self._count_waiting():,}",
                )
                # Not until one is, so that the caller is not woken for every command.
                while self._count_waiting() > self._capacity // 2 and not self._closing.is_set():
                    self._changed.wait(1.0)
            self._queues.setdefault(key, deque()).extend(commands)
            self._put_count += len(commands)
            self._changed.notify_all()

    def flush(self, stall_seconds: float) -> bool:
        """Wait until everything is delivered; return False after `stall_seconds` without progress.

        Logs every PROGRESS_SECONDS the number of commands left and, in an outage, its reason.
        """
        with self._changed:
            delivered, stalled_at = self._count_delivered(), time.monotonic() + stall_seconds
            progress_at = time.monotonic() + PROGRESS_SECONDS
            while self._queues or self._busy:
                if time.monotonic() >= stalled_at:
                    return False
                self._changed.wait(min(1.0, stalled_at - time.monotonic()))
                if self._count_delivered() > delivered:
                    delivered, stalled_at = self._count_delivered(), time.monotonic() + stall_seconds
                if time.monotonic() >= progress_at:
                    count, outage = f"{self._count_waiting():,}", f": {self._outage}" if self._outage else ""
                    logger.warning("recording: %s entries left%s", count, outage)
                    progress_at += PROGRESS_SECONDS
            return True

    def close(self, stall_seconds: float) -> bool:
        """Flush, then end the thread; return whether everything was delivered."""
        delivered = self.flush(stall_seconds)
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(MAX_PAUSE_SECONDS if delivered else FIRST_PAUSE_SECONDS)
        return delivered

    def abandon(self) -> None:
        """Deliver nothing more and release everyone who waits."""
        with self._changed:
            self._closing.set()
            self._queues.clear()
            self._changed.notify_all()

    def _count_waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values()) + len(self._taken)

    def _count_delivered(self) -> int:
        return self._put_count - self._count_waiting()

    def _deliver_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queues or self._closing.is_set())
                if self._closing.is_set():
                    return
                key = next(iter(self._queues))
                self._busy = True
                self._taken = self._queues.pop(key)
            self._deliver_all(key, self._taken)
            with self._changed:
                self._busy = False
                self._taken = deque()
                self._changed.notify_all()

    def _deliver_all(self, key: Key, commands: deque[Message]) -> None:
        """Deliver until nothing is left or the queue closes; log one warning per outage.

        Not `memtune.retry.retry`: a permanent error drops one command, and the others are delivered.
        """
        backoff, failed_since, attempts = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS), None, 0
        while commands and not self._closing.is_set():
            left = len(commands)
            try:
                self._deliver(key, commands)
            except Exception as error:
                attempts = attempts + 1 if len(commands) == left and self._is_doubtful(error) else 0
                if self._is_permanent(error) or attempts >= MAX_DOUBTFUL_ATTEMPTS:
                    commands.popleft()
                    logger.error("an entry of %s was not recorded: %s", key, error)
                    backoff.reset()
                    attempts = 0
                    continue
                if failed_since is None:
                    failed_since, self._outage = time.monotonic(), mlflow_connection.summarize_error(error)
                    logger.warning("tracking is unavailable, entries are kept and retried: %s", self._outage)
                self._closing.wait(backoff.next_pause())
        self._outage = ""
        if failed_since is not None and not commands:
            logger.warning("tracking is available again after %.0f s", time.monotonic() - failed_since)


class Recorder:
    """Records one study on a corpus's experiment. Thread-safe; also a context manager that closes itself.

    `guard` is called before each request; when it raises a StudyError (another driver has the study), nothing
    more is sent. Raises TrackingError when the store's URI is invalid; a server that does not answer is no
    error here, see `check_tracking`.
    """

    def __init__(self, tracking_uri: str, corpus: str, guard: Callable[[], None] = lambda: None) -> None:
        self.tracking_uri = tracking_uri
        self.experiment = mlflow_connection.make_experiment_name(corpus)
        self._study = run_tags.NO_STUDY
        self._started: set[RunKey] = set()
        client = cast("MlflowClient", _GuardedClient(mlflow_connection.connect(tracking_uri), guard))
        self._runs = RunWriter(client, tracking_uri, self.experiment)
        self._settings = ExitStack()
        self._settings.enter_context(mlflow_connection.request_settings)
        self._delivery_queue: DeliveryQueue[RunKey, RunCommand] = DeliveryQueue(
            self._deliver, mlflow_connection.is_permanent, mlflow_connection.is_database_refusal
        )

    def start_study(
        self,
        study: str,
        name: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        dataset: CorpusInput | None = None,
        description: str = "",
    ) -> None:
        """Create or reopen the study's run; trials started from now on nest in it.

        `description` is Markdown; `record_conclusion` replaces it.
        """
        self._study = study
        self.start_trial(None, name, parameters, tags, dataset, description=description)

    def start_trial(
        self,
        identity: str | None,
        name: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        dataset: CorpusInput | None = None,
        max_tokens: int | None = None,
        description: str = "",
    ) -> None:
        """Create or reopen the trial's run; without an identity, the study's.

        `parameters` is the trial's configuration, nested or flat; `tags` (family, protocol, space, ...) are
        stored as `memtune.<name>`. Validations that the store holds beyond `max_tokens` are dropped.
        `description` is Markdown, shown below the trial's status.
        """
        opening = partial(
            self._runs.start_run,
            name=name,
            time_ms=_read_clock_ms(),
            parameters=dict(parameters),
            tags=dict(tags or {}),
            dataset=dataset,
            max_tokens=max_tokens,
            description=description,
        )
        self._started.add(RunKey(self._study, identity))
        self._enqueue(identity, opening)

    def log_reports(self, identity: str | None, reports: Iterable[object]) -> None:
        """Record each report's numbers at its `tokens`; a step that is already recorded stays as it is.

        Without an identity they are figures of the study, at the tokens that its trials have trained on. At
        tokens for which one is recorded, the new value counts.
        """
        log = partial(self._runs.log_report, time_ms=_read_clock_ms())
        self._enqueue(identity, *(partial(log, report=report) for report in reports))

    def log_files(self, identity: str | None, files: Mapping[str, bytes | str | Path]) -> None:
        """Store artifacts by relative name: bytes, a text, or the current content of a path.

        Without an identity they are those of the study's run.
        """
        contents = {name: _read_content(file) for name, file in files.items()}
        self._enqueue(identity, partial(self._runs.write_files, contents=contents))

    def finish_trial(
        self,
        identity: str | None,
        state: TrialState,
        end: TrialEnd | None = None,
        validated_tokens: int | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """End the trial's run, or without an identity the study's, and store figures of the whole trial.

        `validated_tokens` are those at its last report with a validation, see `list_recorded_trials`.
        """
        ending = partial(
            self._runs.end_run,
            time_ms=_read_clock_ms(),
            state=state,
            end=end,
            validated_tokens=validated_tokens,
            figures=dict(figures or {}),
        )
        self._enqueue(identity, ending)

    def list_recorded_trials(self) -> dict[str, RecordedTrial]:
        """The study's trials whose end the store holds, by identity.

        A trial's end is written after its whole curve. Waits for the store, up to 60 s while it does not
        answer; then raises TrackingError.
        """
        with mlflow_connection.translate_mlflow_errors(self.tracking_uri):
            return mlflow_connection.retry_while_unavailable(lambda: self._runs.list_recorded(self._study))

    def reconcile(self, state_by_trial: Mapping[str, TrialState]) -> None:
        """Make the store agree with a study that was resumed after a crash; call it before any trial starts.

        `state_by_trial` has the state of each ended trial by identity. Each trial keeps one run: metrics of
        a duplicate run move to it and the duplicate is deleted. A run in status RUNNING whose trial has not
        ended becomes KILLED; `start_trial` reopens it.
        """
        states = dict(state_by_trial)
        reconciling = partial(self._runs.reconcile_runs, state_by_trial=states, time_ms=_read_clock_ms())
        self._enqueue(None, reconciling)

    def flush(self, stall_seconds: float) -> bool:
        """Wait until everything is recorded; return False after `stall_seconds` without progress."""
        return self._delivery_queue.flush(stall_seconds)

    def close(self, stall_seconds: float = 60.0) -> bool:
        """Flush and end the thread; return whether everything was recorded."""
        with self._settings:
            return self._delivery_queue.close(stall_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _deliver(self, key: RunKey, commands: deque[RunCommand]) -> None:
        try:
            self._runs.execute(key, commands)
        except StudyError:
            self._delivery_queue.abandon()

    def _enqueue(self, identity: str | None, *commands: RunCommand) -> None:
        key = RunKey(self._study, identity)
        if key not in self._started:
            raise TrackingError(f"{key} was not started; call start_trial or start_study first")
        self._delivery_queue.put(key, *commands)


def _read_clock_ms() -> int:
    return round(1000 * time.time())


class _GuardedClient:
    """A client of MLflow that calls `guard` before each request.

    One delivery sends many requests. A driver that was stopped between two of them and continues after it
    lost the study must not send the rest.
    """

    def __init__(self, client: "MlflowClient", guard: Callable[[], None]) -> None:
        self._client, self._guard = client, guard

    def __getattr__(self, name: str) -> Any:
        self._guard()
        return getattr(self._client, name)


def _read_content(file: bytes | str | Path) -> bytes:
    if isinstance(file, Path):
        return file.read_bytes()
    return file.encode() if isinstance(file, str) else file
