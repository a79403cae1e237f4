"""A trial's checkpoints in storage: the newest undamaged one is used, and two are kept."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memtune import usage as usage_module
from memtune.corpora import Corpus
from memtune.errors import CheckpointError, StorageError
from memtune.storage.folder import Folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.training import GradientTrainer, TrialConfig
from memtune.usage import UsageMeter
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus

CONFIG: dict[str, Any] = {
    "model": {"family": "lstm", "width": 4},
    "training": {"tokens": 900, "report_every": 300},
}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return make_tiny_corpus(tmp_path)


@pytest.fixture
def trainer(corpus: Corpus) -> GradientTrainer:
    return GradientTrainer(parse(TrialConfig, CONFIG, "trial"), corpus)


@pytest.fixture
def checkpoints(tmp_path: Path, trainer: GradientTrainer) -> Checkpoints:
    return Checkpoints(str(tmp_path / "checkpoints"), trainer.identity)


def save(checkpoints: Checkpoints, trainer: GradientTrainer, times: int) -> None:
    for _ in range(times):
        trainer.advance()
        checkpoints.save(trainer)


def list_folders(tmp_path: Path, trainer: GradientTrainer) -> list[Path]:
    return sorted(path for path in (tmp_path / "checkpoints" / trainer.identity).iterdir() if path.is_dir())


def test_a_new_trial_has_no_checkpoint(checkpoints: Checkpoints, corpus: Corpus) -> None:
    assert checkpoints.restore(corpus, "cpu") is None
    assert checkpoints.read_curve() == ()


def test_the_newest_is_restored_and_two_are_kept(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 3)
    found = checkpoints.restore(corpus, "cpu")
    assert found is not None
    assert found.curve == trainer.curve
    assert list(checkpoints.read_curve()) == trainer.curve
    assert len(list_folders(tmp_path, trainer)) == 2


def test_a_damaged_newest_checkpoint_is_replaced_by_the_one_before(
    checkpoints: Checkpoints,
    trainer: GradientTrainer,
    corpus: Corpus,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    save(checkpoints, trainer, 2)
    newest = list_folders(tmp_path, trainer)[-1]
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    found = checkpoints.restore(corpus, "cpu")
    assert found is not None
    assert found.curve == trainer.curve[:1]
    assert newest.name in caplog.text


def test_skipped_checkpoints_are_remarked_and_deleted_with_the_next_save(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 2)
    newest = list_folders(tmp_path, trainer)[-1]
    (newest / "learner.json").write_text("{")
    resumed = Checkpoints(str(tmp_path / "checkpoints"), trainer.identity)
    found = resumed.restore(corpus, "cpu")
    assert isinstance(found, GradientTrainer)
    problem, source = resumed.remarks
    assert newest.name in problem
    assert "truncated or altered" in problem
    assert source == f"resumes from checkpoint {list_folders(tmp_path, trainer)[0].name}"
    save(resumed, found, 1)
    assert newest not in list_folders(tmp_path, trainer)
    assert len(list_folders(tmp_path, trainer)) == 2


def test_a_save_leaves_folders_that_are_no_checkpoints(
    checkpoints: Checkpoints, trainer: GradientTrainer, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 1)
    copy = tmp_path / "checkpoints" / trainer.identity / "2nd-copy"
    shutil.copytree(list_folders(tmp_path, trainer)[0], copy)
    save(checkpoints, trainer, 2)
    assert copy in list_folders(tmp_path, trainer)
    assert len(list_folders(tmp_path, trainer)) == 3


def test_a_replaced_worker_enters_no_older_checkpoint_before_a_newer_one(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 1)
    successor = Checkpoints(str(tmp_path / "checkpoints"), trainer.identity)
    found = successor.restore(corpus, "cpu")
    assert isinstance(found, GradientTrainer)
    save(successor, found, 2)
    save(checkpoints, trainer, 1)
    latest = successor.restore(corpus, "cpu")
    assert latest is not None
    assert latest.tokens == found.tokens


def test_incomplete_checkpoints_of_killed_workers_are_deleted(
    checkpoints: Checkpoints, trainer: GradientTrainer, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 1)
    half = tmp_path / "checkpoints" / trainer.identity / "000000000001-dead"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"")
    save(checkpoints, trainer, 1)
    assert not half.exists()


def test_a_missing_newest_checkpoint_is_replaced_by_the_one_before(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 2)
    older, newest = list_folders(tmp_path, trainer)
    shutil.rmtree(newest)
    resumed = Checkpoints(str(tmp_path / "checkpoints"), trainer.identity)
    found = resumed.restore(corpus, "cpu")
    assert isinstance(found, GradientTrainer)
    assert found.curve == trainer.curve[:1]
    assert f"{newest.name} is missing" in resumed.remarks[0]
    save(resumed, found, 1)
    assert older in list_folders(tmp_path, trainer)
    assert len(list_folders(tmp_path, trainer)) == 2


def test_a_checkpoint_that_cannot_be_downloaded_now_is_not_skipped(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, trainer, 2)

    def fail(folder: Folder, target: Path) -> None:
        raise StorageError(f"cannot read {folder}: connection timed out")

    monkeypatch.setattr(Folder, "download", fail)
    with pytest.raises(StorageError, match="timed out"):
        checkpoints.restore(corpus, "cpu")


def test_the_sweep_leaves_a_newer_checkpoint_of_another_worker(
    checkpoints: Checkpoints, trainer: GradientTrainer, tmp_path: Path
) -> None:
    """The other worker has uploaded its files and not yet written the index."""
    newer = tmp_path / "checkpoints" / trainer.identity / "000000099999-ab"
    newer.mkdir(parents=True)
    (newer / "model.safetensors").write_bytes(b"")
    save(checkpoints, trainer, 1)
    assert newer.exists()


def test_an_error_names_the_checkpoints_when_all_are_damaged(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 2)
    for folder in list_folders(tmp_path, trainer):
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no undamaged checkpoint in .*model\.safetensors"):
        checkpoints.restore(corpus, "cpu")


def test_two_processes_that_save_one_trial_at_once_keep_its_newest_checkpoint(
    checkpoints: Checkpoints, trainer: GradientTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings of one configuration into an object store, which has no locks."""
    save(checkpoints, trainer, 2)
    write, other = Folder.write_json, Checkpoints(str(tmp_path / "checkpoints"), trainer.identity)

    def write_after_the_other(folder: Folder, name: str, content: object) -> None:
        monkeypatch.setattr(Folder, "write_json", write)
        other.save(trainer)
        write(folder, name, content)

    trainer.advance()
    monkeypatch.setattr(Folder, "write_json", write_after_the_other)
    checkpoints.save(trainer)
    index = json.loads((tmp_path / "checkpoints" / trainer.identity / "latest.json").read_bytes())
    assert {*index} <= {folder.name for folder in list_folders(tmp_path, trainer)}
    assert checkpoints.read().record.position.tokens == trainer.tokens


def test_a_save_leaves_the_index_that_another_process_is_writing(
    checkpoints: Checkpoints, trainer: GradientTrainer, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 1)
    partial = tmp_path / "checkpoints" / trainer.identity / "latest.json.0123456789abcdef.partial"
    partial.write_text("[")
    save(checkpoints, trainer, 1)
    assert partial.exists()


def test_files_outside_the_index_are_deleted_after_the_end_of_a_trial(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 3)
    folder = tmp_path / "checkpoints" / trainer.identity
    kept = sorted(folder.iterdir())
    (folder / "000000099999-ab").mkdir()
    (folder / "latest.json.0123456789abcdef.partial").touch()
    checkpoints.delete_leftovers()
    assert sorted(folder.iterdir()) == kept
    assert list(checkpoints.read_curve()) == trainer.curve


def test_weights_of_a_report_beyond_the_end_of_the_trial_are_not_used(
    checkpoints: Checkpoints, corpus: Corpus
) -> None:
    adam = {"optimiser": {"kind": "adam", "learning_rate": 0.02}}
    config = {**CONFIG, "training": {**CONFIG["training"], **adam}}
    trainer = GradientTrainer(parse(TrialConfig, config, "trial"), corpus)
    save(checkpoints, trainer, 2)
    first, second = trainer.curve
    assert trainer.best is second
    assert checkpoints.read(max_tokens=first.tokens).record.curve == (first,)
    assert checkpoints.read(max_tokens=second.tokens).record.curve == (first, second)


def test_the_upload_of_a_checkpoint_that_does_not_enter_the_index_is_deleted(
    checkpoints: Checkpoints, trainer: GradientTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, trainer, 1)
    (first,) = list_folders(tmp_path, trainer)

    def fail(folder: Folder, name: str, content: object) -> None:
        raise StorageError(f"cannot write {name}: disk full")

    monkeypatch.setattr(Folder, "write_json", fail)
    with pytest.raises(StorageError, match="disk full"):
        save(checkpoints, trainer, 1)
    assert list_folders(tmp_path, trainer) == [first]


def test_a_save_that_fails_damages_no_earlier_one_of_the_same_tokens(
    checkpoints: Checkpoints, trainer: GradientTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long interval is saved before and after its validation, without training in between."""
    save(checkpoints, trainer, 1)

    def fail(folder: Folder, name: str, content: object) -> None:
        raise StorageError(f"cannot write {name}: disk full")

    monkeypatch.setattr(Folder, "write_json", fail)
    with pytest.raises(StorageError, match="disk full"):
        checkpoints.save(trainer)
    assert checkpoints.read().record.position.tokens == trainer.tokens


def test_the_first_error_of_an_upload_is_raised_where_its_deletion_fails_too(
    checkpoints: Checkpoints, trainer: GradientTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Folder, *arguments: object) -> None:
        raise StorageError("disk full" if arguments else "cannot delete")

    for method in ("upload", "delete"):
        monkeypatch.setattr(Folder, method, fail)
    with pytest.raises(StorageError, match="disk full"):
        save(checkpoints, trainer, 1)


def test_a_checkpoint_is_stored_although_an_obsolete_one_cannot_be_deleted(
    checkpoints: Checkpoints,
    trainer: GradientTrainer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(folder: Folder) -> None:
        raise StorageError(f"cannot delete {folder}")

    monkeypatch.setattr(Folder, "delete", refuse)
    save(checkpoints, trainer, 3)
    assert "an obsolete checkpoint remains: cannot delete" in caplog.text
    assert list(checkpoints.read_curve()) == trainer.curve


def test_a_restored_trainer_adds_to_the_usage_of_its_checkpoint(
    checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, trainer, 1)
    monkeypatch.setattr(usage_module, "time", SimpleNamespace(monotonic=iter((0.0, 10.0)).__next__))
    meter = UsageMeter(cpus=0.0, gpus=1.0, node_type="large")
    found = checkpoints.restore(corpus, "cpu", meter)
    assert found is not None
    usage = found.usage
    assert usage.nodes["large"].gpu == 10.0
    assert usage.tokens == trainer.tokens


@pytest.mark.parametrize("content", ["", "[", "5", '"x"', '{"a": 1}', "true", "[5]", '["../other"]'])
def test_where_the_index_is_damaged_the_newest_whole_checkpoint_is_used(
    content: str, checkpoints: Checkpoints, trainer: GradientTrainer, corpus: Corpus, tmp_path: Path
) -> None:
    save(checkpoints, trainer, 2)
    folder = tmp_path / "checkpoints" / trainer.identity
    half = folder / "000000099999-ab"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (folder / "latest.json").write_text(content)
    found = checkpoints.restore(corpus, "cpu")
    assert found is not None
    assert found.tokens == trainer.tokens
    save(checkpoints, trainer, 1)
    assert json.loads((folder / "latest.json").read_bytes())[0].startswith(f"{trainer.tokens:012d}-")
