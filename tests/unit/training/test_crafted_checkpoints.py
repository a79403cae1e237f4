"""Crafted checkpoints: every problem with their content raises CheckpointError."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from memtune.errors import CheckpointError
from memtune.training import GradientTrainer, load_model, read_checkpoint, restore_trainer, save_model
from memtune.values import digest

FILES = ["learner.json", "model.safetensors", "best.safetensors", "learner.safetensors"]
CRAFTS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a symbolic link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a symbolic link out of the folder": lambda path: path.symlink_to("/etc/hostname"),
    "a folder": lambda path: path.mkdir(),
    "a sparse file of 4 TiB": lambda path: _write_sparse(path, 2**42),
    "a sparse file of 64 GiB": lambda path: _write_sparse(path, 2**36),
    "nothing": lambda path: path.write_bytes(b""),
    "deeply nested brackets": lambda path: path.write_bytes(b"[" * 100_000),
    "a number of 5,000 digits": lambda path: path.write_bytes(b'{"schema_version": ' + b"1" * 5000 + b"}"),
    "a header longer than the file": lambda path: path.write_bytes(b"\xff" * 7 + b"\x7f{}"),
}


def _write_sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


@pytest.fixture
def saved(corpus, make_trial, tmp_path):
    """A checkpoint between two reports."""
    trainer = GradientTrainer(make_trial(epochs=2), corpus)
    trainer.advance()
    trainer.train_for(0)
    trainer.save(tmp_path / "saved")
    return tmp_path / "saved"


def _change_record(folder, change):
    """Change the record and update the digests."""
    path = folder / "learner.json"
    sealed = json.loads(path.read_text())
    change(sealed["record"])
    sealed["files"] = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sealed["files"]
    }
    sealed["digest"] = digest({name: value for name, value in sealed.items() if name != "digest"})
    path.write_text(json.dumps(sealed))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("craft", CRAFTS.values(), ids=CRAFTS)
def test_a_crafted_file_is_refused(saved, name, craft):
    (saved / name).unlink()
    craft(saved / name)
    with pytest.raises(CheckpointError, match=name):
        read_checkpoint(saved)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("craft", CRAFTS.values(), ids=CRAFTS)
def test_a_crafted_file_of_a_model_is_refused(saved, name, craft, tmp_path):
    save_model(read_checkpoint(saved).build_best_model(), tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    craft(tmp_path / "model" / name)
    with pytest.raises(CheckpointError, match=name):
        load_model(tmp_path / "model")


def test_a_model_much_larger_than_its_weights_is_not_built(saved):
    """A vocabulary of 10^12 words would take terabytes."""
    _change_record(saved, lambda record: record.update(vocabulary_size=10**12))
    with pytest.raises(CheckpointError, match="numbers, the model has"):
        read_checkpoint(saved).build_best_model()


def test_a_record_that_names_other_files_is_refused(saved):
    sealed = json.loads((saved / "learner.json").read_text())
    sealed["files"]["../../secret"] = "0" * 64
    sealed["digest"] = digest({name: value for name, value in sealed.items() if name != "digest"})
    (saved / "learner.json").write_text(json.dumps(sealed))
    with pytest.raises(CheckpointError, match="is not the record of a checkpoint"):
        read_checkpoint(saved)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"optimiser/unknown/momentum": torch.zeros(3)},
        {"optimiser/unknown": torch.zeros(3)},
        {"random/cpu": torch.zeros(3, dtype=torch.uint8)},
        {"random/cpu": torch.zeros(3)},
    ],
    ids=str,
)
def test_a_state_with_other_tensors_is_refused(saved, corpus, tensors):
    save_file(tensors, saved / "learner.safetensors")
    _change_record(saved, lambda record: None)
    with pytest.raises(CheckpointError, match="does not fit its trial"):
        restore_trainer(read_checkpoint(saved), corpus)


def test_a_position_outside_its_epoch_is_refused(saved, corpus):
    _change_record(saved, lambda record: record["position"].update(batch=10**6))
    with pytest.raises(CheckpointError, match="does not fit its trial"):
        restore_trainer(read_checkpoint(saved), corpus)


def test_weights_of_another_type_are_refused(saved):
    weights = read_checkpoint(saved).model_weights
    save_file({name: tensor.double() for name, tensor in weights.items()}, saved / "best.safetensors")
    _change_record(saved, lambda record: None)
    with pytest.raises(CheckpointError, match="has type torch"):
        read_checkpoint(saved).build_best_model()
