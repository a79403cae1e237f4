"""A model's weights in safetensors files, which hold tensors and no code.

A table that two layers share is written once, under its first name. Only regular files of bounded size inside
their folder are read, because reading a device, a FIFO or a symbolic link to one may never end.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import safetensors.torch
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from memtune.errors import CheckpointError, StorageError, explain_system_error, is_environment_fault
from memtune.models import ModelConfig
from memtune.models.architecture import Model
from memtune.storage.digests import hash_stream
from memtune.storage.local_files import open_regular_file
from memtune.tasks import AnyTaskConfig, LanguageModellingConfig, TaskConfig, build_task_model
from memtune.values import Value

WEIGHTS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
MAX_DESCRIPTION_BYTES = 2**26
"""A record with 100,000 reports takes 40 MB; a larger JSON file is not one of memtune's."""
MAX_TENSOR_BYTES = 2**37
"""Limit for a file of tensors, 128 GiB: as much as the largest GPU holds."""


class ModelDescription(Value):
    """Everything needed to build the module that the weights belong to."""

    config: ModelConfig
    vocabulary_size: int = Field(ge=1)
    task: AnyTaskConfig = LanguageModellingConfig()


def save_model(model: Model, folder: Path, task: TaskConfig | None = None) -> None:
    """Write the model of a task (default: language modelling) as model.safetensors and model.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(copy_weights(model), folder / WEIGHTS_FILE)
    given = {"config": model.config, "task": task or LanguageModellingConfig()}
    checked = ModelDescription.model_validate({**given, "vocabulary_size": model.vocabulary_size})
    (folder / DESCRIPTION_FILE).write_text(checked.model_dump_json(indent=2) + "\n", encoding="utf-8")


def load_model(folder: Path, device: str | torch.device = "cpu") -> Model:
    """The model that `save_model` wrote to a folder; raises CheckpointError for missing or altered files."""
    path = folder / DESCRIPTION_FILE
    try:
        description = ModelDescription.model_validate_json(read_small_file(path))
    except ValidationError as error:
        raise CheckpointError(f"{path} does not describe a model: {error.errors()[0]['msg']}") from None
    weights = read_tensors(folder / WEIGHTS_FILE)
    task, config, vocabulary_size = description.task, description.config, description.vocabulary_size
    check_size(task.parameter_count(config, vocabulary_size), weights, folder / WEIGHTS_FILE)
    model = build_task_model(task, config, vocabulary_size, seed=0)
    load_weights(model, weights, folder / WEIGHTS_FILE)
    return model.to(device)


def copy_weights(model: Model) -> dict[str, Tensor]:
    """Copies on the CPU of every parameter and persistent buffer; shared tensors are copied once."""
    return {
        name: tensor.detach().to("cpu", copy=True) for name, tensor in _list_persistent_tensors(model).items()
    }


def check_size(parameter_count: int, weights: Mapping[str, Tensor], path: Path | str) -> None:
    """Raise CheckpointError for a model much larger than the weights from `path`.

    Building the model of an altered configuration could exhaust the memory. `load_weights` names smaller
    differences, so twice the size passes, and so does any model of up to 2^20 parameters.
    """
    numbers = sum(tensor.numel() for tensor in weights.values())
    if parameter_count > max(2 * numbers, 2**20):
        raise CheckpointError(
            f"{path} holds {numbers:,} numbers, the model has {parameter_count:,} parameters; it belongs to "
            "another configuration"
        )


def load_weights(model: Model, weights: dict[str, Tensor], path: Path | str) -> None:
    """Copy weights from `path` into a model; raises CheckpointError for other names, shapes or types."""
    model.allocate_buffers(weights)
    targets = _list_persistent_tensors(model)
    for name in sorted(targets.keys() ^ weights.keys()):
        problem = "is missing" if name in targets else "is not part of the model"
        raise CheckpointError(f"{path}: {name} {problem}; it belongs to another configuration")
    for name, target in targets.items():
        source = weights[name]
        if target.shape != source.shape:
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(source.shape)}, the model {tuple(target.shape)}"
            )
        if target.dtype != source.dtype:
            raise CheckpointError(f"{path}: {name} has type {source.dtype}, the model {target.dtype}")
        with torch.no_grad():
            target.copy_(source)


def _list_persistent_tensors(model: Model) -> dict[str, Tensor]:
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    persistent = model.state_dict().keys()
    return {name: tensor for name, tensor in named.items() if name in persistent}


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file."""
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU; raises CheckpointError for an incomplete file."""
    check_tensor_file(path)
    try:
        return safetensors.torch.load_file(path)
    except (SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
        # KeyError: a type that torch lacks; ValueError and RuntimeError: shapes that torch refuses.
        check_environment(error, path)
        raise CheckpointError(f"{path} is truncated or altered: {error}") from None


def check_tensor_file(path: Path) -> None:
    """Raise CheckpointError unless a file's header describes exactly the bytes that follow it.

    It reads only the header, so it rejects a file of zeros of any size at once.
    """
    _open_bounded(path, MAX_TENSOR_BYTES).close()
    try:
        with safe_open(path, "pt"):
            pass
    except (SafetensorError, OSError, MemoryError) as error:  # MemoryError: too large to map
        check_environment(error, path)
        raise CheckpointError(f"{path} is truncated or altered: {error}") from None


def check_environment(error: Exception, path: Path) -> None:
    """Raise StorageError where the machine failed to read a file, which is not damaged then."""
    if isinstance(error, OSError) and is_environment_fault(error):
        raise StorageError(f"cannot read {path}: {explain_system_error(error)}") from error


def hash_tensor_file(path: Path) -> str:
    """SHA-256 of a file of tensors, hexadecimal; raises CheckpointError for a file that cannot be read."""
    with _open_bounded(path, MAX_TENSOR_BYTES) as file:
        return hash_stream(file)


def read_small_file(path: Path) -> bytes:
    """The content of a regular file as small as a description; raises CheckpointError for any other."""
    with _open_bounded(path, MAX_DESCRIPTION_BYTES) as file:
        return file.read(MAX_DESCRIPTION_BYTES)


def _open_bounded(path: Path, limit: int) -> BinaryIO:
    try:
        file = open_regular_file(path, path.parent)
    except StorageError as error:
        raise CheckpointError(str(error)) from None
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; resume from an older checkpoint") from None
    except OSError as error:
        check_environment(error, path)
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    if file.seek(0, 2) > limit:
        file.close()
        raise CheckpointError(f"{path} has more than {limit:,} bytes; resume from an older checkpoint")
    file.seek(0)
    return file
