"""Registered versions as their tags describe them: which is champion is known without a download."""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from pydantic import Field, ValidationError, computed_field

from memtune.errors import TrackingError, did_you_mean
from memtune.objective import Objective, compute_figure, format_figure
from memtune.tracking.mlflow_connection import connect, experiment_name, sqlite_path, translate_mlflow_errors
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

__all__ = [
    "CHAMPION_ALIAS",
    "PREVIOUS_ALIAS",
    "RegisteredVersion",
    "find_champion",
    "list_champions",
    "require_registered",
]

CHAMPION_ALIAS, PREVIOUS_ALIAS = "champion", "previous"

NOT_FOUND_CODES = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}

logger = logging.getLogger(__name__)


class ForeignVersionError(TrackingError):
    """A registered version without memtune's tags, or with tags that memtune does not write."""


class RegisteredVersion(Value):
    """A registered version: where it came from and how good it is on validation."""

    corpus: str
    version: int
    run_id: str
    path: str = Field(pattern=r"^model-[0-9a-f]{12}$")
    """Of the package among the run's artifacts. It becomes part of a path, and whoever can write to the
    registry chooses it: so its form is checked."""
    content: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the package's card, and the name of its folder in the cache."""
    corpus_digest: str
    protocol: str
    """Its label: the protocol, and the task where that is not language modelling."""
    objective: Objective
    cost: float
    """Of the validation split by that objective, lower is better."""
    family: str
    study: str
    trial: str

    @property
    def uri(self) -> str:
        """`models:/<corpus>/<version>`."""
        return f"models:/{self.corpus}/{self.version}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def figure(self) -> float:
        """The validation perplexity or accuracy."""
        return compute_figure(self.objective, self.cost)

    @property
    def summary(self) -> str:
        """The figure in words."""
        return f"validation {self.objective} {format_figure(self.objective, self.cost, 4)}"

    def is_comparable_with(self, other: Self) -> bool:
        """Whether both figures are of the same text under the same protocol."""
        return (self.corpus_digest, self.protocol) == (other.corpus_digest, other.protocol)


def find_champion(tracking_uri: str, corpus: str) -> RegisteredVersion | None:
    """The champion of a corpus, or None; a version that memtune did not register is skipped."""
    with translate_mlflow_errors(tracking_uri):
        return _find_champion_or_warn(connect(tracking_uri), corpus)


def list_champions(tracking_uri: str) -> list[RegisteredVersion]:
    """The champion of every corpus that has one, by name; models that memtune did not register are
    skipped with a warning."""
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        found = [_find_champion_or_warn(client, name) for name in list_model_names(client)]
    return [champion for champion in found if champion is not None]


def _find_champion_or_warn(client: "MlflowClient", corpus: str) -> RegisteredVersion | None:
    try:
        return find_by_alias(client, corpus, CHAMPION_ALIAS)
    except ForeignVersionError as error:
        logger.warning("skipped: %s", error)
        return None


def list_model_names(client: "MlflowClient") -> list[str]:
    """Every registered model, by name."""
    names: list[str] = []
    token: str | None = None
    while True:
        page = client.search_registered_models(order_by=["name ASC"], page_token=token)
        names.extend(model.name for model in page)
        token = page.token
        if not token:
            return names


def find_by_alias(client: "MlflowClient", corpus: str, alias: str) -> RegisteredVersion | None:
    """The version that carries an alias, or None. Raises ForeignVersionError when memtune did not
    register it."""
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.exceptions import MlflowException

    try:
        return _to_registered_version(client.get_model_version_by_alias(corpus, alias))
    except MlflowException as error:
        if error.error_code in NOT_FOUND_CODES:
            return None
        raise


def list_versions(client: "MlflowClient", corpus: str, after: int) -> list[RegisteredVersion]:
    """The versions of a corpus that memtune registered, newer than the version `after`."""
    newer = [version for version in _list_all_versions(client, corpus) if int(version.version) > after]
    found: list[RegisteredVersion] = []
    for version in newer:
        with suppress(ForeignVersionError):
            found.append(_to_registered_version(version))
    return found


def _list_all_versions(client: "MlflowClient", corpus: str) -> list["ModelVersion"]:
    """Every version of a registered model, others' too."""
    found: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = client.search_model_versions(f"name = '{corpus}'", page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def create_version(client: "MlflowClient", candidate: RegisteredVersion, source: str) -> RegisteredVersion:
    """Register a version with its description as tags and no alias, or give the one of the same content."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(candidate.corpus, description="The best model of this corpus.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        for known in list_versions(client, candidate.corpus, after=0):
            if known.content == candidate.content:
                return known
    tags = {name: str(value) for name, value in candidate if name not in ("corpus", "version", "run_id")}
    tags[f"valid_{candidate.objective}"] = str(candidate.figure)
    version = client.create_model_version(candidate.corpus, source, candidate.run_id, tags)
    return candidate.model_copy(update={"version": int(version.version)})


def require_registered(tracking_uri: str, uri: str) -> None:
    """Raise TrackingError when `uri` names no registered model, without importing torch.

    Where nothing was recorded in a file yet, MLflow is not imported either.
    """
    _parse_model_uri(uri)
    database = sqlite_path(tracking_uri)
    if database is not None and not database.exists():
        raise TrackingError(
            f"no {uri}: {database} does not exist; run: memtune search STUDY.toml, or set MEMTUNE_HOME to "
            "where one has run"
        )
    with translate_mlflow_errors(tracking_uri):
        find_version(connect(tracking_uri), uri)


def find_version(client: "MlflowClient", uri: str) -> RegisteredVersion:
    """The version behind `models:/name@alias` or `models:/name/3`; a TrackingError lists the known ones."""
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
        numbers = ", ".join(str(version.version) for version in list_versions(client, name, after=0))
        raise TrackingError(f'no {uri}; "{name}" has versions {numbers or "none"}')
    return found


def _parse_model_uri(uri: str) -> tuple[str, str, str]:
    """(name, alias, number) of a model's URI; one of the last two is empty."""
    path, _, alias = uri.removeprefix("models:/").partition("@")
    name, _, number = path.partition("/")
    if not uri.startswith("models:/") or not name or bool(alias) == number.isdecimal():
        raise TrackingError(f'"{uri}" names no registered model; write models:/ptb@champion or models:/ptb/3')
    return name, alias, number


def _read_fields(version: "ModelVersion") -> dict[str, object]:
    tagged = {name: version.tags.get(name) for name in RegisteredVersion.model_fields}
    return {**tagged, "corpus": version.name, "version": version.version, "run_id": version.run_id}


def _missing_fields(version: "ModelVersion") -> list[str]:
    """The fields of a RegisteredVersion that a version lacks."""
    return sorted(name for name, value in _read_fields(version).items() if value is None)


def _to_registered_version(version: "ModelVersion") -> RegisteredVersion:
    if lacking := _missing_fields(version):
        raise ForeignVersionError(
            f"models:/{version.name}/{version.version} was not registered by memtune: it lacks "
            f"{', '.join(lacking)}; use a version that was, or give its alias to one"
        )
    experiment_name(version.name)
    try:
        return RegisteredVersion.model_validate(_read_fields(version))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ForeignVersionError(
            f'models:/{version.name}/{version.version} has the tag "{problem["loc"][0]}" with a value that '
            f"memtune does not write: {problem['msg']}; use another version"
        ) from None
