"""A trial's checkpoints in storage: the newest whole one is used, and two are kept."""

from pathlib import Path

import pytest

from memtune.corpora import Corpus
from memtune.errors import CheckpointError
from memtune.execution.checkpoints import Checkpoints
from memtune.training import Learner, TrialConfig
from memtune.values import parse
from tests.golden.tiny_corpus import tiny_corpus

CONFIG = {"model": {"family": "lstm", "width": 4}, "training": {"tokens": 900, "report_every": 300}}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return tiny_corpus(tmp_path)


@pytest.fixture
def learner(corpus: Corpus) -> Learner:
    return Learner(parse(TrialConfig, CONFIG, "trial"), corpus)


@pytest.fixture
def checkpoints(tmp_path: Path, learner: Learner) -> Checkpoints:
    return Checkpoints(str(tmp_path / "checkpoints"), learner.identity)


def saved(checkpoints: Checkpoints, learner: Learner, times: int) -> None:
    for _ in range(times):
        learner.advance()
        checkpoints.save(learner)


def folders(tmp_path: Path, learner: Learner) -> list[Path]:
    return sorted(path for path in (tmp_path / "checkpoints" / learner.identity).iterdir() if path.is_dir())


def test_a_new_trial_has_no_checkpoint(checkpoints: Checkpoints, corpus: Corpus) -> None:
    assert checkpoints.restore(corpus, "cpu") is None
    assert checkpoints.curve() == ()


def test_the_newest_is_restored_and_two_are_kept(
    checkpoints: Checkpoints, learner: Learner, corpus: Corpus, tmp_path: Path
) -> None:
    saved(checkpoints, learner, 3)
    found = checkpoints.restore(corpus, "cpu")
    assert found is not None
    assert found.curve == learner.curve
    assert list(checkpoints.curve()) == learner.curve
    assert len(folders(tmp_path, learner)) == 2


def test_a_damaged_newest_one_leaves_the_one_before(
    checkpoints: Checkpoints,
    learner: Learner,
    corpus: Corpus,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved(checkpoints, learner, 2)
    newest = folders(tmp_path, learner)[-1]
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    found = checkpoints.restore(corpus, "cpu")
    assert found is not None
    assert found.curve == learner.curve[:1]
    assert newest.name in caplog.text


def test_what_was_passed_over_and_what_was_not_is_told_and_the_former_goes_with_the_next_one(
    checkpoints: Checkpoints, learner: Learner, corpus: Corpus, tmp_path: Path
) -> None:
    saved(checkpoints, learner, 2)
    newest = folders(tmp_path, learner)[-1]
    (newest / "learner.json").write_text("{")
    resumed = Checkpoints(str(tmp_path / "checkpoints"), learner.identity)
    found = resumed.restore(corpus, "cpu")
    assert isinstance(found, Learner)
    problem, whence = resumed.remarks
    assert newest.name in problem
    assert "truncated or altered" in problem
    assert whence == f"goes on from checkpoint {folders(tmp_path, learner)[0].name}"
    saved(resumed, found, 1)
    assert newest not in folders(tmp_path, learner)
    assert len(folders(tmp_path, learner)) == 2


def test_a_worker_taken_for_dead_puts_nothing_older_before_what_its_successor_wrote(
    checkpoints: Checkpoints, learner: Learner, corpus: Corpus, tmp_path: Path
) -> None:
    saved(checkpoints, learner, 1)
    successor = Checkpoints(str(tmp_path / "checkpoints"), learner.identity)
    found = successor.restore(corpus, "cpu")
    assert isinstance(found, Learner)
    saved(successor, found, 2)
    saved(checkpoints, learner, 1)
    latest = successor.restore(corpus, "cpu")
    assert latest is not None
    assert latest.tokens == found.tokens


def test_what_a_killed_worker_left_half_written_is_swept_away(
    checkpoints: Checkpoints, learner: Learner, tmp_path: Path
) -> None:
    saved(checkpoints, learner, 1)
    half = tmp_path / "checkpoints" / learner.identity / "000000000001-dead"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"")
    saved(checkpoints, learner, 1)
    assert not half.exists()


def test_when_none_is_whole_that_is_an_error_that_names_them(
    checkpoints: Checkpoints, learner: Learner, corpus: Corpus, tmp_path: Path
) -> None:
    saved(checkpoints, learner, 2)
    for folder in folders(tmp_path, learner):
        (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint in .*model\.safetensors"):
        checkpoints.restore(corpus, "cpu")
