"""A table of learning curves: configurations, seeds, and cost and CPU seconds per report."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from memtune.spaces import Scalar

__all__ = ["FOLDER", "Curve", "CurveTable", "read_table", "write_table"]

FOLDER = Path(__file__).parent
"""Of the recorded tables; those of other sizes are in a folder below."""

SCHEMA = pa.schema(
    {
        "configuration": pa.string(),
        "parameters": pa.string(),
        "family": pa.string(),
        "seed": pa.int64(),
        "tokens": pa.list_(pa.int64()),
        "costs": pa.list_(pa.float32()),
        "seconds": pa.list_(pa.float32()),
    }
)


@dataclass(frozen=True)
class Curve:
    """One training: `costs` in nats per token (NaN after divergence), `seconds` of CPU time so far."""

    configuration: dict[str, Any]
    """The whole configuration, as JSON in the table."""
    parameters: dict[str, Scalar]
    """The sampled parameters by their names in the study's space."""
    family: str
    seed: int
    tokens: tuple[int, ...]
    costs: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def final_cost(self) -> float:
        """The last validation; infinite for a training that diverged."""
        return math.inf if math.isnan(self.costs[-1]) else self.costs[-1]


@dataclass(frozen=True)
class CurveTable:
    """The curves of one study's space on one corpus, with what is needed to rebuild the space."""

    curves: tuple[Curve, ...]
    study: dict[str, Any]
    vocabulary_size: int
    description: dict[str, str]
    """Corpus digest, versions and processor."""

    @property
    def report_tokens(self) -> tuple[int, ...]:
        """Tokens at each report of a training that did not diverge."""
        return max((curve.tokens for curve in self.curves), key=len)


def write_table(table: CurveTable, path: Path) -> None:
    """Write a table as an Arrow file."""
    rows = [
        asdict(curve)
        | {"configuration": json.dumps(curve.configuration), "parameters": json.dumps(curve.parameters)}
        for curve in table.curves
    ]
    head = {
        "study": table.study,
        "vocabulary_size": table.vocabulary_size,
        "description": table.description,
    }
    schema = SCHEMA.with_metadata({"table": json.dumps(head)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))


def read_table(path: Path) -> CurveTable:
    """Read a table that `write_table` wrote."""
    with pa.OSFile(str(path), "rb") as file:
        table = pa.ipc.open_file(file).read_all()
    head = json.loads(table.schema.metadata[b"table"])
    return CurveTable(tuple(_read_curves(table.to_pylist())), **head)


def _read_curves(rows: list[dict[str, Any]]) -> Iterable[Curve]:
    for row in rows:
        decoded = {name: json.loads(row[name]) for name in ("configuration", "parameters")}
        curves = {name: tuple(row[name]) for name in ("tokens", "costs", "seconds")}
        yield Curve(**(row | decoded | curves))
