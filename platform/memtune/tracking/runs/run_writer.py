"""Writes the runs of one experiment to MLflow, many commands per request.

Parameters, metrics, tags and files of neighbouring commands go to the store together. Every command may be
repeated after a failure half-way: a run is searched for before it is created, and a metric that the store
holds at a step is not written again.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from memtune.objective import Objective
from memtune.settings import find_user
from memtune.tracking.code_version import read_code_version
from memtune.tracking.mlflow_connection import ensure_experiment
from memtune.tracking.runs import run_store, run_tags
from memtune.tracking.runs.run_store import RUN_STATUS, CorpusInput, RecordedTrial, RunKey
from memtune.trial_state import TrialEnd, TrialState

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

RunCommand = Callable[[RunKey], None]
"""A method of RunWriter with its arguments, but for the run."""

COMMANDS_PER_PASS = 500


@dataclass
class _OpenRun:
    """A run that is being written: what the store holds of it, and what is still to be sent."""

    run_id: str
    objective: Objective
    ideal: float | None
    """The perplexity that no model can beat, where it is known."""
    description: str
    """Markdown for the pages, without the run's status."""
    is_stale: bool
    """A request failed, although the store may have carried it out: `values` must be read again."""
    values: run_store.LoggedValues = field(default_factory=dict)
    """What the store holds, or holds after the pending batch: value by step by metric."""
    texts: dict[str, str] = field(default_factory=dict)
    """Tags set from reports."""
    pending: run_store.PendingEntries = field(default_factory=run_store.PendingEntries)


class RunWriter:
    """The runs of one experiment, written by one thread. Times are in milliseconds since the epoch."""

    def __init__(self, client: "MlflowClient", tracking_uri: str, experiment: str) -> None:
        self._client = client
        self._tracking_uri = tracking_uri
        self._experiment = experiment
        self._experiment_id: str | None = None
        self._open_runs: dict[RunKey, _OpenRun] = {}
        self._attempted: set[RunKey] = set()
        """Runs that this writer tried to create, so that the store may hold them."""
        self._new_studies: set[str] = set()
        """Studies whose run this writer created: the store holds none of their trials but attempted ones."""

    def execute(self, key: RunKey, commands: deque[RunCommand]) -> None:
        """Carry out commands from the left and remove those that are done.

        On an error the commands are repeated one by one, so that the first one left is the one that failed.
        """
        together = list(islice(commands, COMMANDS_PER_PASS))
        try:
            self._execute_together(key, together)
        except Exception:
            while commands:
                self._execute_together(key, [commands[0]])
                commands.popleft()
        else:
            for _ in together:
                commands.popleft()

    def _execute_together(self, key: RunKey, commands: Sequence[RunCommand]) -> None:
        try:
            for command in commands:
                command(key)
            self._send_pending(key)
        except Exception:
            if run := self._open_runs.get(key):
                run.is_stale, run.pending, run.texts = True, run_store.PendingEntries(), {}
            raise

    def _ensure_experiment_id(self) -> str:
        """The experiment's id in the store, which creates it when needed."""
        if self._experiment_id is None:
            self._experiment_id = ensure_experiment(self._client, self._tracking_uri, self._experiment)
        return self._experiment_id

    def _search_runs(self, tags: dict[str, str]) -> list["Run"]:
        return run_store.find_runs(self._client, [self._ensure_experiment_id()], tags)

    def list_recorded(self, study: str) -> dict[str, RecordedTrial]:
        """The trials of a study whose end the store holds, by identity; none that has two runs."""
        recorded: dict[str, RecordedTrial] = {}
        for trial, (run, *others) in self._find_trials(study).items():
            tokens, state = run.data.tags.get(run_tags.VALIDATED_TOKENS), run.data.tags.get(run_tags.STATE)
            # An end may be stored incompletely.
            ended = [end for end, status in RUN_STATUS.items() if status == run.info.status and end == state]
            if ended and tokens and not others:
                recorded[trial] = RecordedTrial(ended[0], int(tokens))
        return recorded

    def _find_trials(self, study: str) -> dict[str, list["Run"]]:
        """The runs of a study's trials by the trial's identity."""
        found = defaultdict[str, list["Run"]](list)
        for run in self._search_runs({run_tags.STUDY: study, run_tags.ROLE: "trial"}):
            if trial := run.data.tags.get(run_tags.TRIAL):  # others may write to the store too
                found[trial].append(run)
        return found

    def reconcile_runs(self, key: RunKey, state_by_trial: Mapping[str, TrialState], time_ms: int) -> None:
        """Make the store agree with a resumed study; see `Recorder.reconcile`."""
        parents = self._search_runs(RunKey(key.study).tags())
        parent = run_store.merge_runs(self._client, parents).info.run_id if parents else None
        for identity, runs in self._find_trials(key.study).items():
            run = run_store.merge_runs(self._client, runs)
            if parent is not None and run.data.tags.get(run_tags.PARENT) != parent:
                self._client.set_tag(run.info.run_id, run_tags.PARENT, parent)
            self._correct_status(run, state_by_trial.get(identity), time_ms)

    def _correct_status(self, run: "Run", state: TrialState | None, time_ms: int) -> None:
        """Give the run the status of its ended trial; one of an open trial that is RUNNING becomes KILLED."""
        if state is None and run.info.status == "RUNNING":
            state = TrialState.INTERRUPTED
            tokens = int(run.data.metrics.get(run_tags.TOKENS_METRIC, 0))
            tags = run_store.describe_state(state, None, tokens, run_store.read_description(run.data.tags))
            run_store.drop_end_tags(self._client, run)
            run_store.PendingEntries(tags=tags).send(self._client, run.info.run_id)
            self._client.set_terminated(run.info.run_id, RUN_STATUS[state], time_ms)
        elif state is not None and run.info.status != RUN_STATUS[state]:
            self._client.set_terminated(run.info.run_id, RUN_STATUS[state], run.info.end_time or time_ms)

    def write_files(self, key: RunKey, contents: Mapping[str, bytes]) -> None:
        """Add artifacts of a run, content by relative path, to the pending batch."""
        self._find_open_run(key).pending.files |= contents

    def start_run(
        self,
        key: RunKey,
        name: str,
        time_ms: int,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        dataset: CorpusInput | None,
        description: str,
        max_tokens: int | None = None,
    ) -> None:
        """Create the run, or find it and set it to running with what the store holds of it.

        Validations of a resumed trial beyond `max_tokens` are not in the study database and are dropped.
        """
        self._send_pending(key)  # of a trial that lost its worker
        code = {run_tags.CODE: read_code_version()}
        shown = run_store.describe_state(TrialState.RUNNING, None, 0, description)
        tags = {**run_tags.name_tags(tags), **code, **key.tags(), **shown}
        parent = self._open_runs.get(RunKey(key.study)) if key.trial is not None else None
        if parent is not None:
            tags[run_tags.PARENT] = parent.run_id
        is_new = key.study in self._new_studies and key not in self._attempted
        found = [] if is_new else self._search_runs(key.tags())
        if found:
            run = run_store.merge_runs(self._client, found)
            if max_tokens is not None:
                run = run_store.drop_surplus(self._client, run, max_tokens)
            run_store.drop_end_tags(self._client, run)
            self._client.update_run(run.info.run_id, status="RUNNING", name=name)
        else:
            run = self._create_run(key, name, time_ms, tags)
        opened = self._open_run(key, run, tags, is_stale=bool(found))
        # MLflow refuses to change a parameter.
        known, given = run.data.params, run_store.to_params(parameters)
        opened.pending.parameters += [parameter for parameter in given if parameter.key not in known]
        if found:
            opened.pending.tags |= tags
        if dataset is not None:
            self._client.log_inputs(opened.run_id, [run_store.to_dataset_input(dataset)])

    def _open_run(self, key: RunKey, run: "Run", tags: Mapping[str, str], is_stale: bool) -> _OpenRun:
        self._open_runs[key] = _OpenRun(
            run.info.run_id,
            run_tags.read_objective(tags),
            float(tags[run_tags.IDEAL]) if tags.get(run_tags.IDEAL) else None,
            run_store.read_description(tags),
            is_stale,
        )
        return self._open_runs[key]

    def _create_run(self, key: RunKey, name: str, time_ms: int, tags: dict[str, str]) -> "Run":
        is_first_attempt = key not in self._attempted
        self._attempted.add(key)
        user = {run_tags.USER: found} if (found := find_user()) else {}
        cut = {tag.key: tag.value for tag in run_store.to_tags({**tags, **user})}
        run = self._client.create_run(self._ensure_experiment_id(), time_ms, cut, name)
        if key.trial is None and is_first_attempt:
            self._new_studies.add(key.study)
        return run

    def log_report(self, key: RunKey, time_ms: int, report: object) -> None:
        """Add the numbers that the store lacks and the texts that are new to the pending batch."""
        run = self._read_open_run(key)
        step, numbers, texts = run_store.read_report(report)
        for name, value in numbers.items():
            if key.trial is None:
                self._add_metric(run, name, step, value, time_ms, replace=True)
                # A study's figures have a step for each of its trials: those before are forgotten.
                known = run.values[name]
                run.values[name] = {earlier: known[earlier] for earlier in known if earlier >= step}
            else:
                self._add_metric(run, name, step, value, time_ms)
        if numbers and key.trial is not None:
            self._add_table_metrics(run, step, time_ms)
        tags = run_tags.name_tags(texts)
        new = {tag: text for tag, text in tags.items() if run.texts.get(tag) != text}
        run.texts |= new
        run.pending.tags |= new

    def _add_table_metrics(self, run: _OpenRun, step: int, time_ms: int) -> None:
        """Add what the table of trials shows: its cells hold the last value of a metric."""
        self._add_metric(run, run_tags.TOKENS_METRIC, step, step, time_ms)
        if (seconds := run.values.get("seconds", {}).get(step)) is not None:
            self._add_metric(run, run_tags.HOURS_METRIC, step, round_figure(seconds / 3600, 3), time_ms)
        valid = run.values.get(f"valid_{run.objective}", {})
        # A report that is sent again finds later ones in the store, which are not part of its best value.
        reached = [value for tokens, value in valid.items() if tokens <= step and not math.isnan(value)]
        if step in valid and reached:
            self._log_best(run, step, run.objective.choose_best(reached), time_ms)

    def _log_best(self, run: _OpenRun, step: int, best: float, time_ms: int) -> None:
        self._add_metric(run, run_tags.RANKING_METRIC, step, round_figure(best), time_ms, replace=True)
        if run.ideal and run.objective.has_ideal:
            distance = round_figure(100 * (best / run.ideal - 1))
            self._add_metric(run, run_tags.ABOVE_IDEAL_METRIC, step, distance, time_ms, replace=True)

    def _correct_best(self, run: _OpenRun, time_ms: int) -> None:
        """Log the best validation value again: reports may have arrived in another order."""
        valid = run.values.get(f"valid_{run.objective}", {})
        if reached := {tokens: value for tokens, value in valid.items() if not math.isnan(value)}:
            self._log_best(run, max(reached), run.objective.choose_best(reached.values()), time_ms)

    def end_run(
        self,
        key: RunKey,
        time_ms: int,
        state: TrialState,
        end: TrialEnd | None = None,
        validated_tokens: int | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Send what is pending, with the figures of a whole trial, then set the run's final status."""
        run = self._read_open_run(key)
        if key.trial is not None:
            self._correct_best(run, time_ms)
        tokens = max((step for values in run.values.values() for step in values), default=0)
        tags = run_store.describe_state(state, end, tokens, run.description)
        if validated_tokens is not None:
            tags[run_tags.VALIDATED_TOKENS] = str(validated_tokens)
        if key.trial is None:  # its description is the study's conclusion
            del tags[run_tags.NOTE]
        run.pending.tags |= tags
        for name, value in (figures or {}).items():
            self._add_metric(run, name, tokens, round_figure(value), time_ms, replace=True)
        self._send_pending(key)
        self._client.set_terminated(run.run_id, RUN_STATUS[state], time_ms)
        if key.trial is not None:  # the study's run stays, as the parent of trials
            del self._open_runs[key]

    def _add_metric(
        self, run: _OpenRun, name: str, step: int, value: float, time_ms: int, *, replace: bool = False
    ) -> None:
        """Add a value at a new step, or `replace` another one there: the later one counts for the pages."""
        # Imported here: MLflow loads for seconds; see mlflow_connection.
        from mlflow.entities import Metric

        values = run.values.setdefault(name, {})
        if step not in values or (replace and values[step] != value):
            values[step] = value
            run.pending.metrics.append(Metric(name, value, time_ms, step))

    def _send_pending(self, key: RunKey) -> None:
        run = self._open_runs.get(key)
        if run is not None:
            run.pending.send(self._client, run.run_id)
            run.pending = run_store.PendingEntries()

    def _read_open_run(self, key: RunKey) -> _OpenRun:
        """The open run; its values are read from the store again after a failed request."""
        run = self._find_open_run(key)
        if run.is_stale:
            run.values = run_store.read_logged_values(self._client, self._client.get_run(run.run_id))
            run.is_stale = False
        return run

    def _find_open_run(self, key: RunKey) -> _OpenRun:
        """The open run; one that has ended is read from the store. Raises LookupError when there is none."""
        if key in self._open_runs:
            return self._open_runs[key]
        found = self._search_runs(key.tags())
        if not found:
            raise LookupError(f"the store holds no run of {key}; it was deleted")
        run = found[0]
        return self._open_run(key, run, run.data.tags, is_stale=True)


def round_figure(value: float, digits: int = 4) -> float:
    """A figure with few significant digits: MLflow's table of runs shows every digit of a metric."""
    return float(f"{value:.{digits}g}")
