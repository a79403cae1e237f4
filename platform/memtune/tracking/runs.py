"""Runs on the tracking store: found again by their tags, opened, written to and ended.

Every command here may be repeated after a failure half-way: a run is looked for before it is created, and a
metric the store already holds at a step is not written again.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from memtune.tracking import entries
from memtune.tracking.connection import ensure_experiment
from memtune.tracking.figures import learning_curve

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.tracking import MlflowClient

__all__ = ["Command", "Ending", "Files", "LoggedReport", "Opening", "RunKey", "Runs", "find_runs"]

STUDY = "memtune.study"
TRIAL = "memtune.trial"
ROLE = "memtune.role"
REASON = "memtune.reason"
PARENT = "mlflow.parentRunId"

T = TypeVar("T")


@dataclass(frozen=True)
class RunKey:
    """A run's own name: the study, and the trial's identity unless it is the study's run."""

    study: str
    trial: str | None = None

    def tags(self) -> dict[str, str]:
        """The tags by which the run is found again."""
        if self.trial is None:
            return {STUDY: self.study, ROLE: "study"}
        return {STUDY: self.study, ROLE: "trial", TRIAL: self.trial}


@dataclass(frozen=True)
class Opening:
    """What is known of a run when it starts; `time` in milliseconds since the epoch."""

    name: str
    time: int
    parameters: dict[str, Any]
    tags: dict[str, str]
    dataset: entries.CorpusInput | None = None


@dataclass(frozen=True)
class LoggedReport:
    """One report of a trial, and when it came, in milliseconds since the epoch."""

    time: int
    report: object


@dataclass(frozen=True)
class Files:
    """Artifacts of a run: content by relative path."""

    contents: dict[str, bytes]


@dataclass(frozen=True)
class Ending:
    """How a run ended: FINISHED, FAILED or KILLED, why, and when in milliseconds since the epoch."""

    status: str
    reason: str
    time: int


Command = Opening | LoggedReport | Files | Ending


@dataclass
class _OpenRun:
    """A run being written: its id, its name and, by metric, the steps that the store holds."""

    run_id: str
    name: str
    known: dict[str, set[int]] = field(default_factory=dict)
    doubtful: bool = False  # a request failed: the store may have carried it out all the same


class Runs:
    """The runs of one experiment, written by one thread."""

    def __init__(self, client: "MlflowClient", tracking_uri: str, experiment: str) -> None:
        self._client = client
        self._tracking_uri = tracking_uri
        self._experiment = experiment
        self._experiment_id: str | None = None
        self._open: dict[RunKey, _OpenRun] = {}

    def carry_out(self, key: RunKey, commands: deque[Command]) -> None:
        """Carry out the commands from the left, removing each once done; neighbouring reports go together."""
        while commands:
            reports = list(takewhile(lambda command: isinstance(command, LoggedReport), commands))
            try:
                done = self._write(key, reports) if reports else self._carry_out(key, commands[0])
            except Exception:
                if key in self._open:
                    self._open[key].doubtful = True
                raise
            for _ in range(done):
                commands.popleft()

    def experiment_id(self) -> str:
        """The experiment's id on the store, which creates it when needed."""
        if self._experiment_id is None:
            self._experiment_id = ensure_experiment(self._client, self._tracking_uri, self._experiment)
        return self._experiment_id

    def _carry_out(self, key: RunKey, command: Command) -> int:
        if isinstance(command, Opening):
            self._start(key, command)
        elif isinstance(command, Files):
            self._write_files(self._open[key].run_id, command.contents)
        elif isinstance(command, Ending):
            self._end(key, command)
        return 1

    def _start(self, key: RunKey, opening: Opening) -> None:
        """Create the run, or find it and let it run again with what the store already holds of it."""
        tags = {**opening.tags, **key.tags()}
        parent = self._open.get(RunKey(key.study)) if key.trial is not None else None
        if parent is not None:
            tags[PARENT] = parent.run_id
        found = find_runs(self._client, self.experiment_id(), key.tags())
        if found:
            run = found[0]
            self._client.update_run(run.info.run_id, status="RUNNING", name=opening.name)
        else:
            run = self._client.create_run(self.experiment_id(), opening.time, tags, opening.name)
        self._describe(run, opening, tags)
        self._open[key] = _OpenRun(run.info.run_id, opening.name, known_steps(self._client, run))

    def _describe(self, run: "Run", opening: Opening, tags: dict[str, str]) -> None:
        """Tags, the parameters not yet there (MLflow lets none change) and the dataset."""
        run_id = run.info.run_id
        self._client.log_batch(run_id, tags=entries.tags(tags), synchronous=True)
        fresh = [p for p in entries.parameters(opening.parameters) if p.key not in run.data.params]
        for some in chunks(fresh, entries.PARAMETERS_PER_BATCH):
            self._client.log_batch(run_id, params=some, synchronous=True)
        if opening.dataset is not None:
            self._client.log_inputs(run_id, [entries.dataset_input(opening.dataset)])

    def _write(self, key: RunKey, reports: Sequence[Command]) -> int:
        """Log every number of the reports that the store does not hold yet; how many reports these were."""
        run = self._open[key]
        if run.doubtful:
            run.known = known_steps(self._client, self._client.get_run(run.run_id))
            run.doubtful = False
        metrics = entries.metrics((r.time, r.report) for r in reports if isinstance(r, LoggedReport))
        for some in chunks(_unknown(run, metrics), entries.METRICS_PER_BATCH):
            self._client.log_batch(run.run_id, metrics=some, synchronous=True)
            for metric in some:
                run.known.setdefault(metric.key, set()).add(metric.step)
        return len(reports)

    def _write_files(self, run_id: str, contents: dict[str, bytes]) -> None:
        with TemporaryDirectory() as folder:
            for name, content in contents.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._client.log_artifacts(run_id, folder)

    def _end(self, key: RunKey, ending: Ending) -> None:
        """Draw a trial's learning curve and set the final status, with the reason where the pages show it."""
        run = self._open[key]
        if key.trial is not None:
            curve = learning_curve(run.name, *(self._points(run, name) for name in CURVES))
            self._write_files(run.run_id, {"learning_curve.png": curve})
        tags = {REASON: ending.reason, "mlflow.note.content": ending.reason}
        self._client.log_batch(run.run_id, tags=entries.tags(tags), synchronous=True)
        self._client.set_terminated(run.run_id, ending.status, ending.time)

    def _points(self, run: _OpenRun, metric: str) -> list[tuple[int, float]]:
        """(tokens seen, value) of a metric as the store holds it, in order."""
        if metric not in run.known:
            return []
        return sorted((m.step, m.value) for m in self._client.get_metric_history(run.run_id, metric))


CURVES = ("train_perplexity", "valid_perplexity")


def find_runs(client: "MlflowClient", experiment_id: str, tags: dict[str, str]) -> list["Run"]:
    """Every run with these tags, deleted ones left out, oldest first."""
    condition = " AND ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    order = ["attributes.start_time ASC"]
    found: list[Run] = []
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], condition, order_by=order, page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def known_steps(client: "MlflowClient", run: "Run") -> dict[str, set[int]]:
    """The steps that the store holds of every metric of a run."""
    run_id = run.info.run_id
    return {name: {m.step for m in client.get_metric_history(run_id, name)} for name in run.data.metrics}


def _unknown(run: _OpenRun, metrics: Iterable["Metric"]) -> list["Metric"]:
    """Those metrics that the store does not hold yet, each (name, step) once."""
    fresh = {(m.key, m.step): m for m in metrics if m.step not in run.known.get(m.key, ())}
    return list(fresh.values())


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in pieces of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))
