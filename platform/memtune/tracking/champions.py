"""Registered versions as their tags describe them: which is champion is known without a download."""

import logging
from typing import TYPE_CHECKING, Self

from pydantic import computed_field

from memtune.errors import TrackingError, did_you_mean
from memtune.objective import Objective, figure, shown
from memtune.tracking.connection import connect, told_plainly
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracking import MlflowClient

__all__ = ["CHAMPION", "PREVIOUS", "Champion", "best", "list_champions"]

CHAMPION, PREVIOUS = "champion", "previous"

NOT_THERE = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}

logger = logging.getLogger(__name__)


class StrangeVersionError(TrackingError):
    """A registered version that memtune knows nothing of."""


class Champion(Value):
    """A registered version: where it came from and how good it is on validation."""

    corpus: str
    version: int
    run_id: str
    path: str
    """Of the package among the run's artifacts."""
    content: str
    """SHA-256 of the package's card."""
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
        return figure(self.objective, self.cost)

    @property
    def told(self) -> str:
        """The figure in words."""
        return f"validation {self.objective} {shown(self.objective, self.cost, 4)}"

    def compares_with(self, other: Self) -> bool:
        """Whether both figures are of the same text under the same protocol."""
        return (self.corpus_digest, self.protocol) == (other.corpus_digest, other.protocol)


def best(tracking_uri: str, corpus: str) -> Champion | None:
    """The champion of a corpus, or None; a version that is not memtune's is passed over with a warning."""
    with told_plainly(tracking_uri):
        return _own_champion(connect(tracking_uri), corpus)


def list_champions(tracking_uri: str) -> list[Champion]:
    """The champion of every corpus that has one, by name; others' models are passed over with a warning."""
    client = connect(tracking_uri)
    with told_plainly(tracking_uri):
        found = [_own_champion(client, name) for name in model_names(client)]
    return [champion for champion in found if champion is not None]


def _own_champion(client: "MlflowClient", corpus: str) -> Champion | None:
    try:
        return aliased(client, corpus, CHAMPION)
    except StrangeVersionError as error:
        logger.warning("passed over: %s", error)
        return None


def model_names(client: "MlflowClient") -> list[str]:
    """Every registered model, by name."""
    names: list[str] = []
    token: str | None = None
    while True:
        page = client.search_registered_models(order_by=["name ASC"], page_token=token)
        names.extend(model.name for model in page)
        token = page.token
        if not token:
            return names


def aliased(client: "MlflowClient", corpus: str, alias: str) -> Champion | None:
    """The version that carries an alias, or None. Raises StrangeVersionError when it is not memtune's."""
    from mlflow.exceptions import MlflowException

    try:
        return _described(client.get_model_version_by_alias(corpus, alias))
    except MlflowException as error:
        if error.error_code in NOT_THERE:
            return None
        raise


def versions(client: "MlflowClient", corpus: str, after: int) -> list[Champion]:
    """The versions of a corpus that memtune registered, newer than the version `after`."""
    newer = [version for version in _every(client, corpus) if int(version.version) > after]
    return [_described(version) for version in newer if not _lacking(version)]


def _every(client: "MlflowClient", corpus: str) -> list["ModelVersion"]:
    """Every version of a registered model, others' too."""
    found: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = client.search_model_versions(f"name = '{corpus}'", page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def create(client: "MlflowClient", champion: Champion, source: str) -> Champion:
    """Register a version with its description as tags and no alias, or give the one of the same content."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(champion.corpus, description="The best model of this corpus.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        for known in versions(client, champion.corpus, after=0):
            if known.content == champion.content:
                return known
    tags = {name: str(value) for name, value in champion if name not in ("corpus", "version", "run_id")}
    tags[f"valid_{champion.objective}"] = str(champion.figure)
    version = client.create_model_version(champion.corpus, source, champion.run_id, tags)
    return champion.model_copy(update={"version": int(version.version)})


def find(client: "MlflowClient", uri: str) -> Champion:
    """The version behind `models:/name@alias` or `models:/name/3`; a TrackingError says what there is."""
    name, alias, number = _parse(uri)
    known = model_names(client)
    if name not in known:
        raise TrackingError(f'no registered model "{name}"; {did_you_mean(name, known)}')
    found = aliased(client, name, alias) if alias else None
    if number:
        found = next((_described(v) for v in _every(client, name) if str(v.version) == number), None)
    if found is None:
        numbers = ", ".join(str(version.version) for version in versions(client, name, after=0))
        raise TrackingError(f'no {uri}; "{name}" has versions {numbers or "none"}')
    return found


def _parse(uri: str) -> tuple[str, str, str]:
    """(name, alias, number) of a model's URI; one of the last two is empty."""
    path, _, alias = uri.removeprefix("models:/").partition("@")
    name, _, number = path.partition("/")
    if not uri.startswith("models:/") or not name or bool(alias) == number.isdecimal():
        raise TrackingError(f'"{uri}" names no registered model; write models:/ptb@champion or models:/ptb/3')
    return name, alias, number


def _fields(version: "ModelVersion") -> dict[str, object]:
    tagged = {name: version.tags.get(name) for name in Champion.model_fields}
    return {**tagged, "corpus": version.name, "version": version.version, "run_id": version.run_id}


def _lacking(version: "ModelVersion") -> list[str]:
    """What memtune would have written of a version; nothing where it did."""
    return sorted(name for name, value in _fields(version).items() if value is None)


def _described(version: "ModelVersion") -> Champion:
    if lacking := _lacking(version):
        raise StrangeVersionError(
            f"models:/{version.name}/{version.version} was not registered by memtune: it lacks "
            f"{', '.join(lacking)}; take a version that was, or give its alias to one"
        )
    return Champion.model_validate(_fields(version))
