"""The runs of one experiment, written as commands arrive.

Every command may be repeated after a failure half-way: a run is looked for before it is created, and a metric
the store already holds at a step is not written again.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from memtune.objective import Objective, better
from memtune.tracking import entries, store
from memtune.tracking.commands import (
    OBJECTIVE,
    PARENT,
    REASON,
    Command,
    Curve,
    Ending,
    Files,
    LoggedReport,
    Opening,
    Reconciliation,
    RunKey,
)
from memtune.tracking.connection import ensure_experiment
from memtune.tracking.figures import learning_curve, trade_off

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

__all__ = ["Runs", "best_metric"]


def best_metric(objective: Objective) -> str:
    """The metric that holds a run's best validation figure: MLflow's tables show a metric's last value."""
    return f"best_valid_{objective}"


@dataclass
class _OpenRun:
    """A run being written: its id, its name, what its trials compare by, by metric the steps that the store
    holds, and reports' tags."""

    run_id: str
    name: str
    objective: Objective = "perplexity"
    known: dict[str, set[int]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
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
            store.write_files(self._client, self._open[key].run_id, command.contents)
        elif isinstance(command, Curve):
            self._draw(key)
        elif isinstance(command, Ending):
            run = self._open[key]
            store.end_run(self._client, run.run_id, command)
            run.known, run.doubtful = {}, True  # should more come, the store is asked again
        elif isinstance(command, Reconciliation):
            store.reconcile(self._client, self.experiment_id(), key.study, command.ended, command.time)
        return 1

    def _start(self, key: RunKey, opening: Opening) -> None:
        """Create the run, or find it and let it run again with what the store already holds of it."""
        tags = {**opening.tags, **key.tags()}
        parent = self._open.get(RunKey(key.study)) if key.trial is not None else None
        if parent is not None:
            tags[PARENT] = parent.run_id
        found = store.find_runs(self._client, self.experiment_id(), key.tags())
        if found:
            run = store.merged(self._client, found)
            self._client.update_run(run.info.run_id, status="RUNNING", name=opening.name)
        else:
            run = self._client.create_run(self.experiment_id(), opening.time, tags, opening.name)
        self._describe(run, opening, {**tags, REASON: "", "mlflow.note.content": ""})
        objective: Objective = "accuracy" if tags.get(OBJECTIVE) == "accuracy" else "perplexity"
        self._open[key] = _OpenRun(run.info.run_id, opening.name, objective, doubtful=bool(found))

    def _describe(self, run: "Run", opening: Opening, tags: dict[str, str]) -> None:
        """Tags, the parameters not yet there (MLflow lets none change) and the dataset."""
        run_id = run.info.run_id
        self._client.log_batch(run_id, tags=entries.tags(tags), synchronous=True)
        fresh = [p for p in entries.parameters(opening.parameters) if p.key not in run.data.params]
        for some in store.chunks(fresh, entries.PARAMETERS_PER_BATCH):
            self._client.log_batch(run_id, params=some, synchronous=True)
        if opening.dataset is not None:
            self._client.log_inputs(run_id, [entries.dataset_input(opening.dataset)])

    def _write(self, key: RunKey, reports: Sequence[Command]) -> int:
        """Log every number of the reports that the store does not hold yet; how many reports these were."""
        run = self._opened(key)
        metrics = list(entries.metrics((r.time, r.report) for r in reports if isinstance(r, LoggedReport)))
        store.write_metrics(self._client, run.run_id, metrics, run.known)
        self._tag(run, reports)
        return len(reports)

    def _tag(self, run: _OpenRun, reports: Sequence[Command]) -> None:
        """Set what reports say in words, where it is new."""
        tags = {
            f"memtune.{name}": text
            for logged in reports
            if isinstance(logged, LoggedReport)
            for name, text in entries.report_texts(logged.report).items()
        }
        if not tags.items() <= run.tags.items():
            self._client.log_batch(run.run_id, tags=entries.tags(tags), synchronous=True)
            run.tags.update(tags)

    def _opened(self, key: RunKey) -> _OpenRun:
        """The open run, after asking the store what it holds where that is in doubt."""
        run = self._open[key]
        if run.doubtful:
            run.known = store.known_steps(self._client, self._client.get_run(run.run_id))
            run.doubtful = False
        return run

    def _draw(self, key: RunKey) -> None:
        """Store the learning curve, and the best validation figure as a metric of its own."""
        run = self._opened(key)
        train, valid = (self._points(run, f"{split}_{run.objective}") for split in ("train", "valid"))
        curve = learning_curve(run.name, run.objective, train, valid)
        figures = {"learning_curve.png": curve}
        if run.objective == "accuracy" and valid:
            perplexities = self._points(run, "valid_perplexity")
            figures["accuracy_by_perplexity.png"] = trade_off(run.name, perplexities, valid)
        store.write_files(self._client, run.run_id, figures)
        self._note_best(run, valid)

    def _note_best(self, run: _OpenRun, valid: Sequence[tuple[int, float]]) -> None:
        """Log the best validation figure at its tokens."""
        if valid:
            choose = max if better(run.objective) == "higher" else min
            tokens, figure = choose(valid, key=lambda point: point[1])
            best = {"tokens": tokens, best_metric(run.objective): figure}
            metrics = list(entries.metrics([(round(1000 * time.time()), best)]))
            store.write_metrics(self._client, run.run_id, metrics, run.known)

    def _points(self, run: _OpenRun, metric: str) -> list[tuple[int, float]]:
        """(tokens seen, value) of a metric as the store holds it, in order."""
        if metric not in run.known:
            return []
        return sorted((m.step, m.value) for m in self._client.get_metric_history(run.run_id, metric))
