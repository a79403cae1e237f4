"""The best model of each corpus: versions of a model named after the corpus, the best one aliased `champion`.

A result replaces the champion only if its validation is better under the same label (protocol and task) and
the same corpus digest; figures from different protocols or texts are never compared, so
there a person must set `replace`. The previous champion keeps the alias `previous`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.errors import TrackingError
from memtune.storage.scratch_folder import open_scratch_folder
from memtune.tracking.code_version import read_code_version
from memtune.tracking.mlflow_connection import (
    connect,
    experiment_name,
    retry_while_unavailable,
    translate_mlflow_errors,
)
from memtune.tracking.registry import model_versions
from memtune.tracking.registry.model_package import ModelResult, digest_card, write_package
from memtune.tracking.registry.model_versions import CHAMPION_ALIAS, PREVIOUS_ALIAS, RegisteredVersion
from memtune.tracking.runs import run_store
from memtune.tracking.runs.run_commands import RunKey
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

__all__ = ["Promotion", "register_if_better"]


class Promotion(Value):
    """The decision on a candidate: the new champion, or None, and the reason in words."""

    champion: RegisteredVersion | None
    reason: str


@dataclass(frozen=True)
class _Package:
    result: ModelResult
    model_folder: Path
    vocabulary: Sequence[str]


def register_if_better(
    tracking_uri: str,
    result: ModelResult,
    model_folder: Path,
    vocabulary: Sequence[str],
    *,
    replace: bool = False,
    retry_seconds: float = 60.0,
) -> Promotion:
    """Register the model that training saved in `model_folder` if it is the best of its corpus so far.

    The trial's run must be recorded: the files become its artifacts. `replace` registers the model whatever
    the champion is. An unavailable store is retried for `retry_seconds`; a registration that was
    interrupted is completed. Raises TrackingError when the run or a file is missing or the store stays
    unavailable.
    """
    client = connect(tracking_uri)
    package = _Package(result, model_folder, vocabulary)
    with translate_mlflow_errors(tracking_uri):
        return retry_while_unavailable(lambda: _register(client, package, replace=replace), retry_seconds)


def _register(client: "MlflowClient", package: "_Package", *, replace: bool) -> Promotion:
    result = package.result
    champion = model_versions.find_by_alias(client, experiment_name(result.corpus), CHAMPION_ALIAS)
    refusal = None if replace else _explain_refusal(champion, result)
    if refusal:
        return Promotion(champion=None, reason=refusal)
    candidate = _upload(client, package)
    if replace:
        _promote(client, candidate)
    elif (winner := _promote_best(client, candidate, champion)).version != candidate.version:
        reason = f"a better model was registered meanwhile: {winner.uri}, {winner.summary}"
        return Promotion(champion=None, reason=reason)
    return Promotion(champion=candidate, reason=_explain_promotion(champion, candidate))


def _explain_refusal(champion: RegisteredVersion | None, result: ModelResult) -> str | None:
    """Why the result may not replace the champion, or None."""
    if champion is None:
        return None
    if champion.corpus_digest != result.corpus_digest:
        return (
            f"{champion.uri} was validated on another text of this name; "
            "to register this one anyway, use --replace-champion"
        )
    if champion.protocol != result.label:
        return (
            f'{champion.uri} stands under "{champion.protocol}", this one under "{result.label}"; their '
            "figures do not compare, and a corpus has one champion. To evaluate or ask this one, register it "
            f"by the same command with --replace-champion; {champion.uri} stays under that name"
        )
    if not result.cost < champion.cost:
        return f"{champion.uri} is as good or better: {champion.summary}"
    return None


def _explain_promotion(champion: RegisteredVersion | None, winner: RegisteredVersion) -> str:
    return f"{winner.summary}, before {champion.summary}" if champion else f"first champion: {winner.summary}"


def _upload(client: "MlflowClient", package: _Package) -> RegisteredVersion:
    """Store the package among the artifacts of the trial's run, and register a version that points there."""
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from memtune.tracking.registry.pyfunc_flavor import describe_package

    result = package.result
    run_id, location = _find_run(client, result)
    with open_scratch_folder() as folder:
        write_package(
            package.model_folder,
            package.vocabulary,
            result,
            read_code_version(),
            folder,
            lambda path: describe_package(run_id).save(str(path)),
        )
        content = digest_card(folder)
        path = f"model-{content[:12]}"
        client.log_artifacts(run_id, str(folder), path)
    champion = RegisteredVersion(
        corpus=result.corpus,
        version=0,
        run_id=run_id,
        path=path,
        content=content,
        corpus_digest=result.corpus_digest,
        protocol=result.label,
        objective=result.objective,
        cost=result.cost,
        family=str(result.configuration["model"]["family"]),
        study=result.study,
        trial=result.trial,
    )
    return model_versions.create_version(client, champion, f"{location}/{path}")


def _find_run(client: "MlflowClient", result: ModelResult) -> tuple[str, str]:
    """The id of the trial's run, and the URI of its artifacts."""
    experiment = client.get_experiment_by_name(result.corpus)
    key = RunKey(result.study, result.trial)
    runs = run_store.find_runs(client, experiment.experiment_id, key.tags()) if experiment else []
    if not runs:
        where = f'trial {result.trial} of study "{result.study}" in experiment "{result.corpus}"'
        raise TrackingError(f"cannot register a model without its run: no {where}; record the trial first")
    return runs[0].info.run_id, runs[0].info.artifact_uri


def _promote_best(
    client: "MlflowClient", candidate: RegisteredVersion, known_champion: RegisteredVersion | None
) -> RegisteredVersion:
    """Promote the best of the candidate and the versions that others registered after `known_champion`.

    Each process reads the versions again after its promotion, so that the best of all candidates that are
    registered at the same time ends as champion.
    """
    winner = _choose_best(client, candidate, known_champion)
    _promote(client, winner)
    later = _choose_best(client, candidate, known_champion)
    if later.version != winner.version:
        _promote(client, later)
    return later


def _choose_best(
    client: "MlflowClient", candidate: RegisteredVersion, known_champion: RegisteredVersion | None
) -> RegisteredVersion:
    newer = model_versions.list_versions(
        client, candidate.corpus, after=known_champion.version if known_champion else 0
    )
    comparable = [candidate, *(version for version in newer if version.is_comparable_with(candidate))]
    return min(comparable, key=lambda version: (version.cost, version.version))


def _promote(client: "MlflowClient", candidate: RegisteredVersion) -> None:
    before = model_versions.find_by_alias(client, candidate.corpus, CHAMPION_ALIAS)
    if before is not None and before.version != candidate.version:
        client.set_registered_model_alias(candidate.corpus, PREVIOUS_ALIAS, str(before.version))
    client.set_registered_model_alias(candidate.corpus, CHAMPION_ALIAS, str(candidate.version))
