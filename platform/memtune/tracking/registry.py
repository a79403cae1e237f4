"""The best model of each corpus: a registered model named after it, the winner aliased `champion`.

A result replaces the champion only if its validation is better under the same label (protocol and task) and
the same corpus digest; figures from different protocols or texts are never compared, so there a person must
say `replace`. The champion before stays as `previous`.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.errors import TrackingError
from memtune.tracking import champions, store
from memtune.tracking.card import Result, card_digest, write_package
from memtune.tracking.champions import CHAMPION, PREVIOUS, Champion
from memtune.tracking.commands import RunKey
from memtune.tracking.connection import connect, experiment_name, patiently, told_plainly
from memtune.tracking.version import code_version
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

__all__ = ["Decision", "register_champion"]


class Decision(Value):
    """What came of a candidate: the new champion, or None, and the reason in words."""

    champion: Champion | None
    reason: str


@dataclass(frozen=True)
class _Package:
    result: Result
    model_folder: Path
    vocabulary: Sequence[str]


def register_champion(
    tracking_uri: str,
    result: Result,
    model_folder: Path,
    vocabulary: Sequence[str],
    *,
    replace: bool = False,
    patience: float = 60.0,
) -> Decision:
    """Register the model that training saved in `model_folder` if it is the best of its corpus so far.

    The trial's run must be recorded: the files become its artifacts. `replace` registers the model whatever
    the champion is. A store that is away is tried for `patience` seconds; what was registered half-way is
    taken up again. Raises TrackingError when the run or a file is missing or the store stays away.
    """
    client = connect(tracking_uri)
    package = _Package(result, model_folder, vocabulary)
    with told_plainly(tracking_uri):
        return patiently(lambda: _register(client, package, replace=replace), patience)


def _register(client: "MlflowClient", package: "_Package", *, replace: bool) -> Decision:
    result = package.result
    champion = champions.aliased(client, experiment_name(result.corpus), CHAMPION)
    refusal = None if replace else _refusal(champion, result)
    if refusal:
        return Decision(champion=None, reason=refusal)
    candidate = _upload(client, package)
    if replace:
        _crown(client, candidate)
    elif (winner := _contend(client, candidate, champion)).version != candidate.version:
        reason = f"a better model came in meanwhile: {winner.uri}, {winner.told}"
        return Decision(champion=None, reason=reason)
    return Decision(champion=candidate, reason=_reason(champion, candidate))


def _refusal(champion: Champion | None, result: Result) -> str | None:
    """Why the result may not replace the champion, or None."""
    if champion is None:
        return None
    if champion.corpus_digest != result.corpus_digest:
        return (
            f"{champion.uri} was validated on another text of this name; "
            "register this one all the same with --replace-champion"
        )
    if champion.protocol != result.label:
        return (
            f'{champion.uri} stands under "{champion.protocol}", this one under "{result.label}"; their '
            "figures do not compare, and a corpus has one champion. To evaluate or ask this one, register it "
            f"by the same command with --replace-champion; {champion.uri} stays under that name"
        )
    if not result.cost < champion.cost:
        return f"{champion.uri} is as good or better: {champion.told}"
    return None


def _reason(champion: Champion | None, winner: Champion) -> str:
    return f"{winner.told}, before {champion.told}" if champion else f"first champion: {winner.told}"


def _upload(client: "MlflowClient", package: _Package) -> Champion:
    """Store the package among the artifacts of the trial's run, and a version that points there."""
    result = package.result
    run_id, location = _find_run(client, result)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_package(package.model_folder, package.vocabulary, result, code_version(), folder)
        content = card_digest(folder)
        path = f"model-{content[:12]}"
        _describe_to_mlflow(run_id, path, folder)
        client.log_artifacts(run_id, str(folder), path)
    champion = Champion(
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
    return champions.create(client, champion, f"{location}/{path}")


def _describe_to_mlflow(run_id: str, path: str, folder: Path) -> None:
    from memtune.tracking.flavor import describe_package

    describe_package(run_id, path).save(str(folder / "MLmodel"))


def _find_run(client: "MlflowClient", result: Result) -> tuple[str, str]:
    """The id of the trial's run, and the URI of its artifacts."""
    experiment = client.get_experiment_by_name(result.corpus)
    key = RunKey(result.study, result.trial)
    runs = store.find_runs(client, experiment.experiment_id, key.tags()) if experiment else []
    if not runs:
        where = f'trial {result.trial} of study "{result.study}" in experiment "{result.corpus}"'
        raise TrackingError(f"cannot register a model without its run: no {where}; record the trial first")
    return runs[0].info.run_id, runs[0].info.artifact_uri


def _contend(client: "MlflowClient", candidate: Champion, seen: Champion | None) -> Champion:
    """Crown the best of the candidate and what other processes registered since `seen` was champion.

    Each process looks again after it crowned one, so the best of all that contend ends as champion.
    """
    winner = _best(client, candidate, seen)
    _crown(client, winner)
    later = _best(client, candidate, seen)
    if later.version != winner.version:
        _crown(client, later)
    return later


def _best(client: "MlflowClient", candidate: Champion, seen: Champion | None) -> Champion:
    newer = champions.versions(client, candidate.corpus, after=seen.version if seen else 0)
    comparable = [candidate, *(version for version in newer if version.compares_with(candidate))]
    return min(comparable, key=lambda version: (version.cost, version.version))


def _crown(client: "MlflowClient", candidate: Champion) -> None:
    before = champions.aliased(client, candidate.corpus, CHAMPION)
    if before is not None and before.version != candidate.version:
        client.set_registered_model_alias(candidate.corpus, PREVIOUS, str(before.version))
    client.set_registered_model_alias(candidate.corpus, CHAMPION, str(candidate.version))
