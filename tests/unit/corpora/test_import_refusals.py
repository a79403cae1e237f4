"""Refused imports, which leave the store unchanged, and warnings of imports."""

import json
from pathlib import Path

import pytest

from memtune.corpora import TextFile, import_corpus
from memtune.corpora.store.manifest import SCHEMA_VERSION
from memtune.errors import CorpusError, StorageError
from tests.unit.corpora.conftest import read_store_files


def test_words_outside_the_vocabulary_are_refused_with_split_and_examples(import_texts, store):
    with pytest.raises(CorpusError, match='the valid text has 2 words outside the vocabulary: "bird", "fly"'):
        import_texts(valid="bird sees fly bird\n", unknown="refuse")
    assert not store.local_path.exists()


@pytest.mark.parametrize("options", [{}, {"lower_case": True}, {"unescape": True}], ids=str)
def test_the_boundary_token_is_refused_in_a_text(import_texts, options):
    spelled = {"lower_case": "<EOS>", "unescape": "&lt;eos&gt;"}.get(next(iter(options), ""), "<eos>")
    with pytest.raises(CorpusError, match="the valid text contains <eos> 2 times"):
        import_texts(valid=f"the cat {spelled}\na dog {spelled}\n", **options)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_split_is_refused_with_its_name(import_texts, store, split, text):
    with pytest.raises(CorpusError, match=f"the {split} split is empty: no word in .*{split}.txt"):
        import_texts(kind="wikitext", **{split: text})
    assert not store.local_path.exists()


def test_a_min_count_that_leaves_no_word_is_refused(import_texts):
    with pytest.raises(
        CorpusError, match="no word occurs at least 100 times in the training text; lower min_count"
    ):
        import_texts(min_count=100)


def test_a_training_text_of_unknown_words_alone_is_refused(import_texts):
    with pytest.raises(CorpusError, match="the training text has no word besides <unk>; give another text"):
        import_texts(train="<unk> <unk>\n")


def test_a_missing_file_is_reported_before_any_file_is_read(write_texts, store, cache):
    sources = write_texts() | {"test": TextFile(store.local_path / "absent.txt")}
    with pytest.raises(CorpusError, match=r"the test file .*absent.txt does not exist"):
        import_corpus("small", sources, store, cache=cache)


def test_a_file_that_cannot_be_read_is_refused(write_texts, store, cache):
    """Reading one's own memory at address 0 fails for root too, whom modes of files do not stop."""
    sources = write_texts() | {"train": TextFile("/proc/self/mem")}
    with pytest.raises(CorpusError, match="cannot read /proc/self/mem: Input/output error"):
        import_corpus("tiny", sources, store, cache=cache)


def test_the_nearest_split_is_suggested_for_an_unknown_one(write_texts, store, cache):
    sources = write_texts()
    renamed = {"train": sources["train"], "validation": sources["valid"], "test": sources["test"]}
    with pytest.raises(CorpusError, match=r'small: no split is called "validation"; did you mean "valid"\?'):
        import_corpus("small", renamed, store, cache=cache)


def test_the_nearest_file_is_suggested_for_a_missing_one(write_texts, store, cache):
    sources = write_texts()
    place = Path(sources["test"].path)
    wrong = TextFile(place.with_name(f"x{place.name}"))
    with pytest.raises(CorpusError, match=rf'does not exist; did you mean "{place.name}"\?'):
        import_corpus("small", sources | {"test": wrong}, store, cache=cache)


def test_a_folder_without_files_is_refused_as_a_text(write_texts, store, cache, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"the folder .*empty has no files"):
        import_corpus("small", write_texts() | {"valid": TextFile(tmp_path / "empty")}, store, cache=cache)


def test_an_unknown_format_is_refused_with_the_nearest_name(import_texts):
    with pytest.raises(CorpusError, match='no format "wikitxt"; did you mean "wikitext"'):
        import_texts(kind="wikitxt")


def test_a_missing_split_is_refused(write_texts, store, cache):
    sources = write_texts()
    del sources["valid"]
    with pytest.raises(CorpusError, match=r"needs --train, --valid and --test, .* got train, test;"):
        import_corpus("small", sources, store, cache=cache)


def test_an_ideal_perplexity_for_an_unknown_split_is_refused(import_texts):
    with pytest.raises(CorpusError, match="ideal perplexities for dev"):
        import_texts(ideal={"dev": 3.0})


def test_a_failed_import_keeps_the_old_corpus(import_texts, store):
    import_texts()
    before = read_store_files(store.local_path)
    with pytest.raises(CorpusError, match="not UTF-8"):
        import_texts(test=b"caf\xe9\n", replace=True)
    assert read_store_files(store.local_path) == before


def test_a_store_below_a_file_cannot_be_written(import_texts, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to .*file is not a folder that can be written"):
        import_texts(place=tmp_path / "file" / "store")


def test_a_store_without_write_permission_cannot_be_written(import_texts):
    with pytest.raises(StorageError, match=r"cannot .* /proc/memtune"):
        import_texts(place="/proc/memtune")


def test_an_unknown_store_uri_is_refused(import_texts):
    with pytest.raises(StorageError, match="cannot open storage nowhere://x"):
        import_texts(place="nowhere://x")


def test_a_full_disk_for_temporary_files_is_reported_with_their_folder(import_texts, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(StorageError, match=r"cannot write to .*absent.*set TMPDIR"):
        import_texts()


def test_a_corpus_with_a_newer_schema_is_not_overwritten_without_replace(import_texts, store):
    import_texts()
    path = store.local_path / "small" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(CorpusError, match="written by a newer memtune"):
        import_texts()
    assert import_texts(replace=True).manifest.schema_version == SCHEMA_VERSION


def test_many_unknown_words_give_a_warning_with_their_rate(import_texts):
    warnings = import_texts(valid="the bird flies\n", test="the cat sleeps a dog\n").warnings
    assert len(warnings) == 1
    assert warnings[0].startswith("66.7% of the valid words are outside the vocabulary")


def test_few_unknown_words_give_no_warning(import_texts):
    assert import_texts(valid="the cat sees a bird\n").warnings == ()  # 20 %, the last rate without a warning


def test_testing_on_the_training_text_gives_a_warning(import_texts):
    same = "the cat\n"
    assert (
        "the test split is the training text"
        in import_texts(train=same, test=same, valid="cat\n").warnings[0]
    )


def test_the_share_of_unknown_words_does_not_count_sentence_ends(import_texts):
    imported = import_texts(valid="the emu\nemu\nthe cat\na\n", test="the cat\n")
    assert imported.manifest.splits["valid"].oov_rate == 2 / 6
    assert "33.3% of the valid words are outside the vocabulary" in imported.warnings[0]
