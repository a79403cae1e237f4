"""The best models of each corpus: versions of a model named after the corpus, the best ones with an alias.

| alias | version |
|---|---|
| `champion` | the best of the main label (protocol and task), the one that was registered first |
| `champion-<label>` | the best of another label: figures compare only under one label |
| `best-<family>`, `best-<family>-<label>` | the best of a family |
| `previous`, `previous-<label>` | the champion before, of another study or configuration |

A result replaces the holder of an alias if its validation is better, if it is the newer conclusion of the
same study or of the same configuration without a study, or if the holder was trained on another text of this
name. Means over seeds compare with each
other. A single seed, which may be lucky, has to be better than the best seed of a mean.

A logged model holds the package, with the run that made it and its figures on a dataset. A version points to
it, so that MLflow's pages compare versions by their parameters and figures.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from memtune.errors import TrackingError
from memtune.plugins import PluginSource
from memtune.seed_statistics import Estimate
from memtune.storage.digests import hash_file
from memtune.storage.local_files import open_scratch_folder
from memtune.tracking.mlflow_connection import make_experiment_name, open_store, retry_while_unavailable
from memtune.tracking.registry import model_versions
from memtune.tracking.registry.model_package import (
    CARD_FILE,
    ModelResult,
    holds_package,
    write_run_package,
)
from memtune.tracking.registry.model_versions import CHAMPION_ALIAS, RegisteredVersion
from memtune.tracking.registry.text_rules import TextRules
from memtune.tracking.runs import run_store
from memtune.tracking.runs.run_store import RunKey
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run
    from mlflow.tracking import MlflowClient

PREVIOUS_ALIAS = "previous"
CONTENT_TAG = "memtune.content"
"""Of a logged model: the digest of its package's card."""
MODEL_TYPE = "language model"
MAX_PARAMETER_CHARACTERS = 500


class Registration(Value):
    """What the registry did with a candidate: the new champion, or None, and the reason in words."""

    champion: RegisteredVersion | None
    reason: str
    version: RegisteredVersion | None = None
    """The version of the candidate, perhaps registered before, or the best of its family only; else None."""


def register_if_better(
    tracking_uri: str,
    result: ModelResult,
    model_folder: Path,
    vocabulary: Sequence[str],
    *,
    rules: TextRules,
    sources: Sequence[PluginSource],
    as_champion: bool = True,
) -> Registration:
    """Register the model that training saved in `model_folder` if it is the best of its label or its family.

    The trial's run must be recorded: the model is logged as its output. `rules` say how text becomes tokens
    of the vocabulary; `sources` define what is not built in. Without `as_champion` the model competes for its
    family's alias alone. An unavailable store is retried for a minute; a registration that was interrupted is
    completed. Raises TrackingError when the run or a file is missing or the store stays unavailable.
    """

    def write(folder: Path, run_id: str) -> None:
        write_run_package(folder, run_id, result, model_folder, vocabulary, rules, sources)

    with open_store(tracking_uri) as client:
        return retry_while_unavailable(lambda: _register(client, result, write, as_champion))


def _register(
    client: "MlflowClient", result: ModelResult, write: Callable[[Path, str], None], as_champion: bool
) -> Registration:
    corpus = make_experiment_name(result.corpus)
    main = model_versions.find_by_alias(client, corpus, CHAMPION_ALIAS)
    # The aliases of the main label, which was registered first, have no suffix.
    is_main = main is None or main.protocol == result.label
    suffix = "" if is_main else model_versions.make_label_suffix(result.label)
    family_alias = f"{model_versions.FAMILY_ALIAS}-{result.configuration['model']['family']}{suffix}"
    aliases = [*([CHAMPION_ALIAS + suffix] if as_champion else []), family_alias]
    holders = {alias: model_versions.find_by_alias(client, corpus, alias) for alias in aliases}
    refusals = {alias: _explain_refusal(holders[alias], result) for alias in aliases}
    open_aliases = [alias for alias in aliases if refusals[alias] is None]
    if not open_aliases:
        holder = holders[aliases[0]]
        version = holder if holder is not None and holder.subject == result.subject else None
        if version is None:
            versions = model_versions.list_own_versions(client, corpus, after=0)
            if any(known.subject == result.subject for known in versions):
                # What was registered of this subject before is not its conclusion any more.
                version = _upload(client, result, write, " ".join(aliases))
        return Registration(champion=None, reason=str(refusals[aliases[0]]), version=version)
    candidate = _upload(client, result, write, " ".join(aliases))
    winners = {alias: _give_alias_to_best(client, candidate, holders[alias], alias) for alias in open_aliases}
    first = aliases[0]
    if (refusal := refusals[first]) is not None:
        return Registration(champion=None, reason=refusal, version=candidate)
    reason = _explain_decision(first, candidate, holders[first], winners[first])
    is_champion = as_champion and winners[first].version == candidate.version
    champion = candidate.model_copy(update={"alias": first}) if is_champion else None
    return Registration(champion=champion, reason=reason, version=candidate)


def _explain_refusal(holder: RegisteredVersion | None, result: ModelResult | RegisteredVersion) -> str | None:
    """Why the result may not replace the holder of an alias, or None."""
    if holder is None or holder.corpus_digest != result.corpus_digest:
        return None
    if holder.subject == result.subject:
        is_same = (holder.trial, holder.cost) == (result.trial, result.cost)
        return f"{holder.uri} is this model: {holder.summary}" if is_same else None
    if _is_better(result, holder):
        return None
    best = ""
    if result.cost < holder.cost:
        best = f"; its best seed has {holder.objective.format_cost(_get_limit(result, holder), 3)}"
    return f"{holder.uri} is as good or better: {holder.summary}{best}"


def _is_better(challenger: ModelResult | RegisteredVersion, holder: RegisteredVersion) -> bool:
    """Whether the challenger's validation is better. It then has the lower cost, so there are no cycles."""
    return challenger.cost < _get_limit(challenger, holder)


def _get_limit(challenger: ModelResult | RegisteredVersion, holder: RegisteredVersion) -> float:
    """The cost below which a challenger is better: of a single seed, that of the holder's best seed.

    A model that counts has the same cost under every seed.
    """
    is_single = challenger.estimate is None or challenger.estimate.seeds == 1
    if is_single and challenger.parameters != 0 and holder.trial_cost is not None:
        return min(holder.cost, holder.trial_cost)
    return holder.cost


def _explain_decision(
    alias: str, candidate: RegisteredVersion, holder: RegisteredVersion | None, winner: RegisteredVersion
) -> str:
    if winner.version != candidate.version:
        return f"a better model is registered: {winner.uri}, {winner.summary}"
    if holder is None:
        return f"first {alias.partition('-')[0]}: {candidate.summary}"
    text = "" if holder.corpus_digest == candidate.corpus_digest else " on another text of this name"
    return f"{candidate.summary}, before {holder.summary}{text}"


def _upload(
    client: "MlflowClient", result: ModelResult, write: Callable[[Path, str], None], offered_as: str
) -> RegisteredVersion:
    """Log the package as a model that the trial's run made, and register a version of it.

    `write` fills a folder with the package of a candidate, whose run has the id.
    """
    runs = run_store.find_corpus_runs(client, result.corpus, RunKey(result.study, result.trial).tags())
    if not runs:
        where = f'trial {result.trial} of study "{result.study}" in experiment "{result.corpus}"'
        raise TrackingError(f"cannot register a model without its run: no {where}; record the trial first")
    run = runs[0]
    with open_scratch_folder() as folder:
        write(folder, run.info.run_id)
        content = hash_file(folder / CARD_FILE)
        model = _log_model(client, run, result, content, folder)
    estimate = result.estimate or Estimate(cost=result.cost)
    same = {"corpus", "corpus_digest", "objective", "cost", "study", "trial", "trial_cost", "parameters"}
    candidate = RegisteredVersion(
        version=0,
        run_id=run.info.run_id,
        model_id=model.model_id,
        content=content,
        protocol=result.label,
        family=str(result.configuration["model"]["family"]),
        offered_as=offered_as,
        configuration_identity=result.configuration_identity,
        **result.model_dump(include=same),
        **estimate.model_dump(include={"seeds", "low", "high"}),
    )
    return model_versions.create_version(client, candidate, model.artifact_location)


def _give_alias_to_best(
    client: "MlflowClient", candidate: RegisteredVersion, holder: RegisteredVersion | None, alias: str
) -> RegisteredVersion:
    """Give the alias to the best of the candidate and the versions that others offered for it.

    Each process reads the versions again afterwards, so that the best of all candidates that are
    registered at the same time keeps the alias.
    """
    winner = _choose_best(client, candidate, holder, alias)
    _give_alias(client, winner, alias)
    later = _choose_best(client, candidate, holder, alias)
    if later.version != winner.version:
        _give_alias(client, later, alias)
    return later


def _choose_best(
    client: "MlflowClient", candidate: RegisteredVersion, holder: RegisteredVersion | None, alias: str
) -> RegisteredVersion:
    """The best of the candidate and of others' versions after the holder, the newest of each subject.

    Where the holder is an earlier conclusion on the candidate's subject, which may have been better, or knows
    another text, the versions before it count too.
    """
    is_own = holder is not None and holder.subject == candidate.subject
    is_foreign = holder is not None and holder.corpus_digest != candidate.corpus_digest
    after = 0 if holder is None or is_own or is_foreign else holder.version
    offered = [
        version
        for version in model_versions.list_own_versions(client, candidate.corpus, after=after)
        if (version.corpus_digest, version.protocol) == (candidate.corpus_digest, candidate.protocol)
        and alias in version.offered_as.split()
        and version.subject != candidate.subject
    ]
    newest = {version.subject: version for version in sorted(offered, key=lambda each: each.version)}
    others = [each for each in newest.values() if is_own or _explain_refusal(holder, each) is None]
    ordered = sorted([candidate, *others], key=lambda each: (each is not candidate and is_own, each.version))
    return reduce(lambda best, version: version if _is_better(version, best) else best, ordered)


def _give_alias(client: "MlflowClient", candidate: RegisteredVersion, alias: str) -> None:
    before = model_versions.find_by_alias(client, candidate.corpus, alias)
    role, dash, label = alias.partition("-")
    if role == CHAMPION_ALIAS and before is not None and before.subject != candidate.subject:
        client.set_registered_model_alias(
            candidate.corpus, f"{PREVIOUS_ALIAS}{dash}{label}", str(before.version)
        )
    client.set_registered_model_alias(candidate.corpus, alias, str(candidate.version))


def _log_model(
    client: "MlflowClient", run: "Run", result: ModelResult, content: str, folder: Path
) -> "LoggedModel":
    """Log the package in `folder` as a model of the run; one of this content gets its files where they miss.

    They may have been damaged since, or its registration was interrupted. Whole ones stay: they are written
    in place, and somebody may load them at this moment.
    """
    known = client.search_logged_models(
        [run.info.experiment_id], f"tags.`{CONTENT_TAG}` = '{content}'", max_results=1
    )
    # A model's name may not hold some signs of a run's.
    name = "".join("-" if sign in "/:.%\"'" else sign for sign in run.info.run_name)
    tags = {CONTENT_TAG: content, "memtune.protocol": result.label, "memtune.study": result.study}
    # The parameters of the run, so that pages compare both by the same names and values.
    given = run.data.params.items()
    parameters = {key: run_store.truncate_text(text, MAX_PARAMETER_CHARACTERS) for key, text in given}
    model = next(iter(known), None) or client.create_logged_model(
        run.info.experiment_id, name, run.info.run_id, tags, parameters, MODEL_TYPE
    )
    if not (known and holds_package(client.tracking_uri, model.artifact_location, content)):
        client.log_model_artifacts(model.model_id, str(folder))
    if str(model.status) != "READY":
        _log_figures(client, run, result, model)
        _link_to_run(client, run, model.model_id)
        model = client.finalize_logged_model(model.model_id, "READY")
    return model


def _log_figures(client: "MlflowClient", run: "Run", result: ModelResult, model: "LoggedModel") -> None:
    """Log the figures of the weights and of their configuration on the dataset that the run read.

    They have the time of the model, because a registration that was interrupted logs them again, and MLflow
    keeps one of two equal metrics of one time.
    """
    # Imported here: MLflow loads for seconds; see mlflow_connection.
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
    from mlflow.entities import LoggedModelOutput

    known = run.outputs.model_outputs if run.outputs else []
    if model_id not in [output.model_id for output in known]:
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model_id, 0)])
