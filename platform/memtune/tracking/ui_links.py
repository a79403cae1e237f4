"""Links into MLflow's pages: the trials of a corpus as a table and as charts."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from memtune.errors import TrackingError
from memtune.objective import Objective
from memtune.tracking import compatibility
from memtune.tracking.mlflow_connection import (
    has_store,
    is_server,
    open_store,
    set_experiment_kind,
    summarize_error,
)
from memtune.tracking.mlflow_ui import find_running_pages
from memtune.tracking.registry.model_versions import CHAMPION_ALIAS, find_own_by_alias
from memtune.tracking.runs import run_store, run_tags

if TYPE_CHECKING:
    from mlflow.entities import Run

log = logging.getLogger(__name__)
LOCAL_PAGES_URL = "http://127.0.0.1:5000"
MODELS_COLUMN = "attributes.`Models`"
NAME_COLUMN = "attributes.`Run Name`"
CREATED_COLUMN = "runDateAndNestInfo"
TRAINING_PREFIX = "training."
"""Starts the names of parameters that a model has which learns by gradients, not by counting."""
CHARTED_PREFIXES = ("model.", TRAINING_PREFIX)
UNCHARTED = ("training.tokens", "training.epochs", "training.report_every")
MAX_CHARTED_PARAMETERS = 7


@dataclass(frozen=True)
class CorpusPages:
    """The addresses of a corpus's trials in MLflow's pages."""

    corpus: str
    trials: str
    """The table of all trials of one label, best first."""
    charts: str
    """Charts of these trials."""
    families: str
    """Charts of the best trial of each alternative."""
    compares_fields: bool
    """Whether a study of these trials compares another field than the family."""
    answer: str
    """The best model in a sentence; "" while there is no champion."""
    is_served: bool
    """Whether a `memtune ui` of this user serves them, or is about to."""

    def list_titled_links(self) -> tuple[tuple[str, str], ...]:
        """The addresses with what they show."""
        return (
            ("trials in MLflow", self.trials),
            ("their charts", self.charts),
            (f"charts of {_describe_best(self.compares_fields)}", self.families),
        )


def link_corpus(
    tracking_uri: str,
    corpus: str,
    label: str | None = None,
    study: str | None = None,
    pages_url: str | None = None,
) -> CorpusPages:
    """The pages of a corpus's trials under a label, which compare; by default that of the champion.

    Without a champion it is the label of most trials. `study` is the id of a study whose trials are shown
    alone. Stores the views on the experiment. `pages_url` is the address of the pages when the store is a
    file, by default that of the running `memtune ui`. Raises TrackingError when nothing is recorded for the
    corpus.
    """
    # Imported here: MLflow loads for seconds, which commands without tracking need not wait for.
    from mlflow.exceptions import MlflowException

    with open_store(tracking_uri) as client:
        champion = find_own_by_alias(client, corpus, CHAMPION_ALIAS)
        experiment = client.get_experiment_by_name(corpus)
        if experiment is None:
            raise TrackingError(f'nothing is recorded for corpus "{corpus}" in {tracking_uri}')
        experiment_id, note = experiment.experiment_id, experiment.tags.get(run_tags.NOTE, "")
        runs = run_store.find_runs(client, [experiment_id], {run_tags.ROLE: "trial"})
        labels = Counter(run.data.tags.get(run_tags.PROTOCOL, "") for run in runs)
        usual = label or (champion.protocol if champion else max(labels, key=labels.__getitem__, default=""))
        kept = [run for run in runs if run.data.tags.get(run_tags.PROTOCOL, "") == usual]
        kept = [run for run in kept if study in (None, run.data.tags.get(run_tags.STUDY))]
        conditions = {run_tags.ROLE: "trial", run_tags.PROTOCOL: usual, run_tags.STUDY: study or ""}
        named = study or (label if label and champion and label != champion.protocol else None)
        suffix = "-" + re.sub(r"[^\w.]+", "-", named).strip("-") if named else ""
        views = _build_views(kept, {tag: value for tag, value in conditions.items() if value}, tracking_uri)
        try:
            set_experiment_kind(client, experiment)
            for name, value in views.items():
                client.set_experiment_tag(experiment_id, compatibility.SHARED_VIEW_TAG + name + suffix, value)
        except MlflowException as error:  # who may only read has the pages without the newest views
            log.warning(
                "the views of corpus %s in MLflow are not updated: %s", corpus, summarize_error(error)
            )
    served = pages_url or find_running_pages(tracking_uri)
    address = (served or (tracking_uri if is_server(tracking_uri) else LOCAL_PAGES_URL)).rstrip("/")
    trials, families = quote(f"memtune{suffix}"), quote(f"memtune-families{suffix}")
    return CorpusPages(
        corpus,
        address + compatibility.format_experiment_fragment(experiment_id, trials),
        address + compatibility.format_experiment_fragment(experiment_id, trials, has_charts=True),
        address + compatibility.format_experiment_fragment(experiment_id, families, has_charts=True),
        _compares_fields(kept),
        note,
        served is not None,
    )


def link_corpora(tracking_uri: str, pages_url: str | None = None) -> list[CorpusPages]:
    """The pages of every corpus with a recorded trial, by name; see `link_corpus`."""
    if not has_store(tracking_uri):
        return []
    with open_store(tracking_uri) as client:
        experiments = client.search_experiments(order_by=["name ASC"])
        recorded = [
            str(experiment.name)
            for experiment in experiments
            if client.search_runs(
                [experiment.experiment_id], f"tags.`{run_tags.ROLE}` = 'trial'", max_results=1
            )
        ]
    return [link_corpus(tracking_uri, corpus, pages_url=pages_url) for corpus in recorded]


def _compares_fields(runs: "Sequence[Run]") -> bool:
    tags = [run.data.tags for run in runs]
    return any(run_tags.read_alternative(own) != own.get(run_tags.FAMILY, "") for own in tags)


def _describe_best(compares_fields: bool) -> str:
    return f"the best of each {'alternative' if compares_fields else 'family'}"


def _find_bests(runs: "Sequence[Run]", objective: Objective) -> list[str]:
    """The ids of one run for each alternative: of those that lead it in their study, the best-validated.

    Two studies may compare a field under different families.
    """
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for run in runs:
        figure = run.data.metrics.get(run_tags.RANKING_METRIC)
        if run.data.tags.get(run_tags.BEST_OF_FAMILY) == "yes" and figure is not None:
            key = run.data.tags.get(run_tags.FAMILY, ""), run_tags.read_alternative(run.data.tags)
            order = figure if objective.direction == "lower" else -figure
            best[key] = min(best.get(key, (order, run.info.run_id)), (order, run.info.run_id))
    return [run_id for _, run_id in best.values()]


def _build_views(runs: Sequence["Run"], conditions: Mapping[str, str], tracking_uri: str) -> dict[str, str]:
    """The shared views of these trials by name: tables and charts of all, and of the best of alternatives."""
    objectives = {run_tags.read_objective(run.data.tags) for run in runs}
    objective = Objective.ACCURACY if Objective.ACCURACY in objectives else Objective.PERPLEXITY
    charts, version = _build_charts(runs, objective), compatibility.read_pages_version(tracking_uri)
    scope = conditions.get(run_tags.STUDY) or conditions.get(run_tags.PROTOCOL)
    best, views = {**conditions, run_tags.BEST_OF_FAMILY: "yes"}, dict[str, str]()
    for name, title, selected, run_ids in (
        ("memtune", "all trials", conditions, []),
        ("memtune-families", _describe_best(_compares_fields(runs)), best, _find_bests(runs, objective)),
    ):
        shown = f"memtune: {title}" + (f", {scope}" if scope else "")
        table = _build_table(runs, objective, selected, run_ids)
        views[name] = compatibility.encode_shared_view(shown, table, charts, version)
    return views


def _build_table(
    runs: Sequence["Run"], objective: Objective, conditions: Mapping[str, str], run_ids: Sequence[str]
) -> dict[str, object]:
    """The table of trials without their study's run, the best first: its filter, its order, its columns.

    With `run_ids`, of these trials alone.
    """
    filters = [f"tags.`{tag}` = '{value}'" for tag, value in conditions.items()]
    if run_ids:
        filters.append(f"attributes.run_id IN ({', '.join(repr(run_id) for run_id in run_ids)})")
    has_ideal = any(run.data.tags.get(run_tags.IDEAL) for run in runs)
    has_prices = any(run_tags.MONEY_METRIC in run.data.metrics for run in runs)
    metrics = [run_tags.RANKING_METRIC, *([run_tags.ABOVE_IDEAL_METRIC] if has_ideal else [])]
    money = [run_tags.MONEY_METRIC] if has_prices else []
    alternative = [f"tags.`{run_tags.ALTERNATIVE}`"] if _compares_fields(runs) else []
    used = [run_tags.TOKENS_METRIC, run_tags.HOURS_METRIC, *money]
    # They answer which model is best, by how much, at what size and cost.
    columns = [
        *alternative,
        *(f"metrics.`{name}`" for name in metrics),
        f"params.`{run_tags.SIZE_PARAMETER}`",
        f"params.`{run_tags.STATE_PARAMETER}`",
        f"tags.`{run_tags.STATUS}`",
        *(f"metrics.`{name}`" for name in used),
        f"tags.`{run_tags.RANK}`",
        f"tags.`{run_tags.STUDY}`",
        MODELS_COLUMN,
    ]
    return {
        "searchFilter": " AND ".join(filters),
        "orderByKey": f"metrics.`{run_tags.RANKING_METRIC}`",
        "orderByAsc": objective.direction == "lower",
        "selectedColumns": columns,
        "columnOrder": [NAME_COLUMN, CREATED_COLUMN, *columns],
    }


def _build_charts(runs: Sequence["Run"], objective: Objective) -> dict[str, object]:
    """The charts of these trials, with the parameters that all have: a chart drops other runs."""
    parameters = [run.data.params for run in runs]
    trained = [own for own in parameters if any(name.startswith(TRAINING_PREFIX) for name in own)]
    charted = trained or parameters
    alternative = (run_tags.ALTERNATIVE_PARAMETER,) if _compares_fields(runs) else ()
    prefixes = (*alternative, *CHARTED_PREFIXES)
    searched = [
        name
        for name in (sorted(set.intersection(*map(set, charted))) if charted else ())
        if name.startswith(prefixes) and name not in UNCHARTED and len({p[name] for p in charted}) > 1
    ]
    return compatibility.build_charts(
        objective,
        run_tags.RANKING_METRIC,
        run_tags.SIZE_PARAMETER,
        searched[:MAX_CHARTED_PARAMETERS],
        has_counting=0 < len(trained) < len(parameters),
    )
