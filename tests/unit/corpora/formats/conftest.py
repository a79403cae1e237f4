from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.corpora import Corpus, ImportOptions, TextFile, import_corpus, open_corpus


@pytest.fixture
def import_text(store, cache, tmp_path) -> Callable[..., Corpus]:
    """Imports a text in a format as the training split and opens the corpus."""

    def run(format: str, text: str, name: str = "text", beside: dict[str, str] | None = None, **options):
        for other, content in {name: text, **(beside or {})}.items():
            (tmp_path / other).write_text(content)
        source = TextFile(Path(tmp_path / name), format, options)
        every_word = ImportOptions(vocabulary="all")
        import_corpus("small", {"train": source}, store, every_word, cache=cache, replace=True)
        return open_corpus("small", store, cache)

    return run


def read_sentences(corpus: Corpus, split: str = "train") -> list[str]:
    """The sentences of a split as text."""
    opened = corpus[split]
    return [
        " ".join(corpus.vocabulary.decode(opened.read_tokens(start, start + length - 1)))
        for start, length in zip(opened.starts, opened.lengths, strict=True)
    ]
