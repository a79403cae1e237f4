"""A registered model's folder: weights, configuration, vocabulary and a card, plain data, nothing pickled.

model.safetensors and model.json as training wrote them, vocabulary.json the tokens by id, text.json how text
becomes tokens, MLmodel what MLflow reads to load the folder through `pyfunc_flavor`, memtune.json the card
with the digests of all other files. A registered model is downloaded to a cache and verified against the
registry.
"""

import json
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open

from memtune.errors import PluginError, TrackingError
from memtune.objective import Objective
from memtune.plugins import PluginSource
from memtune.seed_statistics import Estimate
from memtune.storage.digests import hash_file
from memtune.storage.local_files import open_scratch_folder
from memtune.tracking.code_version import read_code_version
from memtune.tracking.home_artifacts import find_local_folder
from memtune.tracking.mlflow_connection import open_store
from memtune.tracking.registry.model_versions import (
    RegisteredVersion,
    find_version,
    name_subject,
    require_store,
)
from memtune.tracking.registry.text_rules import TextRules
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.models import Model
    from mlflow.tracking import MlflowClient

V = TypeVar("V", bound=Value)

SCHEMA_VERSION = 4
"""2: the card covers MLmodel, which names the code that MLflow runs. Packages of version 1 load through
memtune, which does not read their MLmodel. 3: text.json; older packages split text at blanks and keep
case. 4: sources.json. A model without sources is of version 3, which earlier versions of memtune read."""
SCHEMA_VERSION_WITHOUT_SOURCES = 3
LOADER_MODULE = "memtune.tracking.registry.pyfunc_flavor"
NO_TIME = "1970-01-01 00:00:00.000000"
CARD_FILE = "memtune.json"
VOCABULARY_FILE = "vocabulary.json"
MLMODEL_FILE = "MLmodel"
WEIGHTS_FILE = "model.safetensors"
MODEL_FILES = (WEIGHTS_FILE, "model.json")
TEXT_RULES_FILE = "text.json"
SOURCES_FILE = "sources.json"
"""The source of a user's model family, as text: nothing reads it as code without the user's consent."""
COVERED_FILES = {
    1: {*MODEL_FILES, VOCABULARY_FILE},
    2: {*MODEL_FILES, VOCABULARY_FILE, MLMODEL_FILE},
    3: {*MODEL_FILES, VOCABULARY_FILE, MLMODEL_FILE, TEXT_RULES_FILE},
    4: {*MODEL_FILES, VOCABULARY_FILE, MLMODEL_FILE, TEXT_RULES_FILE, SOURCES_FILE},
}
"""The files that a card of each schema version lists, no more and no fewer."""
MLFLOW_META_FILE = "registered_model_meta"
"""What MLflow's own loader writes into the folder of a package next to the store; not read here."""
PACKAGE_FILES = {*COVERED_FILES[SCHEMA_VERSION], CARD_FILE}
REPAIR_HINT = (
    "restore it, or delete the version in MLflow; then its study with --resume, or `memtune train`, "
    "registers the model again"
)
MAX_TEXT_BYTES = 100_000_000
"""Of the card, MLmodel and a vocabulary of a million tokens; weights may have any size."""


class ModelResult(Value):
    """A trained model's validation figure, and everything that the figure depends on."""

    corpus: str
    corpus_digest: str
    label: str
    """Protocol and task as far as the figure depends on them; figures compare only under one label."""
    objective: Objective
    cost: FiniteFloat
    """Of the validation split by that objective, lower is better, not rounded: the mean over seeds."""
    estimate: Estimate | None = None
    """The cost with its interval; None in cards of earlier versions, whose cost is that of a single seed."""
    trial_cost: float | None = None
    """The cost of the registered weights, those of the best-validated seed."""
    configuration: dict[str, Any]
    metrics: dict[str, float]
    trial: str
    study: str
    configuration_identity: str = Field(default="", exclude=True)
    """That of a training without a study, without its seed; empty in cards, which do not hold it."""
    seed: int
    parameters: int | None = None
    """Trained parameters of the model; None in cards of earlier versions."""

    @property
    def subject(self) -> tuple[str, str]:
        """What a later result concludes again."""
        return name_subject(self.study, self.configuration_identity or self.trial)


class ModelCard(Value):
    """The content of memtune.json: the result, the code's version, and the SHA-256 of every other file."""

    schema_version: int = SCHEMA_VERSION
    result: ModelResult
    code: str
    files: dict[str, str]


def write_run_package(
    folder: Path,
    run_id: str,
    result: ModelResult,
    model_folder: Path,
    vocabulary: Sequence[str],
    rules: TextRules,
    sources: Sequence[PluginSource],
) -> None:
    """Fill `folder` with the package of a model that training saved in `model_folder`.

    A trial's run has made the model. The arguments are those of `register_if_better`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODEL_FILES:
        try:
            shutil.copyfile(model_folder / name, folder / name)
        except OSError as error:
            raise TrackingError(
                f"no model to register: cannot read {model_folder / name}: {error}"
            ) from error
    (folder / VOCABULARY_FILE).write_text(json.dumps({"tokens": list(vocabulary)}) + "\n", encoding="utf-8")
    (folder / TEXT_RULES_FILE).write_text(rules.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _describe_package(run_id).save(str(folder / MLMODEL_FILE))
    version = SCHEMA_VERSION_WITHOUT_SOURCES
    if sources:
        version = SCHEMA_VERSION
        documents = [source.model_dump(mode="json") for source in sources]
        (folder / SOURCES_FILE).write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    files = {name: hash_file(folder / name) for name in sorted(COVERED_FILES[version])}
    card = ModelCard(schema_version=version, result=result, code=read_code_version(), files=files)
    (folder / CARD_FILE).write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _describe_package(run_id: str) -> "Model":
    """The content of MLmodel: the module that loads the package, and its outputs.

    The same for the same run, so that repeating an interrupted registration finds its version: no path, which
    would hold the digest of this text, no random identifier, no time.
    """
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.models import Model
    from mlflow.models.signature import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    # Without inputs, MLflow passes an input on as it is. Of a table it keeps the first column only where the
    # signature has a column without a name, and the columns of that name only where it has a name, which then
    # refuses lists and columns of other names. Unity Catalog needs a signature with outputs.
    outputs = Schema([ColSpec(DataType.double, "log_probability")])
    model = Model(
        run_id=run_id,
        model_uuid=None,
        utc_time_created=NO_TIME,
        signature=ModelSignature(outputs=outputs),
    )
    return model.add_flavor("python_function", loader_module=LOADER_MODULE)


def is_package(path: str) -> bool:
    """Whether a text is the path of a folder with a model, and not the name of a registered one."""
    with suppress(OSError):  # of a name that is too long
        return not path.startswith("models:/") and Path(path, CARD_FILE).is_file()
    return False


def check_package(folder: Path) -> ModelCard:
    """The card of a package, after checking that the folder holds exactly the files of the card, unaltered.

    Raises TrackingError for a file that is missing, altered, too large, unknown, or not a regular file.
    """
    card = check_files(folder)
    for path in folder.iterdir():
        if path.name == MLFLOW_META_FILE:
            _require_regular_file(path, MAX_TEXT_BYTES)
        elif path.name not in PACKAGE_FILES:
            raise TrackingError(f"{path} is not part of a registered model; remove it or register again")
    return card


def check_files(folder: Path) -> ModelCard:
    """As `check_package`, for a folder to which MLflow's own loader adds files of its own."""
    path = folder / CARD_FILE
    _require_regular_file(path, MAX_TEXT_BYTES)
    card = _read_document(path, ModelCard, "is not a card this memtune reads")
    if set(card.files) != COVERED_FILES.get(card.schema_version):
        names = ", ".join(sorted(card.files))
        raise TrackingError(
            f"{path} is not a card this memtune reads: schema version {card.schema_version} with the files "
            f"{names}"
        )
    for name, expected in card.files.items():
        path = folder / name
        _require_regular_file(path, None if name == WEIGHTS_FILE else MAX_TEXT_BYTES)
        if (name == WEIGHTS_FILE and not _is_whole(path)) or hash_file(path) != expected:
            raise TrackingError(f"{path} was altered since it was registered; {REPAIR_HINT}")
    return card


def _is_whole(path: Path) -> bool:
    """Whether the header of a file of weights describes exactly the bytes that follow.

    It reads only the header: hashing a file of zeros of any size could take hours.
    """
    try:
        with safe_open(path, "numpy"):
            return True
    except (SafetensorError, OSError, MemoryError):  # MemoryError: too large to map
        return False


def _read_document(path: Path, kind: type[V], problem: str) -> V:
    """A file of a package as a value. Raises TrackingError, with `problem`, for another content."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise TrackingError(f"{path} {problem}: {first['loc']} {first['msg']}; {REPAIR_HINT}") from None


def _require_regular_file(path: Path, max_bytes: int | None) -> None:
    """Raise TrackingError unless the path is a regular file, no link, of at most `max_bytes`."""
    try:
        status = os.lstat(path)
    except OSError:
        raise TrackingError(f"{path} is missing from the registered model; {REPAIR_HINT}") from None
    if not stat.S_ISREG(status.st_mode):
        raise TrackingError(f"{path} is not a regular file; {REPAIR_HINT}")
    if max_bytes is not None and status.st_size > max_bytes:
        raise TrackingError(
            f"{path} has {status.st_size:,} bytes, more than the {max_bytes:,} allowed; {REPAIR_HINT}"
        )


class VocabularyDocument(Value):
    """The content of vocabulary.json."""

    tokens: tuple[str, ...]


def read_vocabulary(folder: Path) -> tuple[str, ...]:
    """The tokens of a package by id. Raises TrackingError for another content."""
    return _read_document(folder / VOCABULARY_FILE, VocabularyDocument, "is not a vocabulary").tokens


def read_text_rules(folder: Path) -> TextRules:
    """How the model of a package reads text; packages without such a file split at blanks and keep case.

    Raises TrackingError when the file has rules that this memtune does not know.
    """
    path = folder / TEXT_RULES_FILE
    if not path.exists():
        return TextRules()
    return _read_document(path, TextRules, "has rules this memtune does not know")


def read_sources(folder: Path) -> tuple[PluginSource, ...]:
    """The sources in a package, as text; none of them is executed. Raises PluginError for another content."""
    path = folder / SOURCES_FILE
    if not path.exists():
        return ()
    try:
        return TypeAdapter(tuple[PluginSource, ...]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise PluginError(f"{path} does not hold sources: {error.errors()[0]['msg']}") from None


@dataclass(frozen=True)
class ModelPackage:
    """A model in a folder, whose files match their digests."""

    folder: Path
    card: ModelCard
    vocabulary: tuple[str, ...]
    rules: TextRules
    """How text becomes tokens of the vocabulary."""
    sources: tuple[PluginSource, ...]
    """The sources of what is not built in; text, which is executed with consent only."""


@dataclass(frozen=True)
class DownloadedModel(ModelPackage):
    """The package of a registered version, on this machine."""

    version: RegisteredVersion


def read_package(folder: Path) -> ModelPackage:
    """The model in a folder. Raises TrackingError for a file that is missing, altered or no part of it."""
    card = check_package(folder)
    return ModelPackage(folder, card, read_vocabulary(folder), read_text_rules(folder), read_sources(folder))


def load_registered(tracking_uri: str, uri: str, cache: Path) -> DownloadedModel:
    """The model behind `models:/ptb@champion` or `models:/ptb/3`, downloaded into `cache` if it is not there.

    It is read in the store where this user may read the home of both, and not write it.
    Every file is checked against the digests in the model's card, and the card against the registry. Raises
    TrackingError for an unknown name, an altered file or a store that does not answer.
    """
    require_store(tracking_uri, uri)
    with open_store(tracking_uri) as client:
        version = find_version(client, uri)
        folder = cache / version.content
        if not folder.is_dir():
            local = find_local_folder(tracking_uri, _find_location(client, version))
            existing = cache if cache.exists() else cache.parent
            if local is not None and not os.access(existing, os.W_OK, effective_ids=True):
                folder = local
            else:
                _download(client, tracking_uri, version, folder)
    package = read_package(folder)
    _check_card(folder, version)
    return DownloadedModel(**vars(package), version=version)


def _check_card(folder: Path, version: RegisteredVersion) -> None:
    """Check the card of a package against the registry."""
    if hash_file(folder / CARD_FILE) != version.content:
        raise TrackingError(f"{folder / CARD_FILE} is not the card that {version.uri} was registered with")


def _download(client: "MlflowClient", tracking_uri: str, version: RegisteredVersion, folder: Path) -> None:
    """Download the package next to `folder`, verify it, and rename it to `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(folder.parent) as temporary:
        location = _find_location(client, version)
        fetched = _fetch(tracking_uri, location, version.uri, temporary / "package")
        check_package(fetched)
        _check_card(fetched, version)
        try:
            os.replace(fetched, folder)
        except OSError:
            if not folder.is_dir():  # another process downloaded the same package first
                raise


def _find_location(client: "MlflowClient", version: RegisteredVersion) -> str:
    """Where MLflow keeps the package of a version."""
    if version.model_id is not None:
        return str(client.get_logged_model(version.model_id).artifact_location)
    if version.path is not None:
        return f"{client.get_run(version.run_id).info.artifact_uri}/{version.path}"
    raise TrackingError(f"{version.uri} has neither the tag model_id nor path; {REPAIR_HINT}")


def holds_package(tracking_uri: str, location: str, content: str) -> bool:
    """Whether MLflow keeps the package whose card has this digest at a location, whole and unaltered."""
    from mlflow.exceptions import MlflowException

    with suppress(TrackingError, MlflowException, OSError), open_scratch_folder() as temporary:
        fetched = _fetch(tracking_uri, location, location, temporary / "package")
        check_package(fetched)
        return hash_file(fetched / CARD_FILE) == content
    return False


def _fetch(tracking_uri: str, location: str, name: str, folder: Path) -> Path:
    """Download the files of a package into a new folder; returns where they are. `name` is for messages.

    Raises TrackingError before copying what is not a package: a device or a pipe would never end. A copy
    follows links in a local folder, so those are checked here; elsewhere a listing has to do.
    """
    from mlflow.artifacts import download_artifacts, list_artifacts

    folder.mkdir()
    local = find_local_folder(tracking_uri, location)
    if local is not None:
        check_package(local)
        for file in local.iterdir():
            shutil.copyfile(file, folder / file.name)
        return folder
    for listed in list_artifacts(artifact_uri=location, tracking_uri=tracking_uri):
        held = listed.path.rpartition("/")[2]
        is_too_large = held != WEIGHTS_FILE and (listed.file_size or 0) > MAX_TEXT_BYTES
        if listed.is_dir or held not in PACKAGE_FILES or is_too_large:
            raise TrackingError(f"{name} holds {held}, which is not part of a registered model")
    return Path(download_artifacts(artifact_uri=location, dst_path=str(folder), tracking_uri=tracking_uri))
