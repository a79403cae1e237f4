"""Registered versions as their tags describe them: which is champion is known without a download."""

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field, FiniteFloat, ValidationError, computed_field

from memtune.data_frames import make_frame, render_table
from memtune.errors import TrackingError, did_you_mean
from memtune.objective import Objective
from memtune.seed_statistics import Estimate
from memtune.storage.uris import find_sqlite_path
from memtune.tracking import mlflow_connection
from memtune.tracking.compatibility import MODEL_VERSIONS_TAG
from memtune.tracking.mlflow_connection import has_store, open_store, read_pages
from memtune.tracking.runs import run_tags
from memtune.tracking.runs.recorded_runs import find_trial_run, is_trial_name
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

CHAMPION_ALIAS = "champion"
FAMILY_ALIAS = "best"

logger = logging.getLogger(__name__)


class ForeignVersionError(TrackingError):
    """A registered version without memtune's tags, or with tags that memtune does not write."""


def name_subject(study: str, configuration: str) -> tuple[str, str]:
    """What a result concludes: its study, or the configuration that was trained without one."""
    return study, configuration if study == run_tags.NO_STUDY else ""


class RegisteredVersion(Value):
    """A registered version: where it came from and how good it is on validation."""

    model_config = ConfigDict(strict=False)  # tags are texts

    corpus: str
    version: int
    run_id: str
    model_id: str | None = Field(default=None, pattern=r"^m-[0-9a-f]{32}$")
    """Of the logged model that holds the package; None for earlier versions of memtune, which have `path`."""
    path: str | None = Field(default=None, pattern=r"^model-[0-9a-f]{12}$")
    """Of the package among the run's artifacts. It becomes part of a path, and whoever can write to the
    registry chooses it: so its form is checked."""
    content: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the package's card, and the name of its folder in the cache."""
    corpus_digest: str
    protocol: str
    """Its label: the protocol, and the task where that is not language modelling."""
    objective: Objective
    cost: FiniteFloat
    """Of the validation split by that objective, lower is better: the mean over seeds."""
    family: str
    study: str
    trial: str
    configuration_identity: str = ""
    """That of a training without a study, without its seed; empty for a study and in earlier versions."""
    seeds: int = Field(default=1, ge=1)
    low: FiniteFloat | None = None
    """The lower bound of the cost's 95 % interval; None without an interval."""
    high: FiniteFloat | None = None
    trial_cost: float | None = None
    """The cost of the registered weights; None for versions of a single seed, whose cost it is."""
    parameters: int | None = None
    """Trained parameters; None for versions of an earlier memtune."""
    offered_as: str = CHAMPION_ALIAS
    """The aliases that this version competed for."""
    alias: str | None = None
    """The alias under which the version was found."""

    @property
    def uri(self) -> str:
        """`models:/<corpus>/<version>`."""
        return f"models:/{self.corpus}/{self.version}"

    @property
    def subject(self) -> tuple[str, str]:
        """What a later version concludes again."""
        return name_subject(self.study, self.configuration_identity or self.trial)

    @property
    def is_of_study(self) -> bool:
        """Whether a study trained it, and not `memtune train`."""
        return self.study != run_tags.NO_STUDY

    @computed_field  # type: ignore[prop-decorator]
    @property
    def figure(self) -> float:
        """The validation perplexity or accuracy."""
        return self.objective.compute_figure(self.cost)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the figure over seeds; None without an interval."""
        return self.estimate.compute_interval(self.objective)

    @property
    def estimate(self) -> Estimate:
        """The cost with its interval."""
        return Estimate(cost=self.cost, seeds=self.seeds, low=self.low, high=self.high)

    @property
    def summary(self) -> str:
        """The figure in words."""
        figure = self.estimate.describe(self.objective, 3, is_counted=self.parameters == 0)
        return f"validation {self.objective} {figure}"

    def list_columns(self) -> dict[str, Any]:
        """The columns of a data frame."""
        low, high = self.interval or (None, None)
        return {
            "model": f"models:/{self.corpus}@{self.alias}" if self.alias else self.uri,
            "version": self.version,
            "family": self.family,
            "protocol": self.protocol,
            "objective": self.objective,
            "figure": self.figure,
            "low": low,
            "high": high,
            "seeds": self.seeds,
            "parameters": self.parameters,
            "study": self.study,
        }

    def to_frame(self) -> Any:
        """A pandas data frame with one row."""
        return make_frame([self.list_columns()])

    def __repr__(self) -> str:
        return f"RegisteredVersion({self.uri}: {self.family}, {self.summary})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return render_table(f"{self.uri}: {self.summary}", self.to_frame())


def make_label_suffix(label: str) -> str:
    """A label within an alias, which has letters, digits, "_" and "-" only.

    >>> make_label_suffix("sentence, agreement by accuracy")
    '-sentence-agreement-by-accuracy'
    """
    return "-" + re.sub(r"[^\w]+", "-", label).strip("-")


def list_champions(tracking_uri: str, corpus: str | None = None) -> list[RegisteredVersion]:
    """The champion of every label of a corpus, or of all corpora, by name, that of the main label first.

    Models that memtune did not register are skipped with a warning.
    """
    found: list[RegisteredVersion | None] = []
    if not has_store(tracking_uri):
        return []
    with open_store(tracking_uri) as client:
        for name in [name for name in list_model_names(client) if corpus in (None, name)]:
            aliases = sorted(client.get_registered_model(name).aliases)
            champions = [alias for alias in aliases if alias.partition("-")[0] == CHAMPION_ALIAS]
            found += [find_own_by_alias(client, name, alias) for alias in champions]
    return [champion for champion in found if champion is not None]


def find_own_by_alias(client: "MlflowClient", corpus: str, alias: str) -> RegisteredVersion | None:
    """As `find_by_alias`, but a version that memtune did not register is skipped with a warning."""
    try:
        return find_by_alias(client, corpus, alias)
    except ForeignVersionError as error:
        logger.warning("skipped: %s", error)
        return None


def list_model_names(client: "MlflowClient") -> list[str]:
    """Every registered model, by name."""
    found = read_pages(lambda token: client.search_registered_models(order_by=["name ASC"], page_token=token))
    return [model.name for model in found]


def find_by_alias(client: "MlflowClient", corpus: str, alias: str) -> RegisteredVersion | None:
    """The version that carries an alias, or None. Raises ForeignVersionError when memtune did not
    register it."""
    found = mlflow_connection.find_or_none(lambda: client.get_model_version_by_alias(corpus, alias))
    return None if found is None else _to_registered_version(found).model_copy(update={"alias": alias})


def list_own_versions(client: "MlflowClient", corpus: str, after: int) -> list[RegisteredVersion]:
    """The versions of a corpus that memtune registered, newer than the version `after`."""
    found: list[RegisteredVersion] = []
    for version in _list_all_versions(client, corpus):
        with suppress(ForeignVersionError):
            if int(version.version) > after:
                found.append(_to_registered_version(version))
    return found


def _list_all_versions(client: "MlflowClient", corpus: str) -> list["ModelVersion"]:
    """Every version of a registered model, others' too."""
    return read_pages(lambda token: client.search_model_versions(f"name = '{corpus}'", page_token=token))


def create_version(client: "MlflowClient", candidate: RegisteredVersion, source: str) -> RegisteredVersion:
    """Register a version with its description as tags and no alias, or give the one of the same content."""
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(candidate.corpus, description="The best models of this corpus.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    known = _find_same(client, candidate)
    if known is None:
        created = client.create_model_version(
            candidate.corpus,
            source,
            candidate.run_id,
            _make_tags(candidate),
            description=candidate.summary,
            model_id=candidate.model_id,
        )
        # Another process may have registered the same content meanwhile: the first version stays.
        known = _find_same(client, candidate)
        if known is None or known.version == int(created.version):
            if candidate.model_id is not None:
                named = json.dumps([{"name": candidate.corpus, "version": created.version}])
                client.set_logged_model_tags(candidate.model_id, {MODEL_VERSIONS_TAG: named})
            return candidate.model_copy(update={"version": int(created.version)})
        try:
            client.delete_model_version(candidate.corpus, created.version)
        except MlflowException as error:
            logger.warning("two equal versions of %s remain: %s", candidate.corpus, error)
    together = " ".join(sorted({*known.offered_as.split(), *candidate.offered_as.split()}))
    if together != known.offered_as:
        client.set_model_version_tag(known.corpus, str(known.version), "offered_as", together)
    return known.model_copy(update={"offered_as": together})


def _find_same(client: "MlflowClient", candidate: RegisteredVersion) -> RegisteredVersion | None:
    """The first version with the content of a candidate."""
    own = list_own_versions(client, candidate.corpus, after=0)
    same = (version for version in own if version.content == candidate.content)
    return min(same, key=lambda version: version.version, default=None)


def _make_tags(candidate: RegisteredVersion) -> dict[str, str]:
    untagged = ("corpus", "version", "run_id", "alias")
    tags = {name: str(value) for name, value in candidate if name not in untagged and value not in (None, "")}
    tags[f"valid_{candidate.objective}"] = str(candidate.figure)
    tags["cost_unit"] = candidate.objective.cost_unit
    if candidate.interval is not None:
        low, high = candidate.interval
        tags |= {f"valid_{candidate.objective}_low": str(low), f"valid_{candidate.objective}_high": str(high)}
    return tags


def describe_registered(
    tracking_uri: str,
    version: RegisteredVersion,
    description: str,
    of_model: str | None = None,
    of_corpus: str | None = None,
) -> None:
    """Set the Markdown that the pages show of a version and, where given, of its model and its corpus.

    Raises TrackingError when the store does not answer.
    """
    with open_store(tracking_uri) as client:
        client.update_model_version(version.corpus, str(version.version), description)
        if of_model is not None:
            client.update_registered_model(version.corpus, of_model)
        if of_corpus is not None:
            experiment_id = client.get_run(version.run_id).info.experiment_id
            client.set_experiment_tag(experiment_id, run_tags.NOTE, of_corpus)


def record_evaluation(
    tracking_uri: str,
    run_id: str,
    name: str,
    metrics: Mapping[str, float],
    version: RegisteredVersion | None = None,
) -> None:
    """Record an evaluation's figures on the model's run as metrics, and on its version as tags.

    `name` is the split, with everything else that the figures depend on: `test` gives `test_perplexity`.
    The same model has the same figures, so a repeated call changes nothing. Raises TrackingError when the
    store does not answer.
    """
    with open_store(tracking_uri) as client:
        known = client.get_run(run_id).data.metrics
        for figure, value in metrics.items():
            if version is not None:
                place = version.corpus, str(version.version)
                client.set_model_version_tag(*place, f"{name}_{figure}", str(value))
            if f"{name}_{figure}" not in known:
                client.log_metric(run_id, f"{name}_{figure}", float(value))


def require_registered(tracking_uri: str, uri: str) -> None:
    """Raise TrackingError when `uri` names no registered model and no trial, without importing torch.

    Where nothing was recorded in a file yet, MLflow is not imported either.
    """
    if is_trial_name(uri):
        find_trial_run(tracking_uri, uri)
        return
    _parse_model_uri(uri)
    require_store(tracking_uri, uri)
    with open_store(tracking_uri) as client:
        find_version(client, uri)


def require_store(tracking_uri: str, uri: str) -> None:
    """Raise TrackingError where the file of the store is missing, which opening it would create."""
    if not has_store(tracking_uri):
        raise TrackingError(
            f"no {uri}: {find_sqlite_path(tracking_uri)} does not exist; run: memtune search STUDY.toml, or "
            "set MEMTUNE_HOME to where one has run"
        )


def find_version(client: "MlflowClient", uri: str) -> RegisteredVersion:
    """The version behind `models:/name@alias` or `models:/name/3`.

    Raises TrackingError that lists the known names, aliases or numbers.
    """
    name, alias, number = _parse_model_uri(uri)
    known = list_model_names(client)
    if name not in known:
        raise TrackingError(f'no registered model "{name}"; {did_you_mean(name, known)}')
    found = find_by_alias(client, name, alias) if alias else None
    if number:
        found = next(
            (_to_registered_version(v) for v in _list_all_versions(client, name) if str(v.version) == number),
            None,
        )
    if found is None:
        numbers = ", ".join(str(version.version) for version in list_own_versions(client, name, after=0))
        aliases = ", ".join(sorted(client.get_registered_model(name).aliases)) if alias else ""
        has = f"the aliases {aliases}" if aliases else f"versions {numbers or 'none'}"
        raise TrackingError(f'no {uri}; "{name}" has {has}')
    return found


def _parse_model_uri(uri: str) -> tuple[str, str, str]:
    """(name, alias, number) of a model's URI; one of the last two is empty."""
    path, _, alias = uri.removeprefix("models:/").partition("@")
    name, _, number = path.partition("/")
    if not uri.startswith("models:/") or not name or bool(alias) == number.isdecimal():
        raise TrackingError(
            f'"{uri}" names no registered model; write models:/ptb@champion, '
            "models:/ptb/3, STUDY#7 for a trial, or the id of its run"
        )
    return name, alias, number


def _to_registered_version(version: "ModelVersion") -> RegisteredVersion:
    mlflow_connection.make_experiment_name(version.name)
    tagged = {name: version.tags.get(name) for name in RegisteredVersion.model_fields}
    fields = {**tagged, "corpus": version.name, "version": version.version, "run_id": version.run_id}
    known = {name: value for name, value in fields.items() if value is not None}
    try:
        return RegisteredVersion.model_validate(known)
    except ValidationError as error:
        problems = {str(problem["loc"][0]): problem["msg"] for problem in error.errors()}
        named = ", ".join(f"{tag} ({message})" for tag, message in sorted(problems.items()))
        raise ForeignVersionError(
            f"models:/{version.name}/{version.version} was not registered by memtune, which writes other "
            f"values of the tags {named}; use a version that was"
        ) from None
