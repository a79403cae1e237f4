from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from memtune.corpora import Corpus, Example, ImportOptions, import_corpus, open_corpus
from memtune.models import LSTMConfig, NeuralLanguageModel, build_model

TEXT = [
    "the dog barks",
    "the dogs bark",
    "a cat near the dogs sleeps",
    "the cats near a dog sleep",
    "dogs near the cats bark at a dog",
] * 3


def split_words(lines: Sequence[str]) -> list[list[str]]:
    return [line.split() for line in lines]


@pytest.fixture
def open_joined(tmp_path: Path) -> Callable[..., Corpus]:
    """A function that imports a text and questions as two corpora and opens them joined."""

    def run(questions: Sequence[Example], text: Sequence[str] = TEXT, **options: Any) -> Corpus:
        store, cache = tmp_path / "store", tmp_path / "cache"
        lines = split_words(text)
        import_corpus(
            "text",
            dict.fromkeys(("train", "valid"), lines) | {"test": lines},
            store,
            ImportOptions(**options),
        )
        import_corpus("asked", {"valid": questions}, store, ImportOptions(vocabulary="all"))
        return open_corpus("text+asked", store, cache)

    return run


@pytest.fixture
def build_network() -> Callable[[Corpus], NeuralLanguageModel]:
    """A function that builds an untrained network whose words have different probabilities."""

    def build(corpus: Corpus) -> NeuralLanguageModel:
        return build_model(LSTMConfig(width=12, initial_range=0.7), len(corpus.vocabulary), 5).eval()

    return build
