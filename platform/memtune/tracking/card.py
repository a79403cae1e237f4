"""A registered model's folder: weights, configuration, vocabulary and a card, plain data, nothing pickled.

model.safetensors and model.json as training wrote them, vocabulary.json the tokens by id, memtune.json the
card with the digest of those files, MLmodel what MLflow reads to load the folder through `flavor`.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from memtune.errors import TrackingError
from memtune.objective import Objective
from memtune.values import Value

__all__ = ["Card", "Result", "read_card", "read_vocabulary", "write_package"]

SCHEMA_VERSION = 1
CARD = "memtune.json"
VOCABULARY = "vocabulary.json"
MODEL_FILES = ("model.safetensors", "model.json")


class Result(Value):
    """A trained model's claim: how good it is on validation, and all that this figure depends on."""

    corpus: str
    corpus_digest: str
    label: str
    """Protocol and task as far as the figure depends on them; figures compare only under one label."""
    objective: Objective
    cost: float
    """Of the validation split by that objective, lower is better, not rounded."""
    configuration: dict[str, Any]
    metrics: dict[str, float]
    trial: str
    study: str
    seed: int

    @field_validator("cost")
    @classmethod
    def _is_validated(cls, cost: float) -> float:
        if not math.isfinite(cost):
            raise ValueError(f"a finite cost is needed, got {cost}")
        return cost


class Card(Value):
    """What memtune.json says: the result, the code that gave it, and the SHA-256 of the files beside it."""

    schema_version: int = SCHEMA_VERSION
    result: Result
    code: str
    files: dict[str, str]


def write_package(
    model_folder: Path, vocabulary: Sequence[str], result: Result, code: str, folder: Path
) -> Card:
    """Fill `folder` with the model that training saved in `model_folder`, its vocabulary and its card."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODEL_FILES:
        try:
            shutil.copyfile(model_folder / name, folder / name)
        except OSError as error:
            raise TrackingError(
                f"no model to register: cannot read {model_folder / name}: {error}"
            ) from error
    (folder / VOCABULARY).write_text(json.dumps({"tokens": list(vocabulary)}) + "\n", encoding="utf-8")
    files = {name: _sha256(folder / name) for name in (*MODEL_FILES, VOCABULARY)}
    card = Card(result=result, code=code, files=files)
    (folder / CARD).write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return card


def read_card(folder: Path) -> Card:
    """The card of a package, after checking every file against it; a TrackingError names what is wrong."""
    path = folder / CARD
    try:
        card = Card.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TrackingError(
            f"{folder} holds no registered model: cannot read {CARD}: {error.strerror}"
        ) from None
    except ValidationError as error:
        problem = error.errors()[0]
        raise TrackingError(
            f"{path} is not a card this memtune reads: {problem['loc']} {problem['msg']}"
        ) from None
    for name, expected in card.files.items():
        if not (folder / name).is_file():
            raise TrackingError(f"{folder / name} is missing from the registered model; register it again")
        if _sha256(folder / name) != expected:
            raise TrackingError(
                f"{folder / name} was altered since it was registered; register the model again"
            )
    return card


def read_vocabulary(folder: Path) -> tuple[str, ...]:
    """The tokens of a package by id."""
    return tuple(json.loads((folder / VOCABULARY).read_bytes())["tokens"])


def card_digest(folder: Path) -> str:
    """The SHA-256 of the card, which stands for the whole package."""
    return _sha256(folder / CARD)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
