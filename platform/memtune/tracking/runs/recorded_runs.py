"""What users do with the runs of trials: find them by name, record accesses and conclusions, delete them.

A trial's name is `STUDY#7`, `STUDY#7 seed 1` for a repeat, or the id of a run in MLflow.

Each access to a test split is one entry in the history of a metric of the model's run, so none is lost or
counted twice.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, ValidationError

from memtune.errors import TrackingError, suggest_nearest
from memtune.storage.uris import find_sqlite_path
from memtune.tracking.mlflow_connection import find_or_none, has_store, open_store
from memtune.tracking.runs import run_store, run_tags
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

TEST_ACCESSES = "test_accesses"
EARLIER_ACCESSES = "test_tokens"
"""Before 2026-11-22 an access was an entry of this metric of its result alone."""
NO_CONCLUSION = {run_tags.RANK: "", run_tags.FIGURE: "", run_tags.BEST_OF_FAMILY: ""}
"""The tags of a trial of which the last conclusion says nothing."""
RUN_ID_PATTERN = re.compile(r"[0-9a-f]{32}")
TRIAL_PATTERN = re.compile(r"(?P<study>[A-Za-z0-9][A-Za-z0-9._-]*)#(?P<number>\d+(?: seed \d+)?)")


class TrialRun(Value):
    """A recorded trial."""

    model_config = ConfigDict(strict=False)  # tags are texts

    run_id: str
    study: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    trial: str = Field(pattern=r"^[A-Za-z0-9]+$")
    """The trial's identity, which names its checkpoints. Study and trial become parts of a path, and whoever
    can write to the tracking store chooses them: so their form is checked."""
    max_tokens: int | None
    """Tokens at its last recorded validation; None while it is open."""
    reused_from: str = ""
    """The trial of another study that has trained it; empty for one that was trained in its own."""
    code: str = ""
    """The version of the code that recorded it, with the commit of a checkout; empty in old records."""


def is_trial_name(text: str) -> bool:
    """Whether a text has the form of a trial's name or of a run's id."""
    return bool(RUN_ID_PATTERN.fullmatch(text) or TRIAL_PATTERN.fullmatch(text))


def find_trial_run(tracking_uri: str, text: str) -> TrialRun:
    """The trial with a name or a run's id; a study is named by its id, or by its name if that is unique.

    Raises TrackingError where there is no such trial, or several, and for tags that memtune does not write.
    """
    if not has_store(tracking_uri):
        database = find_sqlite_path(tracking_uri)
        raise TrackingError(
            f"no trial {text}: {database} does not exist; set MEMTUNE_HOME to where it was trained"
        )
    with open_store(tracking_uri) as client:
        found = _find_runs(client, text)
        if len(found) != 1:
            several = ", ".join(sorted(run.data.tags.get(run_tags.STUDY, "") for run in found))
            problem = (
                f"several studies have it: {several}"
                if found
                else f"the tracking store has no such trial{_suggest_trial(client, text)}"
            )
            raise TrackingError(
                f"no trial {text}: {problem}; memtune compare --corpus CORPUS --json lists trials with run_id"
            )
    (run,) = found
    tags = run.data.tags
    fields = {
        "run_id": run.info.run_id,
        "study": tags.get(run_tags.STUDY),
        "trial": tags.get(run_tags.TRIAL),
        "max_tokens": tags.get(run_tags.VALIDATED_TOKENS) or None,
        "reused_from": tags.get("memtune.reused_from", ""),
        "code": tags.get(run_tags.CODE, ""),
    }
    try:
        return TrialRun.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise TrackingError(
            f"run {run.info.run_id} has no {first['loc'][0]} that memtune writes: {first['msg']}"
        ) from None


def _find_runs(client: "MlflowClient", text: str) -> list["Run"]:
    named = TRIAL_PATTERN.fullmatch(text)
    if named is None:
        run = find_or_none(lambda: client.get_run(text))
        return [run] if run and run.data.tags.get(run_tags.ROLE) == "trial" else []
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    numbers: tuple[dict[str, str], ...] = ({run_tags.NUMBER: named["number"]}, {})
    for number, study_tag in product(numbers, (run_tags.STUDY, run_tags.STUDY_NAME)):
        with_study = {run_tags.ROLE: "trial", study_tag: named["study"], **number}
        runs = run_store.find_runs(client, experiments, with_study)
        if found := [run for run in runs if _read_number(run) == named["number"]]:
            return found
    return []


def _suggest_trial(client: "MlflowClient", text: str) -> str:
    """The numbers that the named study has, or the study with the nearest name; "" for neither."""
    named = TRIAL_PATTERN.fullmatch(text)
    if named is None:
        return ""
    study = named["study"]
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    for tag in (run_tags.STUDY, run_tags.STUDY_NAME):
        runs = run_store.find_runs(client, experiments, {run_tags.ROLE: "trial", tag: study})
        names = (_read_number(run).partition(" ")[0] for run in runs)
        if numbers := [int(name) for name in names if name.isdigit()]:
            return f", {study} has trials {min(numbers)} to {max(numbers)}"
    studies = run_store.find_runs(client, experiments, {run_tags.ROLE: "study"})
    near = suggest_nearest(study, (str(run.info.run_name) for run in studies))
    return f", {near}" if near else ""


def _read_number(run: "Run") -> str:
    """The trial's name within its study, which runs before 2026-11-22 have in their own name alone."""
    return run.data.tags.get(run_tags.NUMBER) or str(run.info.run_name).rpartition("#")[2]


@dataclass(frozen=True)
class RecordedEvaluation:
    """The run of a trial, and what an evaluation has recorded with it."""

    run_id: str
    figures: dict[str, float]
    """By name without the split, such as `perplexity`; empty before the evaluation."""


def find_evaluation(tracking_uri: str, experiment: str, trial: str) -> RecordedEvaluation | None:
    """The evaluation of a trial without a study, by the trial's identity; None for a trial without a run."""
    with open_store(tracking_uri) as client:
        tags = {run_tags.ROLE: "trial", run_tags.STUDY: run_tags.NO_STUDY, run_tags.TRIAL: trial}
        runs = run_store.find_corpus_runs(client, experiment, tags)
    if not runs:
        return None
    metrics, prefix = runs[-1].data.metrics, "test_"
    figures = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    return RecordedEvaluation(runs[-1].info.run_id, figures)


def record_test_access(tracking_uri: str, run_id: str, other_corpus: str | None = None) -> None:
    """Record one access to a test split, by default that of its corpus, with the run of the reading model.

    An access to another corpus is an entry of a metric with its name, which `count_test_accesses` leaves
    out. Raises TrackingError when the store does not answer.
    """
    metric = TEST_ACCESSES if other_corpus is None else f"{TEST_ACCESSES}_{other_corpus}"
    with open_store(tracking_uri) as client:
        count = len(client.get_metric_history(run_id, metric)) + 1
        client.log_metric(run_id, metric, count, round(1000 * time.time()), count)


def count_test_accesses(tracking_uri: str, corpus: str) -> int:
    """The accesses to the test split of a corpus by its models."""
    with open_store(tracking_uri) as client:
        experiment = client.get_experiment_by_name(corpus)
        if experiment is None:
            return 0
        runs = {
            run.info.run_id: run
            for metric in (TEST_ACCESSES, EARLIER_ACCESSES)
            for run in client.search_runs(
                [experiment.experiment_id], f"metrics.{metric} > 0", max_results=50_000
            )
        }
        return sum(count_run_accesses(client, run) for run in runs.values())


def count_run_accesses(client: "MlflowClient", run: "Run") -> int:
    """The accesses to the test split of its corpus by the model of a run."""
    for metric in (TEST_ACCESSES, EARLIER_ACCESSES):
        if metric in run.data.metrics:
            return len(client.get_metric_history(run.info.run_id, metric))
    return 0


def delete_study_runs(tracking_uri: str, study: str) -> int:
    """Delete the runs of a study and its trials, as MLflow's own pages do; return their number.

    `mlflow gc` removes deleted runs permanently.
    """
    with open_store(tracking_uri) as client:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        found = run_store.find_runs(client, experiments, {run_tags.STUDY: study})
        for run in found:
            client.delete_run(run.info.run_id)
    return len(found)


def record_conclusion(
    tracking_uri: str,
    corpus: str,
    study: str,
    tags: Mapping[str, str],
    tags_by_trial: Mapping[str, Mapping[str, str]],
    description: str,
) -> None:
    """Store a study's conclusion; it replaces an earlier one. Tags are stored as `memtune.<name>`.

    `tags_by_trial` has tags by the trial's identity: `alternative`, `rank`, `figure`, `best_of_family`. Those
    that a run has already are not sent. `description` is Markdown. Raises TrackingError when the store does
    not answer.
    """
    with open_store(tracking_uri) as client:
        runs = run_store.find_corpus_runs(client, corpus, {run_tags.STUDY: study})
        for run in runs:
            known = {**run.data.tags, run_tags.ALTERNATIVE: run_tags.read_alternative(run.data.tags)}
            if known.get(run_tags.ROLE) == "study":
                written = {**run_tags.name_tags(tags), run_tags.NOTE: description}
            else:
                earlier = {name: value for name, value in NO_CONCLUSION.items() if known.get(name)}
                own = tags_by_trial.get(known.get(run_tags.TRIAL, ""), {})
                given = earlier | run_tags.name_tags(own)
                written = {name: value for name, value in given.items() if known.get(name) != value}
            if written:
                client.log_batch(run.info.run_id, tags=run_store.to_tags(written))
