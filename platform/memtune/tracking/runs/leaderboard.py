"""The leaderboard of a corpus: one row per trial, read from its runs."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memtune.objective import Objective, better_direction
from memtune.tracking.mlflow_connection import connect, translate_mlflow_errors
from memtune.tracking.runs import run_store
from memtune.tracking.runs.run_commands import (
    OBJECTIVE_TAG,
    REASON_TAG,
    ROLE_TAG,
    STATE_TAG,
    STOP_REASON_TAG,
    STUDY_TAG,
    TRIAL_TAG,
)
from memtune.tracking.runs.run_entries import parse_parameter
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

__all__ = ["LeaderboardRow", "find_varying_parameters", "read_leaderboard"]

SIZE_PARAMETERS = ("parameters", "multiply_adds")


class LeaderboardRow(Value):
    """One trial: its configuration, its progress and its best validation figure."""

    name: str
    family: str
    study: str
    trial: str
    run_id: str
    state: TrialState
    end: TrialEnd | None
    """Why the trial ended; None while it is open and where a run has no reason."""
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
        """The value that orders rows, lower is better; infinite before the first validation."""
        if self.figure is None:
            return math.inf
        return -self.figure if better_direction(self.objective) == "higher" else self.figure


def read_leaderboard(tracking_uri: str, corpus: str, protocol: str | None = None) -> list[LeaderboardRow]:
    """The trials recorded for a corpus, best first; trials without a figure come last.

    Figures compare only under one label and corpus digest. `protocol`, a label as in the rows, selects the
    trials with this label.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        experiment = client.get_experiment_by_name(corpus)
        runs = (
            run_store.find_runs(client, experiment.experiment_id, {ROLE_TAG: "trial"}) if experiment else []
        )
        rows = [_build_row(client, run) for run in runs]
    kept = [row for row in rows if protocol in (None, row.protocol)]
    return sorted(kept, key=lambda row: (row.cost, row.name))


def find_varying_parameters(rows: Sequence[LeaderboardRow]) -> list[str]:
    """The parameters in which these trials differ, without sizes: the columns of a table."""
    names = sorted({name for row in rows for name in row.parameters} - set(SIZE_PARAMETERS))
    return [name for name in names if len({str(row.parameters.get(name)) for row in rows}) > 1]


def _build_row(client: "MlflowClient", run: "Run") -> LeaderboardRow:
    tags, parameters = run.data.tags, {n: parse_parameter(text) for n, text in run.data.params.items()}
    datasets = run.inputs.dataset_inputs if run.inputs else []
    objective: Objective = "accuracy" if tags.get(OBJECTIVE_TAG) == "accuracy" else "perplexity"
    tokens, figure = _read_progress(client, run, objective)
    return LeaderboardRow(
        name=run.info.run_name,
        family=tags.get("memtune.family", ""),
        study=tags[STUDY_TAG],
        trial=tags[TRIAL_TAG],
        run_id=run.info.run_id,
        state=_read_state(run),
        end=_read_end(tags),
        protocol=tags.get("memtune.protocol", ""),
        corpus_digest=datasets[0].dataset.digest if datasets else "",
        parameters=parameters,
        parameter_count=parameters.get("parameters"),
        tokens=tokens,
        objective=objective,
        figure=figure,
    )


def _read_state(run: "Run") -> TrialState:
    """The trial's state. The run's status overrides the tag, which a resumed run has from its last end."""
    if run.info.status in ("RUNNING", "SCHEDULED"):
        return TrialState.RUNNING
    return TrialState(run.data.tags.get(STATE_TAG, TrialState.INTERRUPTED))


def _read_end(tags: dict[str, str]) -> TrialEnd | None:
    reason = tags.get(STOP_REASON_TAG)
    return TrialEnd(reason=StopReason(reason), detail=tags.get(REASON_TAG, "")) if reason else None


def _read_progress(client: "MlflowClient", run: "Run", objective: Objective) -> tuple[int, float | None]:
    """(tokens seen, best validation figure) of a run."""
    history = client.get_metric_history(run.info.run_id, f"valid_{objective}")
    values = [metric.value for metric in history if metric.value == metric.value]
    tokens = max((metric.step for metric in history), default=0)
    best = max if better_direction(objective) == "higher" else min
    return tokens, best(values, default=None)
