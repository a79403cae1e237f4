"""Trials side by side: the rows of a corpus's leaderboard, read from its runs."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memtune.objective import Objective, better
from memtune.tracking import store
from memtune.tracking.commands import OBJECTIVE, REASON, ROLE, STUDY, TRIAL
from memtune.tracking.connection import connect, told_plainly
from memtune.tracking.entries import parameter_value
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

__all__ = ["Row", "leaderboard", "varying"]

SIZES = ("parameters", "multiply_adds")


class Row(Value):
    """One trial: what it was, how far it came, how good it got."""

    name: str
    family: str
    study: str
    trial: str
    run_id: str
    state: str
    """running, finished, failed or killed."""
    reason: str
    protocol: str
    corpus_digest: str
    parameters: dict[str, Any]
    parameter_count: int | None
    tokens: int
    objective: Objective
    figure: float | None
    """The best validation perplexity or accuracy so far; None before the first validation."""

    @property
    def cost(self) -> float:
        """What rows are ordered by, lower is better; infinite before the first validation."""
        if self.figure is None:
            return math.inf
        return -self.figure if better(self.objective) == "higher" else self.figure


def leaderboard(tracking_uri: str, corpus: str, protocol: str | None = None) -> list[Row]:
    """The trials recorded for a corpus, best first; those without a figure come last.

    Figures compare only under one label and corpus digest: `protocol`, a label as in the rows, keeps one.
    """
    client = connect(tracking_uri)
    with told_plainly(tracking_uri):
        experiment = client.get_experiment_by_name(corpus)
        runs = store.find_runs(client, experiment.experiment_id, {ROLE: "trial"}) if experiment else []
        rows = [_row(client, run) for run in runs]
    kept = [row for row in rows if protocol in (None, row.protocol)]
    return sorted(kept, key=lambda row: (row.cost, row.name))


def varying(rows: Sequence[Row]) -> list[str]:
    """The parameters by which these trials differ, sizes left out: the columns worth showing."""
    names = sorted({name for row in rows for name in row.parameters} - set(SIZES))
    return [name for name in names if len({str(row.parameters.get(name)) for row in rows}) > 1]


def _row(client: "MlflowClient", run: "Run") -> Row:
    tags, parameters = run.data.tags, {n: parameter_value(text) for n, text in run.data.params.items()}
    datasets = run.inputs.dataset_inputs if run.inputs else []
    objective: Objective = "accuracy" if tags.get(OBJECTIVE) == "accuracy" else "perplexity"
    tokens, figure = _progress(client, run, objective)
    return Row(
        name=run.info.run_name,
        family=tags.get("memtune.family", ""),
        study=tags[STUDY],
        trial=tags[TRIAL],
        run_id=run.info.run_id,
        state=run.info.status.lower(),
        reason=tags.get(REASON, ""),
        protocol=tags.get("memtune.protocol", ""),
        corpus_digest=datasets[0].dataset.digest if datasets else "",
        parameters=parameters,
        parameter_count=parameters.get("parameters"),
        tokens=tokens,
        objective=objective,
        figure=figure,
    )


def _progress(client: "MlflowClient", run: "Run", objective: Objective) -> tuple[int, float | None]:
    """(tokens seen, best validation figure) of a run."""
    history = client.get_metric_history(run.info.run_id, f"valid_{objective}")
    values = [metric.value for metric in history if metric.value == metric.value]
    tokens = max((metric.step for metric in history), default=0)
    best = max if better(objective) == "higher" else min
    return tokens, best(values, default=None)
