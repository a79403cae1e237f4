"""A model's weights in safetensors: tensors and nothing that could run.

A table that two layers share is written once, under the first of its names.
"""

from pathlib import Path

import safetensors.torch
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor

from memtune.errors import CheckpointError
from memtune.models import ModelConfig
from memtune.models.interface import Model
from memtune.tasks import AnyTaskConfig, LanguageModellingConfig, TaskConfig, build
from memtune.values import Value

__all__ = ["copy_weights", "load_model", "load_weights", "read_tensors", "save_model", "write_tensors"]

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"


class ModelDescription(Value):
    """Enough to rebuild the module that the weights fit."""

    config: ModelConfig
    vocabulary_size: int
    task: AnyTaskConfig = LanguageModellingConfig()


def save_model(model: Model, folder: Path, task: TaskConfig | None = None) -> None:
    """Write the model of a task, by default language modelling, as model.safetensors and model.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(copy_weights(model), folder / WEIGHTS)
    description = {
        "config": model.config.model_dump(mode="json"),
        "vocabulary_size": model.vocabulary_size,
        "task": (task or LanguageModellingConfig()).model_dump(mode="json"),
    }
    checked = ModelDescription.model_validate(description)
    (folder / DESCRIPTION).write_text(checked.model_dump_json(indent=2) + "\n", encoding="utf-8")


def load_model(folder: Path, device: str | torch.device = "cpu") -> Model:
    """The model that `save_model` wrote to a folder; a CheckpointError names what is missing or altered."""
    path = folder / DESCRIPTION
    try:
        description = ModelDescription.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"no model in {folder}: cannot read {path.name}: {error.strerror}") from None
    except ValidationError as error:
        raise CheckpointError(f"{path} does not describe a model: {error.errors()[0]['msg']}") from None
    model = build(description.task, description.config, description.vocabulary_size, seed=0)
    load_weights(model, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    return model.to(device)


def copy_weights(model: Model) -> dict[str, Tensor]:
    """A copy on the host of every parameter and persistent buffer, shared ones once."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in _weights(model).items()}


def load_weights(model: Model, weights: dict[str, Tensor], where: Path) -> None:
    """Put weights read from `where` into a model, or say which do not fit."""
    model.make_room(weights)
    places = _weights(model)
    for name in sorted(places.keys() ^ weights.keys()):
        problem = "is missing" if name in places else "is not part of the model"
        raise CheckpointError(f"{where}: {name} {problem}; it belongs to another configuration")
    for name, place in places.items():
        if place.shape != weights[name].shape:
            raise CheckpointError(
                f"{where}: {name} has shape {tuple(weights[name].shape)}, the model {tuple(place.shape)}"
            )
        with torch.no_grad():
            place.copy_(weights[name])


def _weights(model: Model) -> dict[str, Tensor]:
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    persistent = model.state_dict().keys()
    return {name: tensor for name, tensor in named.items() if name in persistent}


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file."""
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the host; a CheckpointError names a file that is not whole."""
    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except SafetensorError as error:
        raise CheckpointError(f"{path} is truncated or altered: {error}") from None
