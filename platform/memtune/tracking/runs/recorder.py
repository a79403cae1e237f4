"""The recorder: runs, reports and files on their way to the tracking store, off the training path.

One experiment per corpus, one run per study, one nested run per trial, found again by its identity. Calls
return at once unless the queue is full; a thread writes to the store in few requests and retries while the
store is unavailable. Nothing is lost and nothing is written twice, also when a study is resumed after its
driver was killed.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from memtune.errors import StudyError, TrackingError
from memtune.tracking.code_version import read_code_version
from memtune.tracking.mlflow_connection import (
    connect,
    is_database_refusal,
    is_permanent,
    make_experiment_name,
    retry_while_unavailable,
    translate_mlflow_errors,
)
from memtune.tracking.runs.delivery_queue import DeliveryQueue
from memtune.tracking.runs.run_commands import (
    CODE_TAG,
    NO_STUDY,
    DrawCurve,
    EndRun,
    LogReport,
    ReconcileRuns,
    RunCommand,
    RunKey,
    StartRun,
    WriteFiles,
)
from memtune.tracking.runs.run_entries import CorpusInput
from memtune.tracking.runs.run_store import RecordedTrial
from memtune.tracking.runs.run_writer import DrawFigures, RunWriter
from memtune.trial_state import TrialEnd, TrialState

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

__all__ = ["Recorder"]


READ_SECONDS = 60.0


class Recorder:
    """Records one study on a corpus's experiment. Thread-safe; also a context manager that closes itself.

    `clock` gives seconds since the epoch. `guard` is called before each request; when it raises a StudyError
    (another driver has the study), nothing more is sent. `draw_figures` draws the figures of each
    trial that ends. Raises TrackingError when the store's URI is invalid; a server that does not answer is no
    error here, see `check_tracking`.
    """

    def __init__(
        self,
        tracking_uri: str,
        corpus: str,
        clock: Callable[[], float] = time.time,
        guard: Callable[[], None] = lambda: None,
        draw_figures: DrawFigures = lambda name, objective, metrics: {},
    ) -> None:
        self.tracking_uri = tracking_uri
        self.experiment = make_experiment_name(corpus)
        self._clock = clock
        self._study = NO_STUDY
        self._started: set[RunKey] = set()
        client = cast("MlflowClient", _GuardedClient(connect(tracking_uri), guard))
        self._runs = RunWriter(client, tracking_uri, self.experiment, draw_figures)
        self._delivery_queue: DeliveryQueue[RunKey, RunCommand] = DeliveryQueue(
            self._deliver, is_permanent, is_database_refusal
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
        opening = StartRun(
            name, self._read_clock_ms(), dict(parameters), _build_tags(tags), dataset, description=description
        )
        self._enqueue_start(RunKey(study), opening)

    def start_trial(
        self,
        identity: str,
        name: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        dataset: CorpusInput | None = None,
        max_tokens: int | None = None,
        description: str = "",
    ) -> None:
        """Create or reopen the trial's run.

        `parameters` is the trial's configuration, nested or flat; `tags` (family, protocol, space, ...) are
        stored as `memtune.<name>`. Validations that the store holds beyond `max_tokens` are dropped.
        `description` is Markdown, shown below the trial's status.
        """
        opening = StartRun(
            name, self._read_clock_ms(), dict(parameters), _build_tags(tags), dataset, max_tokens, description
        )
        self._enqueue_start(RunKey(self._study, identity), opening)

    def log_reports(self, identity: str, reports: Iterable[object]) -> None:
        """Record each report's numbers at its `tokens`; a step that is already recorded stays as it is."""
        now = self._read_clock_ms()
        self._enqueue(identity, *(LogReport(now, report) for report in reports))

    def log_files(self, identity: str, files: Mapping[str, bytes | str | Path]) -> None:
        """Store artifacts by relative name: bytes, a text, or the current content of a path."""
        self._enqueue(identity, WriteFiles({name: _read_content(file) for name, file in files.items()}))

    def finish_trial(
        self,
        identity: str,
        state: TrialState,
        end: TrialEnd | None = None,
        validated_tokens: int | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """End the trial's run and store its figures, with further ones of the whole trial.

        `validated_tokens` are those at its last report with a validation, see `list_recorded_trials`.
        """
        ending = EndRun(state, end, self._read_clock_ms(), validated_tokens, dict(figures or {}))
        self._enqueue(identity, DrawCurve(), ending)

    def list_recorded_trials(self) -> dict[str, RecordedTrial]:
        """The study's trials whose end the store holds, by identity.

        A trial's end is written after its whole curve. Waits for the store, up to 60 s while it does not
        answer; then raises TrackingError.
        """
        with translate_mlflow_errors(self.tracking_uri):
            return retry_while_unavailable(lambda: self._runs.list_recorded(self._study), READ_SECONDS)

    def log_study_figures(self, figures: Mapping[str, float], tokens: int) -> None:
        """Record figures of the whole study, at the tokens that its trials have trained on.

        At tokens for which a figure is recorded, the new value counts.
        """
        self._enqueue(None, LogReport(self._read_clock_ms(), {"tokens": tokens, **figures}))

    def log_study_files(self, files: Mapping[str, bytes | str | Path]) -> None:
        """Store artifacts of the study's run by relative name, as `log_files` does."""
        self._enqueue(None, WriteFiles({name: _read_content(file) for name, file in files.items()}))

    def finish_study(self, state: TrialState = TrialState.COMPLETE) -> None:
        """End the study's run."""
        self._enqueue(None, EndRun(state, None, self._read_clock_ms()))

    def reconcile(self, state_by_trial: Mapping[str, TrialState]) -> None:
        """Make the store agree with a study that was resumed after a crash; call it before any trial starts.

        `state_by_trial` has the state of each ended trial by identity. Each trial keeps one run: metrics of
        a duplicate run move to it and the duplicate is deleted. A run in status RUNNING whose trial has not
        ended becomes KILLED; `start_trial` reopens it.
        """
        self._enqueue(None, ReconcileRuns(dict(state_by_trial), self._read_clock_ms()))

    @property
    def problems(self) -> list[str]:
        """Commands that the store refused permanently, for instance because a run was deleted meanwhile."""
        return list(self._delivery_queue.problems)

    def flush(self, stall_seconds: float) -> bool:
        """Wait until everything is recorded; return False after `stall_seconds` without progress."""
        return self._delivery_queue.flush(stall_seconds)

    def close(self, stall_seconds: float = 60.0) -> bool:
        """Flush and end the thread; return whether everything was recorded."""
        return self._delivery_queue.close(stall_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enqueue_start(self, key: RunKey, command: StartRun) -> None:
        self._started.add(key)
        self._delivery_queue.put(key, command)

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

    def _read_clock_ms(self) -> int:
        return round(1000 * self._clock())


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


def _build_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    named = {f"memtune.{name}": value for name, value in (tags or {}).items()}
    return {**named, CODE_TAG: read_code_version()}


def _read_content(file: bytes | str | Path) -> bytes:
    if isinstance(file, Path):
        return file.read_bytes()
    return file.encode() if isinstance(file, str) else file
