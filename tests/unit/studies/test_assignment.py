"""A worker refuses a corpus that is not the study's, and the error does not fail the trial."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from memtune import usage
from memtune.corpora import open_corpus
from memtune.errors import WorkerError
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.trial_worker import Assignment, restore_or_create_trainer
from memtune.training import TrialConfig
from memtune.usage import NodeSeconds, UsageMeter

CONFIG = {"model": {"family": "lstm", "width": 4}, "training": {"tokens": 900}}


@pytest.fixture
def assignment(settings: Settings, tmp_path: Path) -> Assignment:
    config, digest = TrialConfig.model_validate(CONFIG), open_corpus("tiny", settings.corpus_store).digest
    return Assignment(
        number=0,
        identity=config.identity(digest),
        config=config,
        corpus="tiny",
        corpus_digest=digest,
        corpus_store=settings.corpus_store,
        checkpoint_root=str(tmp_path / "checkpoints"),
    )


def count_restored_tokens(assignment: Assignment) -> int:
    """Tokens of the trainer that a worker starts with."""
    return restore_or_create_trainer(
        assignment, Checkpoints(assignment.checkpoint_root, assignment.identity)
    ).tokens


def truncate(content: bytes) -> bytes:
    return content[:-10]


def alter(content: bytes) -> bytes:
    return content[:700] + bytes([content[700] ^ 1]) + content[701:]


def replace_digest(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "digest": "0" * 64}).encode()


@pytest.mark.parametrize(
    ("pattern", "damage", "named"),
    [
        ("train*.arrow", truncate, r"train-00000.arrow has \d+ bytes instead of \d+: it was truncated"),
        ("train*.arrow", alter, r"train-00000.arrow has another SHA-256 than at its import"),
        ("manifest.json", truncate, r"tiny/manifest.json: not a manifest"),
        ("manifest.json", replace_digest, r'corpus "tiny" in .* has digest 0+, the study was started on'),
    ],
)
def test_a_damaged_corpus_is_a_worker_error_until_it_is_repaired(
    pattern: str, damage: Callable[[bytes], bytes], named: str, assignment: Assignment
) -> None:
    (path,) = (Path(assignment.corpus_store) / "tiny").rglob(pattern)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with pytest.raises(WorkerError, match=named):
        count_restored_tokens(assignment)
    path.write_bytes(whole)
    assert count_restored_tokens(assignment) == 0


def test_a_worker_without_a_gpu_names_the_fix(
    assignment: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    needy = assignment.model_copy(update={"device": "cuda", "gpus": 1.0})
    with pytest.raises(
        WorkerError, match="needs a GPU and its worker sees none; check the GPU driver on that"
    ):
        count_restored_tokens(needy)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_trainer_counts_the_time_of_its_worker(
    assignment: Assignment, is_restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(assignment.checkpoint_root, assignment.identity)
    if is_restored:
        earlier = restore_or_create_trainer(assignment, checkpoints)
        earlier.advance()
        checkpoints.save(earlier)
    monkeypatch.setattr(usage, "time", SimpleNamespace(monotonic=iter((0.0, 10.0)).__next__))
    meter = UsageMeter(gpus=0.5, node_type="large")
    trainer = restore_or_create_trainer(assignment, checkpoints, meter)
    assert (trainer.tokens > 0) == is_restored
    assert trainer.usage.nodes["large"] == NodeSeconds(cpu=10.0, gpu=5.0)
