"""Stores, texts and imports of the tests of corpora, and sentences of the grammar."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest
from pyarrow import fs

from memtune.corpora import CorpusStore, ImportOptions, ImportResult, TextFile, import_corpus
from memtune.corpora.grammar.embedded_corpus import Sentence, generate_sentences
from memtune.storage.folder import Folder

REPOSITORY = Path(__file__).parents[3]
FORKSERVER = get_context("forkserver")
"""Starts processes without the threads and locks of this one. Its server imports once for all of them."""
FORKSERVER.set_forkserver_preload(["memtune.corpora", "pytest"])

TRAIN = "the cat sees the dog\nthe dog sleeps\na cat sleeps\n"
VALID = "the cat sleeps\na dog sees a cat\n"
TEST = "a cat sees the cat\n"


@pytest.fixture
def corpora_folder() -> Callable[[str], Path]:
    """Returns the folder of a published corpus, or skips the test on a machine without it."""
    root = Path(os.environ.get("MEMTUNE_TEST_CORPORA", REPOSITORY.parent / "shared" / "corpora"))

    def find(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no {name} in {root}")
        return root / name

    return find


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path) -> CorpusStore:
    return CorpusStore.open(tmp_path / "store")


@pytest.fixture
def remote_store(tmp_path) -> CorpusStore:
    """A store that cannot be memory-mapped: a file system of another kind over a local folder."""
    root = tmp_path / "remote"
    root.mkdir()
    return CorpusStore(
        Folder(fs.SubTreeFileSystem(str(root), fs.LocalFileSystem()), "corpora", "wrapped://corpora")
    )


@pytest.fixture
def write_texts(tmp_path) -> Callable[..., dict[str, TextFile]]:
    """Writes three texts and returns them as sources."""

    def write(train=TRAIN, valid=VALID, test=TEST, kind="text"):
        sources = {}
        for split, text in {"train": train, "valid": valid, "test": test}.items():
            path = tmp_path / f"{split}.txt"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            sources[split] = TextFile(path, kind)
        return sources

    return write


@pytest.fixture
def import_texts(store, cache, write_texts) -> Callable[..., ImportResult]:
    """Imports three texts as corpus "small"; keywords that are options of an import become its options."""

    def run(train=TRAIN, valid=VALID, test=TEST, kind="text", place=store, name="small", **keywords):
        given = {key: keywords.pop(key) for key in list(keywords) if key in ImportOptions.model_fields}
        sources = write_texts(train, valid, test, kind)
        return import_corpus(name, sources, place, ImportOptions(**given), cache=cache, **keywords)

    return run


def read_store_files(folder: Path) -> dict[str, bytes]:
    """All files of a store except locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.fixture(scope="session")
def training_sentences() -> list[Sentence]:
    return list(generate_sentences("train"))


@pytest.fixture(scope="module")
def hard_sentences(training_sentences: list[Sentence]) -> list[Sentence]:
    """A few hundred sentences, and the hardest ones to parse: the longest, and those with most attractors."""
    longest = sorted(training_sentences[:20_000], key=lambda sentence: -len(sentence.words))[:40]
    hardest = [s for s in training_sentences if s.agreement and s.agreement.attractors >= 4][:40]
    return [*training_sentences[:300], *longest, *hardest]
