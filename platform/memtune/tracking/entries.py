"""What a run says, as MLflow's parameters, metrics, tags and dataset, within MLflow's limits.

Parameters are written as JSON reads them (`true`, `0.1`, `null`; text as it is), so that `parameter_value`
gives back a typed value. A report's step is the tokens seen when it was made; its texts
become tags, the last of each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from memtune.values import Value, flatten

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric, Param, RunTag

__all__ = ["CorpusInput", "parameter_text", "parameter_value", "report_fields", "report_texts"]

PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
DATASET_DIGEST_LENGTH = 36
METRICS_PER_BATCH = 1000
PARAMETERS_PER_BATCH = 100
TRUNCATED = "... (truncated)"


class CorpusInput(Value):
    """The corpus a trial learns from, as lineage: where it is, its digest, and its counts per split."""

    name: str
    digest: str
    store: str
    vocabulary_size: int
    splits: dict[str, dict[str, int]]


def parameter_text(value: object) -> str:
    """`value` as MLflow stores it; longer texts than MLflow takes end with a mark."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return shortened(text, PARAMETER_LENGTH)


def parameter_value(text: str) -> Any:
    """The typed value of a stored parameter; text that is no JSON is itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def shortened(text: str, length: int) -> str:
    """`text` within `length` characters, its end replaced by a mark when it was longer."""
    return text if len(text) <= length else text[: length - len(TRUNCATED)] + TRUNCATED


def report_fields(report: object) -> tuple[int, dict[str, float]]:
    """(tokens seen, every other number of the report by name); flags, texts, missing values are left out."""
    fields = report.model_dump() if isinstance(report, BaseModel) else dict(report)  # type: ignore[call-overload]
    tokens = int(fields.pop("tokens"))
    return tokens, {name: float(value) for name, value in fields.items() if _is_number(value)}


def report_texts(report: object) -> dict[str, str]:
    """Every text of the report by name; why a trial ended is told when it ends."""
    fields = report.model_dump() if isinstance(report, BaseModel) else dict(report)  # type: ignore[call-overload]
    return {name: text for name, text in fields.items() if isinstance(text, str) and name != "reason"}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def metrics(reports: Iterable[tuple[int, object]]) -> Iterator["Metric"]:
    """One metric per number of every (time in milliseconds, report)."""
    from mlflow.entities import Metric

    for timestamp, report in reports:
        step, fields = report_fields(report)
        for name, value in fields.items():
            yield Metric(name, value, timestamp, step)


def parameters(nested: Mapping[str, Any]) -> list["Param"]:
    """The leaves of a configuration by dotted name."""
    from mlflow.entities import Param

    return [Param(name, parameter_text(value)) for name, value in flatten(nested)]


def tags(named: Mapping[str, object]) -> list["RunTag"]:
    """Tags as given, cut to the length MLflow takes."""
    from mlflow.entities import RunTag

    return [RunTag(name, shortened(str(value), TAG_LENGTH)) for name, value in named.items()]


def dataset_input(corpus: CorpusInput) -> "DatasetInput":
    """The corpus as an input of a run; MLflow's digest holds 36 characters, the source all of it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=corpus.name,
        digest=corpus.digest[:DATASET_DIGEST_LENGTH],
        source_type="memtune",
        source=json.dumps({"uri": corpus.store, "corpus": corpus.name, "digest": corpus.digest}),
        schema=json.dumps({"vocabulary_size": corpus.vocabulary_size}),
        profile=json.dumps(corpus.splits),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "train")])
