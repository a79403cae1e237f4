"""Runs as the store holds them: found by their tags, read, written to, ended, and made one where doubled."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from memtune.tracking import entries
from memtune.tracking.commands import PARENT, REASON, ROLE, STUDY, TRIAL, Ending, RunKey

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from mlflow.tracking import MlflowClient

__all__ = ["end_run", "find_runs", "known_steps", "merged", "reconcile", "write_files", "write_metrics"]

T = TypeVar("T")


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


def write_metrics(
    client: "MlflowClient", run_id: str, metrics: Sequence["Metric"], known: dict[str, set[int]]
) -> None:
    """Log those metrics whose step is not known yet, each (name, step) once, and note them as known."""
    fresh = {(m.key, m.step): m for m in metrics if m.step not in known.get(m.key, ())}
    for some in chunks(list(fresh.values()), entries.METRICS_PER_BATCH):
        client.log_batch(run_id, metrics=some, synchronous=True)
        for metric in some:
            known.setdefault(metric.key, set()).add(metric.step)


def write_files(client: "MlflowClient", run_id: str, contents: dict[str, bytes]) -> None:
    """Store each content under its relative path among the run's artifacts."""
    with TemporaryDirectory() as folder:
        for name, content in contents.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        client.log_artifacts(run_id, folder)


def end_run(client: "MlflowClient", run_id: str, ending: Ending) -> None:
    """Set the run's final status, with the reason as a tag and where the pages show it."""
    tags = {REASON: ending.reason, "mlflow.note.content": ending.reason}
    client.log_batch(run_id, tags=entries.tags(tags), synchronous=True)
    client.set_terminated(run_id, ending.status, ending.time)


def merged(client: "MlflowClient", runs: Sequence["Run"]) -> "Run":
    """The first of the runs, with every metric that only the others have; the others are deleted."""
    kept, *doubles = runs
    if doubles:
        known = known_steps(client, kept)
        for double in doubles:
            for name in double.data.metrics:
                history = client.get_metric_history(double.info.run_id, name)
                write_metrics(client, kept.info.run_id, history, known)
            client.delete_run(double.info.run_id)
    return kept


def reconcile(
    client: "MlflowClient", experiment_id: str, study: str, ended: dict[str, str], time: int
) -> None:
    """Make the store agree with the study that goes on: one run a trial, none running that does not.

    `ended` maps the identity of a trial to its status; any other run that still claims to run becomes KILLED.
    """
    parents = find_runs(client, experiment_id, RunKey(study).tags())
    parent = merged(client, parents).info.run_id if parents else None
    by_trial = defaultdict(list)
    for run in find_runs(client, experiment_id, {STUDY: study, ROLE: "trial"}):
        by_trial[run.data.tags[TRIAL]].append(run)
    for identity, runs in by_trial.items():
        run = merged(client, runs)
        if parent is not None and run.data.tags.get(PARENT) != parent:
            client.set_tag(run.info.run_id, PARENT, parent)
        _settle(client, run, ended.get(identity), time)


def _settle(client: "MlflowClient", run: "Run", status: str | None, time: int) -> None:
    """Give the run the status its trial ended with, or KILLED when it only claims to run."""
    if status is None and run.info.status == "RUNNING":
        end_run(client, run.info.run_id, Ending("KILLED", "interrupted", time))
    elif status is not None and run.info.status != status:
        client.set_terminated(run.info.run_id, status, run.info.end_time or time)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in pieces of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))
