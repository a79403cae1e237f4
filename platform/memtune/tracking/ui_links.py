"""Links into MLflow's pages: the table of a corpus's trials, and the comparison of some runs."""

import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from memtune.errors import TrackingError
from memtune.objective import Objective, better_direction
from memtune.tracking.compatibility import comparison_fragment, experiment_fragment, shared_view_tag
from memtune.tracking.mlflow_connection import connect, is_server, translate_mlflow_errors
from memtune.tracking.runs.run_commands import ROLE_TAG, STUDY_TAG, best_metric_name

__all__ = ["comparison_link", "experiment_link"]

METRIC_COLUMNS = ("train_perplexity", "tokens_per_second", "seconds")
LOCAL_PAGES_URL = "http://127.0.0.1:5000"


def experiment_link(
    tracking_uri: str,
    corpus: str,
    parameters: Sequence[str],
    study: str | None = None,
    pages_url: str | None = None,
    objective: Objective = "perplexity",
) -> str:
    """A link to the table of a corpus's trials, best first; columns are the main metrics and `parameters`.

    Stores the view on the experiment. `pages_url` is the address of the pages when the store is a file.
    Raises TrackingError when nothing is recorded for the corpus.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        experiment_id = _find_experiment_id(tracking_uri, corpus)
        name = f"memtune-{study}" if study else "memtune"
        state = json.dumps(build_view(parameters, study, objective))
        client.set_experiment_tag(experiment_id, shared_view_tag(name), state)
    return _pages_url(tracking_uri, pages_url) + experiment_fragment(experiment_id, quote(name))


def build_view(parameters: Sequence[str], study: str | None, objective: Objective) -> Mapping[str, object]:
    """The table of trials without their study's run, ordered by the best validation."""
    conditions = [f"tags.`{ROLE_TAG}` = 'trial'", *([f"tags.`{STUDY_TAG}` = '{study}'"] if study else [])]
    best = best_metric_name(objective)
    metrics = [f"metrics.`{name}`" for name in (best, f"valid_{objective}", *METRIC_COLUMNS)]
    return {
        "searchFilter": " AND ".join(conditions),
        "orderByKey": f"metrics.`{best}`",
        "orderByAsc": better_direction(objective) == "lower",
        "selectedColumns": [*metrics, *(f"params.`{name}`" for name in parameters)],
    }


def comparison_link(
    tracking_uri: str, corpus: str, run_ids: Sequence[str], pages_url: str | None = None
) -> str:
    """A link to the page that compares these runs; `pages_url` as in `experiment_link`."""
    with translate_mlflow_errors(tracking_uri):
        experiment_id = _find_experiment_id(tracking_uri, corpus)
    runs, experiments = (quote(json.dumps(ids)) for ids in (list(run_ids), [experiment_id]))
    return _pages_url(tracking_uri, pages_url) + comparison_fragment(runs, experiments)


def _find_experiment_id(tracking_uri: str, corpus: str) -> str:
    experiment = connect(tracking_uri).get_experiment_by_name(corpus)
    if experiment is None:
        raise TrackingError(f'nothing is recorded for corpus "{corpus}" in {tracking_uri}')
    return str(experiment.experiment_id)


def _pages_url(tracking_uri: str, pages_url: str | None) -> str:
    return (pages_url or (tracking_uri if is_server(tracking_uri) else LOCAL_PAGES_URL)).rstrip("/")
