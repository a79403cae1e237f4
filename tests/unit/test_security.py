"""Crafted names, studies, checkpoints and manifests do not run code or access other files."""

import hashlib
import json
import os
import pickle
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from memtune.corpora import Corpus, import_corpus, open_corpus
from memtune.errors import CheckpointError, ConfigurationError, CorpusError, MemtuneError, TrackingError
from memtune.results.model_evaluation import evaluate
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.tracking.compatibility import load_client_class
from memtune.tracking.mlflow_connection import connect
from memtune.training import AnyTrainer, GradientTrainer, TrialConfig
from memtune.values import digest, parse

CONFIG = {"model": {"family": "lstm", "width": 4}, "training": {"tokens": 900, "report_every": 300}}

OTHER_USER_ID = 65534


def test_only_its_owner_can_enter_a_new_home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = Settings.from_environment(tmp_path / "new").home
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    earlier = tmp_path / "earlier"
    earlier.mkdir(0o750)
    (earlier / "mlflow.db").touch()
    assert stat.S_IMODE(Settings.from_environment(earlier).home.stat().st_mode) == 0o750
    assert f"(mode 0o750); to close it: chmod 700 {earlier}" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_lock_of_another_users_home_is_not_a_reason_to_move_its_records() -> None:
    load_client_class()  # another user may not read the files of this one's Python
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "mlflow.db.lock").touch(0o600)
        os.seteuid(OTHER_USER_ID)
        try:
            with pytest.raises(TrackingError, match="a home belongs to one user") as refused:
                connect(f"sqlite:///{folder}/mlflow.db")
        finally:
            os.seteuid(0)
    assert "move the file away" not in str(refused.value)


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.marker),)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that exists after foreign code was executed."""
    return tmp_path / "code-ran"


@pytest.fixture
def trap(marker: Path) -> bytes:
    content = pickle.dumps(Trap(marker))
    pickle.loads(content)
    assert marker.exists(), "the pickle was not executed by pickle.loads"
    marker.unlink()
    return content


@pytest.fixture
def corpus(settings: Settings) -> Corpus:
    return open_corpus("tiny", settings.corpus_store)


@pytest.fixture
def checkpoint(corpus: Corpus, tmp_path: Path) -> Path:
    """The folder of a trial's only checkpoint."""
    trainer = GradientTrainer(parse(TrialConfig, CONFIG, "trial"), corpus)
    trainer.advance()
    Checkpoints(str(tmp_path / "checkpoints"), "trial").save(trainer)
    (folder,) = [path for path in (tmp_path / "checkpoints" / "trial").iterdir() if path.is_dir()]
    return folder


def restore(checkpoint: Path, corpus: Corpus) -> AnyTrainer | None:
    return Checkpoints(str(checkpoint.parent.parent), checkpoint.parent.name).restore(corpus, "cpu")


def seal(checkpoint: Path, name: str) -> None:
    """Update the digests of a checkpoint's record after a file was replaced, as an attacker can."""
    record = json.loads((checkpoint / "learner.json").read_bytes())
    record["files"][name] = hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
    content = {key: value for key, value in record.items() if key != "digest"}
    (checkpoint / "learner.json").write_text(json.dumps({"digest": digest(content), **content}))


@pytest.mark.parametrize("name", ["model.safetensors", "best.safetensors", "learner.safetensors"])
def test_a_pickle_in_place_of_weights_is_refused_and_not_loaded(
    name: str, checkpoint: Path, corpus: Corpus, trap: bytes, marker: Path
) -> None:
    (checkpoint / name).write_bytes(trap)
    seal(checkpoint, name)
    with pytest.raises(CheckpointError, match=name):
        restore(checkpoint, corpus)
    assert not marker.exists()


def test_a_pickle_in_place_of_a_record_is_refused_and_not_loaded(
    checkpoint: Path, corpus: Corpus, trap: bytes, marker: Path
) -> None:
    (checkpoint / "learner.json").write_bytes(trap)
    with pytest.raises(MemtuneError):
        restore(checkpoint, corpus)
    assert not marker.exists()


def test_a_pickle_in_place_of_an_index_is_not_loaded(
    checkpoint: Path, corpus: Corpus, trap: bytes, marker: Path
) -> None:
    (checkpoint.parent / "latest.json").write_bytes(trap)
    assert restore(checkpoint, corpus) is not None, "the checkpoint is there"
    assert not marker.exists()


def test_an_index_of_checkpoints_cannot_name_another_folder(
    checkpoint: Path, corpus: Corpus, tmp_path: Path
) -> None:
    checkpoint.rename(tmp_path / checkpoint.name)
    (checkpoint.parent / "latest.json").write_text(json.dumps([f"../../{checkpoint.name}"]))
    assert restore(checkpoint, corpus) is None


@pytest.mark.parametrize("name", ["../tiny", "/etc", "a/../tiny", ".."])
def test_a_corpus_name_cannot_be_a_path(name: str, settings: Settings) -> None:
    with pytest.raises(CorpusError, match="is not a valid name for a corpus"):
        open_corpus(name, settings.corpus_store)
    with pytest.raises(CorpusError, match="is not a valid name for a corpus"):
        import_corpus(name, {split: [["a"]] for split in ("train", "valid", "test")}, settings.corpus_store)


@pytest.mark.parametrize("path", ["../../secret/file", "/etc/passwd", "data/../../x", "a/b/c"])
def test_a_manifest_cannot_name_a_file_outside_of_its_corpus(path: str, settings: Settings) -> None:
    manifest = Path(settings.corpus_store) / "tiny" / "manifest.json"
    document = json.loads(manifest.read_bytes())
    document["splits"]["train"]["shards"][0]["path"] = path
    manifest.write_text(json.dumps(document))
    with pytest.raises(CorpusError, match="not a manifest"):
        open_corpus("tiny", settings.corpus_store)


@pytest.mark.parametrize("name", ["../up", "a/b", "/root", "..", "a b"])
def test_a_study_name_cannot_be_a_path(name: str, study_file: Path) -> None:
    study_file.write_text(f'name = "{name}"\n' + study_file.read_text())
    with pytest.raises(ConfigurationError, match="name"):
        load_study(study_file)


@pytest.mark.parametrize("uri", ["models:/../../etc@champion", "file:///etc"])
def test_a_model_uri_cannot_name_a_file(uri: str, settings: Settings) -> None:
    with pytest.raises(TrackingError, match="no registered model"):
        evaluate(uri, settings=settings)


ATTEMPTS = [
    '__import__(\\"pathlib\\").Path(\\"{marker}\\").touch()',
    "$(touch {marker})",
    "!!python/object/apply:os.system [touch {marker}]",
]


def resolve(study_file: Path, settings: Settings) -> ResolvedStudy:
    return resolve_study(study_file, load_study(study_file), settings)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_text_in_a_study_or_space_is_never_executed(
    attempt: str, settings: Settings, study_file: Path, marker: Path
) -> None:
    text = attempt.format(marker=marker)
    space, study = study_file.parent / "space.toml", study_file.read_text()
    study_file.write_text(study.replace("Does a second layer help?", text))
    assert str(marker) in resolve(study_file, settings).study.question
    study_file.write_text(study.replace('"tiny"', f'"{text}"'))
    with pytest.raises(CorpusError):
        resolve(study_file, settings)
    study_file.write_text(study)
    for value in ("[4, 8]", '"lstm"'):
        original = space.read_text()
        space.write_text(original.replace(value, f'"{text}"'))
        with pytest.raises(ConfigurationError):
            resolve(study_file, settings)
        space.write_text(original)
    assert not marker.exists()
