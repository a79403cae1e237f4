"""The leaderboard of a corpus: one row per trial, read from its runs."""

import logging
import math
from typing import TYPE_CHECKING, Any

from pydantic import Field, computed_field

from memtune.objective import Objective, PredictionUnit
from memtune.seed_statistics import Estimate
from memtune.tracking.mlflow_connection import has_store, open_store
from memtune.tracking.runs import run_store, run_tags
from memtune.tracking.runs.recorded_runs import count_run_accesses
from memtune.trial_state import StopReason, TrialEnd, TrialState, read_earlier_end
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)


class LeaderboardRow(Value):
    """One trial: its configuration, its progress and its best validation figure."""

    name: str
    family: str
    alternative: str
    """The alternative of its study's question that it belongs to: its family, or a value of a field."""
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
    carried_state: int | None = None
    """Numbers that its model carries from word to word; None in records of earlier versions."""
    tokens: int
    objective: Objective
    figure: float | None
    """The best validation perplexity or accuracy so far; None before the first validation."""
    seed: int = 0
    configuration: str = ""
    """The identity of the configuration without its seed; in older records that of the trial."""
    curve: dict[int, float] = Field(default_factory=dict, exclude=True)
    """Validation cost by tokens, lower is better."""
    planned_tokens: float | None = None
    """The trial's budget in tokens; None for a model that counts and before the first report."""
    hours: float | None = None
    """Hours of training and evaluation, over all restarts; None before the first report."""
    peak_memory_bytes: int | None = None
    """Peak memory, of the whole process on a CPU, of the tensors on a GPU; None before the first report."""
    test_accesses: int = 0
    """How often the model has read a test split."""
    place: int | None = None
    """The place of the trial's configuration among those of full length, set by a comparison."""
    estimate: Estimate | None = None
    """The cost of the trial's configuration at full length, set by a comparison for its best seed."""
    note: str = ""
    """Why a trial has no place, set by a comparison."""

    def has_read(self, digest: str) -> bool:
        """Whether its text may be that of a digest, of which a run has the beginning, or nothing."""
        return digest.startswith(self.corpus_digest)

    @property
    def unit(self) -> PredictionUnit:
        """What its task predicts, which its curve counts."""
        # Imported here: tasks need torch, which the records of trials do without.
        from memtune.tasks import TASKS, LanguageModellingConfig

        return TASKS.get(str(self.parameters.get("task.kind")), LanguageModellingConfig).prediction_unit

    @property
    def is_counted(self) -> bool:
        """Whether its model learns by counting, which has one result under every seed."""
        return self.parameter_count == 0

    @property
    def is_repeat(self) -> bool:
        """Whether it repeats a configuration that an earlier trial of its study selected."""
        return self.study != run_tags.NO_STUDY and " seed " in self.name

    @property
    def has_diverged(self) -> bool:
        """Whether it ended because its loss, gradient or validation diverged."""
        return self.end is not None and self.end.reason is StopReason.DIVERGED

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ranked_figure(self) -> float | None:
        """The figure that ranks the trial: the mean over seeds of its configuration, where it has a place."""
        return self.figure if self.estimate is None else self.objective.compute_figure(self.estimate.cost)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of that mean; None without an interval."""
        return None if self.estimate is None else self.estimate.compute_interval(self.objective)

    @property
    def cost(self) -> float:
        """The value that orders rows, lower is better; infinite before the first validation."""
        if self.figure is None:
            return math.inf
        return -self.figure if self.objective.direction == "higher" else self.figure


def read_leaderboard(
    tracking_uri: str, corpus: str, configuration: str | None = None
) -> list[LeaderboardRow]:
    """The trials recorded for a corpus, best first; trials without a figure come last.

    With the identity of a `configuration`, those that trained it without a study.
    Figures compare only under one label and corpus digest; the rows have both. Runs with tags or parameters
    that memtune does not write are skipped with a warning. Of two runs of a trial, the longer one counts: a
    driver that lost its study while it created a run leaves one without reports.
    """
    if not has_store(tracking_uri):
        return []
    with open_store(tracking_uri) as client:
        tags = {run_tags.ROLE: "trial"}
        if configuration:
            tags |= {run_tags.STUDY: run_tags.NO_STUDY, run_tags.CONFIGURATION: configuration}
        runs = run_store.find_corpus_runs(client, corpus, tags)
        rows: list[LeaderboardRow] = []
        for run in runs:
            try:
                rows.append(_build_row(client, run))
            except (LookupError, TypeError, ValueError) as error:
                name, reason = run.info.run_id, str(error).partition("\n")[0]
                log.warning("run %s is skipped: memtune does not write such records: %s", name, reason)
    by_length = sorted(rows, key=lambda row: row.tokens)
    trials = {(row.study, row.trial): row for row in by_length}
    return sorted(trials.values(), key=lambda row: (row.cost, row.name))


def _build_row(client: "MlflowClient", run: "Run") -> LeaderboardRow:
    tags, metrics = run.data.tags, run.data.metrics
    parameters = {name: run_store.parse_parameter(text) for name, text in run.data.params.items()}
    parameters.pop(run_tags.ALTERNATIVE_PARAMETER, None)
    seconds, peak = metrics.get("seconds"), metrics.get("peak_memory_bytes")
    datasets = run.inputs.dataset_inputs if run.inputs else []
    objective = run_tags.read_objective(tags)
    history = client.get_metric_history(run.info.run_id, f"valid_{objective.metric}")
    values = {metric.step: metric.value for metric in history}
    curve = {step: objective.compute_cost(value) for step, value in values.items() if not math.isnan(value)}
    best = min(curve.values(), default=None)
    # The last report of a trial that failed or diverged has no validation.
    tokens = max([int(metrics.get(run_tags.TOKENS_METRIC, 0)), *curve])
    alternative, number = run_tags.read_alternative(tags), tags.get(run_tags.NUMBER)
    return LeaderboardRow(
        # Runs of earlier versions are named after the family.
        name=f"{alternative} #{number}" if number else run.info.run_name,
        family=tags.get(run_tags.FAMILY, ""),
        alternative=alternative,
        study=tags[run_tags.STUDY],
        trial=tags[run_tags.TRIAL],
        run_id=run.info.run_id,
        state=_read_state(run),
        end=_read_end(tags),
        protocol=tags.get("memtune.protocol", ""),
        corpus_digest=datasets[0].dataset.digest if datasets else "",
        parameters=parameters,
        parameter_count=parameters.get(run_tags.SIZE_PARAMETER),
        carried_state=parameters.get(run_tags.STATE_PARAMETER),
        tokens=tokens,
        objective=objective,
        figure=None if best is None else objective.compute_figure(best),
        seed=parameters.get("seed") or 0,
        configuration=tags.get(run_tags.CONFIGURATION, tags[run_tags.TRIAL]),
        curve=curve,
        planned_tokens=_read_budget(parameters, tokens, metrics.get("epoch")),
        hours=None if seconds is None else seconds / 3600,
        peak_memory_bytes=None if peak is None or not math.isfinite(peak) else int(peak),
        test_accesses=count_run_accesses(client, run),
    )


def _read_state(run: "Run") -> TrialState:
    """The trial's state. The run's status overrides the tag, which a resumed run has from its last end.

    Runs before 2026-11-22 have no tag of their state: their status and the sentence of their end tell it.
    """
    if run.info.status in ("RUNNING", "SCHEDULED"):
        return TrialState.RUNNING
    if (state := run.data.tags.get(run_tags.STATE)) is not None:
        return TrialState(state)
    if run.info.status == "FINISHED" and (end := _read_end(run.data.tags)):
        return TrialState.STOPPED if end.reason is StopReason.EARLY_STOPPING else TrialState.COMPLETE
    return TrialState.FAILED if run.info.status == "FAILED" else TrialState.INTERRUPTED


def _read_end(tags: dict[str, str]) -> TrialEnd | None:
    sentence = tags.get(run_tags.REASON, "")
    if reason := tags.get(run_tags.STOP_REASON):
        return TrialEnd(reason=StopReason(reason), detail=sentence)
    return read_earlier_end(sentence) if sentence and run_tags.STATE not in tags else None


def _read_budget(parameters: dict[str, Any], tokens: int, epoch: float | None) -> float | None:
    """The budget in tokens: as it was given, or from epochs by those of the last report."""
    if budget := parameters.get("training.tokens"):
        return float(budget)
    epochs = parameters.get("training.epochs")
    return epochs * tokens / epoch if epochs and epoch else None
