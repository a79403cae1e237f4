"""A tiny corpus and trials on it that take a fraction of a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memtune.corpora import Corpus
from memtune.training import TrialConfig
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus

LSTM = {"family": "lstm", "width": 12, "layers": 2, "dropout": 0.3}
MEMORY = {"family": "recurrent_memory", "width": 12, "memory_size": 4, "layers": 2, "dropout": 0.3}
SENTENCE = {"kind": "sentence", "batch_size": 16}
STREAM = {"kind": "stream", "batch_size": 8, "length": 7}


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the store and the cache of the tiny corpus."""
    return tmp_path_factory.mktemp("corpus")


@pytest.fixture(scope="session")
def corpus(corpus_folder: Path) -> Corpus:
    return make_tiny_corpus(corpus_folder)


def make_small_trial(
    model: dict[str, Any] | None = None,
    protocol: dict[str, Any] | None = None,
    seed: int = 3,
    **training: Any,
) -> TrialConfig:
    if "tokens" not in training:
        training = {"epochs": 2, **training}
    data = {"model": model or LSTM, "protocol": protocol or SENTENCE, "training": training, "seed": seed}
    return parse(TrialConfig, data, "trial")


@pytest.fixture(scope="session")
def make_trial() -> Callable[..., TrialConfig]:
    """A function that makes a small trial with the given fields."""
    return make_small_trial
