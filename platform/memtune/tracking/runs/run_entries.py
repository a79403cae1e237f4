"""A run's content as MLflow's parameters, metrics, tags and dataset, within MLflow's limits.

Parameters are written as JSON (`true`, `0.1`, `null`; text unchanged), so that `parse_parameter` returns a
typed value. A report's step is its number of tokens seen; its texts become tags, the last of each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from memtune.values import Value, flatten

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric, Param, RunTag

MAX_PARAMETER_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 8000
MAX_DIGEST_CHARACTERS = 36
METRICS_PER_BATCH = (
    800  # MLflow accepts 1,000 entries per request, at most 100 of them parameters and 100 tags
)
PARAMETERS_PER_BATCH = 100
TRUNCATION_MARK = "... (truncated)"


class CorpusInput(Value):
    """The corpus that a trial trains on, as lineage: its store, its digest, and its counts per split."""

    name: str
    digest: str
    store: str
    vocabulary_size: int
    splits: dict[str, dict[str, int]]


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


def read_report_numbers(report: object) -> tuple[int, dict[str, float]]:
    """(tokens seen, every other number of the report by name); flags, texts, unset values are left out."""
    fields = _read_fields(report)
    tokens = int(fields.pop("tokens"))
    return tokens, {name: float(value) for name, value in fields.items() if _is_number(value)}


def read_report_texts(report: object) -> dict[str, str]:
    """Every text of the report by name; the reason of an end is recorded with the end."""
    return {
        name: text
        for name, text in _read_fields(report).items()
        if isinstance(text, str) and name != "reason"
    }


def _read_fields(report: object) -> dict[str, Any]:
    """What the report says; a figure that it does not know is not recorded as its default."""
    return report.model_dump(exclude_unset=True) if isinstance(report, BaseModel) else dict(report)  # type: ignore[call-overload]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_metrics(reports: Iterable[tuple[int, object]]) -> Iterator["Metric"]:
    """One metric per number of every (time in milliseconds, report)."""
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.entities import Metric

    for timestamp, report in reports:
        step, fields = read_report_numbers(report)
        for name, value in fields.items():
            yield Metric(name, value, timestamp, step)


def to_params(nested: Mapping[str, Any]) -> list["Param"]:
    """The leaves of a configuration by dotted name, without those that are None.

    None says that a run does not have the field, such as epochs where tokens end a training.
    """
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
