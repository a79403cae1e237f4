"""Checkpoints are complete or refused by name; models and weights are stored without code."""

import json
import re
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memtune.errors import CheckpointError, StorageError
from memtune.models import LSTMConfig, build_model, logits
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.training import GradientTrainer, Report, checkpoint, load_model, restore_trainer, save_model
from memtune.training.checkpoint import read_checkpoint
from memtune.trial_state import StopReason
from memtune.values import digest

FILES = ["model.safetensors", "best.safetensors", "learner.safetensors", "learner.json"]
TIED = RecurrentMemoryConfig(width=8, tie_memory_input=True, tie_memory_output=True, tie_output=True)


@pytest.fixture(scope="module")
def trainer(corpus, make_trial) -> GradientTrainer:
    trainer = GradientTrainer(make_trial(epochs=2), corpus)
    trainer.advance()
    return trainer


@pytest.fixture
def folder(trainer, tmp_path):
    trainer.save(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_checkpoint_consists_of_four_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


def test_the_record_is_readable_json(folder, trainer):
    record = json.loads((folder / "learner.json").read_text())["record"]
    assert record["identity"] == trainer.identity
    assert record["config"]["model"]["family"] == "lstm"
    assert record["curve"][0]["valid_loss"] == trainer.curve[0].valid_loss


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, corpus, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        restore_trainer(read_checkpoint(folder), corpus)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(folder, corpus, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=f"{name} is truncated or altered"):
        restore_trainer(read_checkpoint(folder), corpus)


@pytest.mark.parametrize("name", FILES)
def test_one_altered_byte_is_detected(folder, corpus, name):
    """In the record the byte is a digit of a number, so that it is still JSON."""
    content = bytearray((folder / name).read_bytes())
    mark = b'"valid_loss": 3.'
    place = content.index(mark) + len(mark) if name == "learner.json" else len(content) - 3
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    (folder / name).write_bytes(content)
    if name == "learner.json":
        json.loads(content)
    with pytest.raises(CheckpointError, match=f"{name} is (truncated or )?altered"):
        restore_trainer(read_checkpoint(folder), corpus)


def test_a_folder_without_a_checkpoint_is_refused(corpus, tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing.learner.json is missing"):
        restore_trainer(read_checkpoint(tmp_path / "nothing"), corpus)


def test_a_newer_schema_is_refused(folder, corpus):
    path = folder / "learner.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
    with pytest.raises(CheckpointError, match="has schema 99, this memtune reads up to 3"):
        restore_trainer(read_checkpoint(folder), corpus)


def test_another_corpus_is_refused(folder, corpus):
    other = replace(corpus, name="other", digest="0" * 64)
    with pytest.raises(CheckpointError, match=r'was trained on corpus "tiny".*not on "other"'):
        restore_trainer(read_checkpoint(folder), other)


def test_a_record_of_another_configuration_is_refused(folder, corpus):
    path = folder / "learner.json"
    content = json.loads(path.read_text())
    content["record"]["config"]["seed"] = 1234
    del content["digest"]
    path.write_text(json.dumps({"digest": digest(content), **content}))
    with pytest.raises(CheckpointError, match="its configuration has identity"):
        restore_trainer(read_checkpoint(folder), corpus)


def test_a_record_without_a_configuration_is_named(folder):
    content = json.loads((folder / "learner.json").read_text())
    del content["digest"], content["record"]["config"]
    (folder / "learner.json").write_text(json.dumps({"digest": digest(content), **content}))
    with pytest.raises(CheckpointError, match=re.escape(f"{folder / 'learner.json'} is not the record")):
        read_checkpoint(folder)


def test_a_checkpoint_creates_the_folders_above_it(trainer, tmp_path):
    trainer.save(tmp_path / "trials" / "a" / "checkpoint")
    assert sorted(path.name for path in (tmp_path / "trials" / "a" / "checkpoint").iterdir()) == sorted(FILES)


def test_saving_again_replaces_the_checkpoint(folder, corpus):
    trainer = restore_trainer(read_checkpoint(folder), corpus)
    trainer.advance()
    trainer.save(folder)
    assert restore_trainer(read_checkpoint(folder), corpus).curve == trainer.curve
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


def test_a_writer_that_is_killed_leaves_no_checkpoint_that_can_be_read(trainer, tmp_path, monkeypatch):
    """The record is written last, so a folder without it is incomplete."""
    with monkeypatch.context() as kill:
        kill.setattr(checkpoint, "hash_tensor_file", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            trainer.save(tmp_path / "cut")
    with pytest.raises(CheckpointError, match="json is missing"):
        read_checkpoint(tmp_path / "cut")


def _interrupt(path: Path) -> str:
    raise KeyboardInterrupt


def test_a_folder_that_cannot_be_written_is_an_error(trainer, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write a checkpoint"):
        trainer.save(tmp_path / "file" / "checkpoint")


def test_a_process_that_can_open_no_file_takes_no_checkpoint_for_damaged(folder):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    read_checkpoint(folder)  # imports what reading needs
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"ulimit -n"):
            read_checkpoint(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_best_model_has_the_loss_of_the_best_report(folder, corpus, trainer):
    best = read_checkpoint(folder).build_best_model()
    found = trainer._task.evaluate(best, "valid")
    assert found.loss == trainer.best.valid_loss


def test_a_trial_without_a_report_has_no_best_model(corpus, make_trial, tmp_path):
    GradientTrainer(make_trial(), corpus).save(tmp_path / "new")
    with pytest.raises(CheckpointError, match="no validation report yet"):
        read_checkpoint(tmp_path / "new").build_best_model()


@pytest.mark.parametrize("config", [LSTMConfig(width=8), TIED], ids=["lstm", "tied"])
def test_a_model_reloads_to_the_same_logits(config, tmp_path):
    model = build_model(config, 20, seed=5).eval()
    save_model(model, tmp_path / "model")
    loaded: Any = load_model(tmp_path / "model").eval()
    tokens_BT = torch.randint(20, (3, 6), generator=torch.Generator().manual_seed(1))
    assert loaded.config == config
    assert torch.equal(logits(model, tokens_BT)[0], logits(loaded, tokens_BT)[0])


def test_a_shared_table_is_written_once_and_shared_again(tmp_path):
    save_model(build_model(TIED, 1000, seed=5), tmp_path / "tied")
    size = (tmp_path / "tied" / "model.safetensors").stat().st_size
    # 4 bytes a parameter and a header of a few kilobytes.
    assert 0 <= size - 4 * TIED.parameter_count(1000) < 4096
    loaded: Any = load_model(tmp_path / "tied")
    assert loaded.output.weight is loaded.embedding.weight


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.json", None, r"model.json is missing"),
        ("model.json", "{}", "does not describe a model"),
        ("model.safetensors", None, r"model.safetensors is missing"),
        ("model.safetensors", "junk", r"model.safetensors is truncated or altered"),
    ],
)
def test_an_incomplete_model_is_refused(tmp_path, name, content, message):
    save_model(build_model(LSTMConfig(width=4), 20, seed=5), tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (LSTMConfig(width=4, layers=2), "is not part of the model"),
        (LSTMConfig(width=5), "has shape"),
        (LSTMConfig(width=4, tie_output=True), "output.weight is missing"),
    ],
)
def test_weights_of_another_configuration_are_refused_by_name(tmp_path, saved, message):
    save_model(build_model(LSTMConfig(width=4), 20, seed=5), tmp_path / "right")
    save_model(build_model(saved, 20, seed=5), tmp_path / "wrong")
    (tmp_path / "wrong" / "model.safetensors").rename(tmp_path / "right" / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path / "right")


@pytest.mark.parametrize("reason", [None, 3, "diverged: the loss is nan"])
def test_reports_of_earlier_checkpoints_say_in_words_why_a_trial_ended(reason: object) -> None:
    earlier = {"tokens": 900, "valid_loss": 1.0, "finished": True, "reason": reason}
    end = Report.model_validate(earlier).end
    expected = StopReason.DIVERGED if isinstance(reason, str) else StopReason.ERROR
    assert end is not None
    assert end.reason is expected
    assert Report.model_validate({"tokens": 900, "finished": False}).end is None
