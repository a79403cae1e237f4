"""Corpora are removed, renamed, exported and sampled whole, or stay as they are."""

import re

import pytest

from memtune.corpora import (
    CorpusStore,
    TextFile,
    export_text,
    import_corpus,
    list_corpora,
    open_corpus,
    remove_corpus,
    rename_corpus,
    sample_sentences,
    verify_corpus,
)
from memtune.errors import CorpusError, StorageError
from tests.file_size_limit import limit_file_size
from tests.unit.corpora.conftest import TEST, TRAIN, VALID, read_store_files

TEXTS = {"train": TRAIN, "valid": VALID, "test": TEST}


def test_a_removed_corpus_leaves_no_files(import_texts, store, cache):
    import_texts()
    remove_corpus("small", store)
    assert list_corpora(store) == []
    assert read_store_files(store.local_path) == {}


def test_removing_an_unknown_corpus_names_the_nearest(import_texts, store, cache):
    import_texts()
    with pytest.raises(CorpusError, match=r'no corpus "smal" .* did you mean "small"'):
        remove_corpus("smal", store)


@pytest.mark.parametrize("tokens", ["words", "bpe:300"])
def test_a_renamed_corpus_has_the_same_content(import_texts, store, cache, tokens):
    digest = import_texts(tokens=tokens).manifest.digest
    assert rename_corpus("small", "large", store).digest == digest
    assert [manifest.name for manifest in list_corpora(store)] == ["large"]
    assert verify_corpus("large", store) == []
    assert open_corpus("large", store, cache).digest == digest


def test_a_corpus_that_is_replaced_while_it_is_renamed_stays(import_texts, store, cache):
    class Meanwhile(CorpusStore):
        def commit(self, manifest):
            super().commit(manifest)
            import_texts(test="the dog\n", replace=True)

    digest = import_texts().manifest.digest
    assert rename_corpus("small", "large", Meanwhile(store.folder)).digest == digest
    assert open_corpus("large", store, cache).digest == digest
    assert open_corpus("small", store, cache)["test"].token_count == 3


def test_a_corpus_in_a_remote_store_is_renamed_and_removed(import_texts, remote_store, cache):
    import_texts(place=remote_store)
    rename_corpus("small", "large", remote_store)
    assert verify_corpus("large", remote_store) == []
    remove_corpus("large", remote_store)
    assert list_corpora(remote_store) == []


def test_a_name_that_exists_is_not_taken(import_texts, store, cache):
    import_texts()
    import_texts(name="large")
    before = read_store_files(store.local_path)
    with pytest.raises(CorpusError, match='already has a corpus "large"'):
        rename_corpus("small", "large", store)
    assert read_store_files(store.local_path) == before


def test_a_damaged_corpus_is_not_renamed(import_texts, store, cache):
    manifest = import_texts().manifest
    path = store.local_path / "small" / manifest.vocabulary.path
    path.write_bytes(path.read_bytes()[:-1])
    before = read_store_files(store.local_path)
    with pytest.raises(CorpusError, match=r"vocabulary\.arrow has .* altered"):
        rename_corpus("small", "large", store)
    assert read_store_files(store.local_path) == before


@pytest.mark.parametrize("tokens", ["words", "characters", "bytes", "bpe:300", "unigram:300"])
def test_exported_text_is_the_imported_one(import_texts, store, cache, tmp_path, tokens):
    import_texts(tokens=tokens)
    files = export_text(open_corpus("small", store, cache), tmp_path / "out")
    assert {path.stem: path.read_text() for path in files} == TEXTS


@pytest.mark.parametrize("format", ["text", "jsonl", "parquet"])
def test_an_exported_corpus_has_the_same_digest_when_imported(import_texts, store, cache, tmp_path, format):
    digest = import_texts().manifest.digest
    files = export_text(open_corpus("small", store, cache), tmp_path / "out", format)
    sources = {path.stem: TextFile(path, format) for path in files}
    assert import_corpus("again", sources, store, cache=cache).manifest.digest == digest


def test_an_export_replaces_no_file(import_texts, store, cache, tmp_path):
    import_texts()
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "valid.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"valid\.txt exists; remove it, or export to another folder"):
        export_text(open_corpus("small", store, cache), folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"valid.txt": "mine"}


@pytest.mark.parametrize("format", ["text", "parquet"])
def test_an_export_that_does_not_fit_leaves_no_file(import_texts, store, cache, tmp_path, format):
    import_texts()
    corpus, folder = open_corpus("small", store, cache), tmp_path / "out"
    with limit_file_size(10), pytest.raises(StorageError, match="File too large; choose another place"):
        export_text(corpus, folder, format)
    assert list(folder.iterdir()) == []


def test_a_sample_is_sentences_of_the_split_in_their_order(import_texts, store, cache):
    import_texts()
    corpus = open_corpus("small", store, cache)
    sample = sample_sentences(corpus, "train", 2, seed=0)
    assert sample == sample_sentences(corpus, "train", 2, seed=0)
    lines = TRAIN.splitlines()
    assert all(lines[number] == sentence for number, sentence in sample)
    assert [number for number, _ in sample] == sorted(number for number, _ in sample)
    assert len(sample_sentences(corpus, "train", 99, seed=0)) == len(lines)


def test_raw_text_is_exported_byte_by_byte(import_texts, store, cache, tmp_path):
    text = "a  b\n\nc_d\té\n"
    import_texts(text, text, text, kind="raw", tokens="bytes")
    export_text(open_corpus("small", store, cache), tmp_path / "out")
    assert (tmp_path / "out" / "test.txt").read_bytes() == text.encode()
    assert re.fullmatch(r"[0-9a-f]{64}", open_corpus("small", store, cache).digest)
