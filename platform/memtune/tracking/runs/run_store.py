"""Runs in the store: searches by tag, batches of entries, final status, merging of duplicate runs.

Parameters are written as JSON (`true`, `0.1`, `null`; text unchanged), so that `parse_parameter` returns a
typed value. A report's step is its number of tokens seen; its texts become tags, the last of each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from memtune.storage.local_files import open_scratch_folder
from memtune.tracking.mlflow_connection import read_pages
from memtune.tracking.runs import run_tags
from memtune.trial_state import TrialEnd, TrialState
from memtune.values import Value, flatten

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric, Param, Run, RunTag
    from mlflow.tracking import MlflowClient


@dataclass(frozen=True)
class RunKey:
    """The identity of a run: the study, and the trial's identity unless it is the study's run."""

    study: str
    trial: str | None = None

    def tags(self) -> dict[str, str]:
        """The tags by which the run is found again."""
        if self.trial is None:
            return {run_tags.STUDY: self.study, run_tags.ROLE: "study"}
        return {run_tags.STUDY: self.study, run_tags.ROLE: "trial", run_tags.TRIAL: self.trial}


class CorpusInput(Value):
    """The corpus that a trial trains on, as lineage: its store, its digest, and its counts per split."""

    name: str
    digest: str
    store: str
    vocabulary_size: int
    splits: dict[str, dict[str, int]]


T = TypeVar("T")

LoggedValues = dict[str, dict[int, float]]
"""Value by step by metric name."""

RUN_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.STOPPED: "FINISHED",
    TrialState.PAUSED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.INTERRUPTED: "KILLED",
}
"""MLflow's run status by the state of a trial that no worker trains."""
END_TAGS = (run_tags.STOP_REASON, run_tags.REASON, run_tags.VALIDATED_TOKENS)
"""Tags of an ended run, each where there is something to say."""
MAX_STATUS_CHARACTERS = 200
MAX_PARAMETER_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 8000
MAX_DIGEST_CHARACTERS = 36
METRICS_PER_BATCH, PARAMETERS_PER_BATCH = 800, 100
"""MLflow accepts 1,000 entries per request, at most 100 of them parameters and 100 tags."""
TRUNCATION_MARK = "... (truncated)"
VALIDATION_METRICS = ("valid_loss", "valid_accuracy")


@dataclass(frozen=True)
class RecordedTrial:
    """How a trial ended, and the tokens at its last report with a validation."""

    state: TrialState
    validated_tokens: int


def find_runs(client: "MlflowClient", experiments: Sequence[str], tags: dict[str, str]) -> list["Run"]:
    """Every run of some experiments, by id, with these tags that is not deleted, oldest first."""
    condition = " AND ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    order = ["attributes.start_time ASC"]
    return read_pages(
        lambda token: client.search_runs(list(experiments), condition, order_by=order, page_token=token)
    )


def find_corpus_runs(client: "MlflowClient", corpus: str, tags: dict[str, str]) -> list["Run"]:
    """The runs with these tags of a corpus's experiment; none where nothing is recorded for the corpus."""
    experiment = client.get_experiment_by_name(corpus)
    return find_runs(client, [experiment.experiment_id], tags) if experiment else []


@dataclass
class PendingEntries:
    """Entries of one run that go to the store together."""

    parameters: list["Param"] = field(default_factory=list)
    metrics: list["Metric"] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def send(self, client: "MlflowClient", run_id: str) -> None:
        """Write everything, in as few requests as MLflow's limits allow."""
        parameters = chunks(self.parameters, PARAMETERS_PER_BATCH)
        metrics = chunks(self.metrics, METRICS_PER_BATCH)
        tags = [to_tags(self.tags)] if self.tags else []
        for batch in zip_longest(metrics, parameters, tags, fillvalue=()):
            client.log_batch(run_id, *batch, synchronous=True)
        if self.files:
            with open_scratch_folder() as folder:
                for name, content in self.files.items():
                    path = folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                client.log_artifacts(run_id, str(folder))


def read_logged_values(client: "MlflowClient", run: "Run") -> LoggedValues:
    """What the store holds of every metric of a run; of several values at a step, the last one."""
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {
        name: {metric.step: metric.value for metric in sorted(history, key=lambda metric: metric.timestamp)}
        for name, history in histories.items()
    }


def describe_state(state: TrialState, end: TrialEnd | None, tokens: int, description: str) -> dict[str, str]:
    """The tags that say how a run stands, or how and why it ended, at `tokens`.

    The status is the first paragraph of the description in the pages, above the trial's own.
    """
    status = describe_status(state, end, tokens)
    tags = {
        run_tags.STATE: state.value,
        run_tags.STATUS: status.partition("\n")[0][:MAX_STATUS_CHARACTERS],
        run_tags.NOTE: f"{status}\n\n{description}" if description else status,
    }
    if end is not None:
        tags |= {run_tags.STOP_REASON: end.reason.value, run_tags.REASON: str(end)}
    return tags


def drop_end_tags(client: "MlflowClient", run: "Run") -> None:
    """Remove from a run how it ended before."""
    for name in END_TAGS:
        if name in run.data.tags:
            client.delete_tag(run.info.run_id, name)


def describe_status(state: TrialState, end: TrialEnd | None, tokens: int) -> str:
    """How a trial ended, for readers, with the tokens at its last report.

    >>> describe_status(TrialState.STOPPED, None, 300_000)
    'stopped at 300,000 tokens'
    """
    reason = f": {end.detail}" if end is not None and end.detail else ""
    if state is TrialState.COMPLETE:
        return f"{state.label}{reason}"
    place = f" at {tokens:,} tokens" if tokens else ""
    if state is TrialState.FAILED:
        return f"failed{place}: {end or 'no reason is recorded'}"
    return f"{state.value}{place}{reason}"


def read_description(tags: Mapping[str, str]) -> str:
    """What a run is, from its description in the pages, below its status."""
    return tags.get(run_tags.NOTE, "").partition("\n\n")[2]


def drop_surplus(client: "MlflowClient", run: "Run", max_tokens: int) -> "Run":
    """The run without validations at more tokens, of a worker that outlived its driver.

    Where there are such, it is a copy of the run in its place: MLflow cannot delete metrics.
    """
    info, tags = run.info, run.data.tags
    names = [name for name in VALIDATION_METRICS if name in run.data.metrics]
    if all(m.step <= max_tokens for name in names for m in client.get_metric_history(info.run_id, name)):
        return run
    copy = client.create_run(info.experiment_id, info.start_time, tags, info.run_name)
    batch = PendingEntries()
    for name in run.data.metrics:
        history = client.get_metric_history(info.run_id, name)
        batch.metrics += [metric for metric in history if metric.step <= max_tokens]
    batch.send(client, copy.info.run_id)
    client.delete_run(info.run_id)
    return client.get_run(copy.info.run_id)


def merge_runs(client: "MlflowClient", runs: Sequence["Run"]) -> "Run":
    """The first of the runs, with every metric that only the others have; the others are deleted."""
    kept, *duplicates = runs
    known = read_logged_values(client, kept) if duplicates else {}
    for duplicate in duplicates:
        batch = PendingEntries()
        for name in duplicate.data.metrics:
            values = known.setdefault(name, {})
            for metric in client.get_metric_history(duplicate.info.run_id, name):
                if metric.step not in values:
                    values[metric.step] = metric.value
                    batch.metrics.append(metric)
        batch.send(client, kept.info.run_id)
        client.delete_run(duplicate.info.run_id)
    return kept


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in pieces of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def format_parameter(value: object) -> str:
    """`value` as MLflow stores it; texts longer than MLflow's limit end with a mark."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return truncate_text(text, MAX_PARAMETER_CHARACTERS)


def parse_parameter(text: str) -> Any:
    """The typed value of a stored parameter; text that is not JSON stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def truncate_text(text: str, length: int) -> str:
    """`text` within `length` characters, its end replaced by a mark when it was longer."""
    return text if len(text) <= length else text[: length - len(TRUNCATION_MARK)] + TRUNCATION_MARK


def read_report(report: object) -> tuple[int, dict[str, float], dict[str, str]]:
    """(tokens seen, every other number of the report by name, every text by name).

    Flags and unset values are left out, and the reason of an end, which is recorded with the end. A figure
    that the report does not know is not recorded as its default.
    """
    fields = report.model_dump(exclude_unset=True) if isinstance(report, BaseModel) else dict(report)  # type: ignore[call-overload]
    tokens, _ = int(fields.pop("tokens")), fields.pop("reason", None)
    numbers = {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return tokens, numbers, {name: text for name, text in fields.items() if isinstance(text, str)}


def to_params(nested: Mapping[str, Any]) -> list["Param"]:
    """The leaves of a configuration by dotted name, without those that are None.

    None says that a run does not have the field, such as epochs where tokens end a training.
    """
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.entities import Param

    leaves = ((name, value) for name, value in flatten(nested) if value is not None)
    return [Param(name, format_parameter(value)) for name, value in leaves]


def to_tags(named: Mapping[str, object]) -> list["RunTag"]:
    """Tags as given, cut to MLflow's limit."""
    from mlflow.entities import RunTag

    return [RunTag(name, truncate_text(str(value), MAX_TAG_CHARACTERS)) for name, value in named.items()]


def to_dataset_input(corpus: CorpusInput) -> "DatasetInput":
    """The corpus as an input of a run; MLflow's digest holds 36 characters, the source all of it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=corpus.name,
        digest=corpus.digest[:MAX_DIGEST_CHARACTERS],
        source_type="memtune",
        source=json.dumps({"uri": corpus.store, "corpus": corpus.name, "digest": corpus.digest}),
        schema=json.dumps({"vocabulary_size": corpus.vocabulary_size}),
        profile=json.dumps(corpus.splits),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "train")])
