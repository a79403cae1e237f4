"""Models as MLflow's pages list them: with the run that made them and their figures on a dataset.

A logged model holds the package. A version in the registry points to it, so that the pages compare versions
by their parameters and figures.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from memtune.errors import TrackingError
from memtune.tracking.home_artifacts import find_local_folder
from memtune.tracking.registry.model_package import (
    MAX_TEXT_BYTES,
    PACKAGE_FILES,
    WEIGHTS_FILE,
    ModelResult,
    check_package,
)
from memtune.tracking.runs.run_entries import truncate_text

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run
    from mlflow.tracking import MlflowClient

CONTENT_TAG = "memtune.content"
"""The digest of the package's card."""
MODEL_TYPE = "language model"
MAX_PARAMETER_CHARACTERS = 500


def log_model(
    client: "MlflowClient", run: "Run", result: ModelResult, content: str, folder: Path
) -> "LoggedModel":
    """Log the package in `folder` as a model of the run; one that has this content already is completed."""
    model = _find_model(client, run, content) or client.create_logged_model(
        run.info.experiment_id,
        _make_name(run.info.run_name),
        run.info.run_id,
        {CONTENT_TAG: content, "memtune.protocol": result.label, "memtune.study": result.study},
        _collect_parameters(run),
        MODEL_TYPE,
    )
    if str(model.status) != "READY":
        client.log_model_artifacts(model.model_id, str(folder))
        _log_figures(client, run, result, model)
        _link_to_run(client, run, model.model_id)
        model = client.finalize_logged_model(model.model_id, "READY")
    return model


def _find_model(client: "MlflowClient", run: "Run", content: str) -> "LoggedModel | None":
    """The model of this content, perhaps incomplete: a registration may have been interrupted."""
    found = client.search_logged_models(
        [run.info.experiment_id], f"tags.`{CONTENT_TAG}` = '{content}'", max_results=1
    )
    return found[0] if found else None


def _make_name(name: str) -> str:
    """A model's name, which may not hold some signs of a run's."""
    return "".join("-" if sign in "/:.%\"'" else sign for sign in name)


def _collect_parameters(run: "Run") -> dict[str, str]:
    """The parameters of the model's run, so that pages compare both by the same names and values."""
    return {name: truncate_text(text, MAX_PARAMETER_CHARACTERS) for name, text in run.data.params.items()}


def _log_figures(client: "MlflowClient", run: "Run", result: ModelResult, model: "LoggedModel") -> None:
    """Log the figures of the weights and of their configuration on the dataset that the run read.

    They have the time of the model, because a registration that was interrupted logs them again, and MLflow
    keeps one of two equal metrics of one time.
    """
    # Imported here, as below: MLflow loads for seconds; see mlflow_connection.
    from mlflow.entities import Metric

    figures = {f"model_valid_{result.objective}": result.objective.compute_figure(result.cost)}
    if result.trial_cost is not None:
        figures[f"model_weights_valid_{result.objective}"] = result.objective.compute_figure(
            result.trial_cost
        )
    given = run.inputs.dataset_inputs if run.inputs else []
    name, digest = (given[0].dataset.name, given[0].dataset.digest) if given else (None, None)
    step = int(result.metrics.get("tokens", 0))
    metrics = [
        Metric(
            figure,
            value,
            model.creation_timestamp,
            step,
            model_id=model.model_id,
            dataset_name=name,
            dataset_digest=digest,
            run_id=run.info.run_id,
        )
        for figure, value in figures.items()
    ]
    client.log_batch(run.info.run_id, metrics=metrics)


def _link_to_run(client: "MlflowClient", run: "Run", model_id: str) -> None:
    """Make the model an output of its run."""
    from mlflow.entities import LoggedModelOutput

    known = run.outputs.model_outputs if run.outputs else []
    if model_id not in [output.model_id for output in known]:
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model_id, 0)])


def download_model(client: "MlflowClient", tracking_uri: str, model_id: str, folder: Path) -> Path:
    """Download a logged model's package into `folder`; returns its folder.

    Raises TrackingError before copying what is not a package: a device or a pipe would never end. MLflow
    follows links in a local folder, so those are checked here; elsewhere a listing has to do.
    """
    from mlflow.artifacts import download_artifacts

    location = client.get_logged_model(model_id).artifact_location
    local = find_local_folder(tracking_uri, location)
    if local is not None:
        check_package(local)
    else:
        for file in client.list_logged_model_artifacts(model_id):
            is_too_large = file.path != WEIGHTS_FILE and (file.file_size or 0) > MAX_TEXT_BYTES
            if file.is_dir or file.path not in PACKAGE_FILES or is_too_large:
                raise TrackingError(f"model {model_id} holds {file.path}, which is not part of a package")
    return Path(download_artifacts(artifact_uri=location, dst_path=str(folder), tracking_uri=tracking_uri))
