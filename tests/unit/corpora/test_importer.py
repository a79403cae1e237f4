"""Imports: ids, vocabulary, manifest, shards, digest, replacement and progress."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtune.corpora import CorpusStore, ImportOptions, TextFile, import_corpus, open_corpus, verify_corpus
from memtune.errors import CorpusError
from tests.unit.corpora.conftest import read_store_files


def decode_sentences(corpus, split):
    """The sentences of a split, decoded, each with its <eos>."""
    opened = corpus[split]
    return [
        corpus.vocabulary.decode(opened.read_tokens(start, start + length))
        for start, length in zip(opened.starts, opened.lengths, strict=True)
    ]


def test_an_imported_text_decodes_to_itself(import_texts, store, cache):
    import_texts(unknown="refuse")
    corpus = open_corpus("small", store, cache)
    assert decode_sentences(corpus, "train") == [
        ["the", "cat", "sees", "the", "dog", "<eos>"],
        ["the", "dog", "sleeps", "<eos>"],
        ["a", "cat", "sleeps", "<eos>"],
    ]
    assert decode_sentences(corpus, "test") == [["a", "cat", "sees", "the", "cat", "<eos>"]]


def test_ids_follow_training_count_then_token(import_texts, store, cache):
    import_texts(train="b c a c\nd b é\n", valid="a\n", test="b\n")
    vocabulary = open_corpus("small", store, cache).vocabulary
    assert vocabulary.tokens == ("<eos>", "<unk>", "b", "c", "a", "d", "é")
    assert vocabulary.counts == (2, 0, 2, 2, 1, 1, 1)


def test_a_vocabulary_that_refuses_unknown_words_has_no_unk(import_texts, store, cache):
    import_texts(unknown="refuse")
    assert "<unk>" not in open_corpus("small", store, cache).vocabulary


def test_an_unk_in_the_text_keeps_id_1_and_its_count(import_texts, store, cache):
    import_texts(train="a <unk> b\n<unk> a a\n", valid="<unk>\n", test="b\n", unknown="refuse")
    vocabulary = open_corpus("small", store, cache).vocabulary
    assert vocabulary.tokens == ("<eos>", "<unk>", "a", "b")
    assert vocabulary.counts == (2, 2, 3, 1)


def test_min_count_maps_rarer_training_words_to_unk(import_texts, store, cache):
    manifest = import_texts(min_count=2).manifest
    corpus = open_corpus("small", store, cache)
    assert corpus.vocabulary.tokens == ("<eos>", "<unk>", "the", "cat", "dog", "sleeps")
    assert corpus.vocabulary.counts == (3, 2, 3, 2, 2, 2)
    assert decode_sentences(corpus, "train")[0] == ["the", "cat", "<unk>", "the", "dog", "<eos>"]
    assert [manifest.splits[split].oov_tokens for split in ("train", "valid", "test")] == [2, 3, 2]


def test_max_size_bounds_the_vocabulary_with_eos_and_unk(import_texts, store, cache):
    import_texts(max_size=4)
    assert open_corpus("small", store, cache).vocabulary.tokens == ("<eos>", "<unk>", "the", "cat")


def test_valid_and_test_do_not_change_the_vocabulary(import_texts, store, cache):
    import_texts(valid="bird bird bird\n", test="fish\n")
    corpus = open_corpus("small", store, cache)
    assert "bird" not in corpus.vocabulary
    assert decode_sentences(corpus, "valid") == [["<unk>", "<unk>", "<unk>", "<eos>"]]


def test_lower_casing_joins_the_counts(import_texts, store, cache):
    import_texts(train="The the THE Él\n", valid="tHe\n", test="él\n", lower_case=True, unknown="refuse")
    vocabulary = open_corpus("small", store, cache).vocabulary
    assert (vocabulary.tokens, vocabulary.counts) == (("<eos>", "the", "él"), (1, 3, 1))


def test_moses_escapes_are_undone_once(import_texts, store, cache):
    text = "&lt;x&gt; &amp;lt; &apos;s &quot; &#91;a&#93; b&#124;c\n"
    import_texts(train=text, valid=text, test=text, unescape=True, unknown="refuse")
    sentence = decode_sentences(open_corpus("small", store, cache), "test")[0]
    assert sentence == ["<x>", "&lt;", "'s", '"', "[a]", "b|c", "<eos>"]


def test_words_are_unchanged_by_default(import_texts, store, cache):
    import_texts(train="The &amp; the\n", valid="the\n", test="The\n", unknown="refuse")
    assert set(open_corpus("small", store, cache).vocabulary.tokens) == {"<eos>", "The", "&amp;", "the"}


def test_the_manifest_counts_each_split(import_texts):
    summary = import_texts().manifest.splits["valid"]
    assert (summary.tokens, summary.sentences, summary.types, summary.longest) == (10, 2, 7, 6)


def test_the_manifest_records_licence_ideal_options_and_sources(import_texts, store):
    import_texts(licence="made up, free", ideal={"test": 12.5}, min_count=2)
    manifest = store.read_manifest("small")
    assert (manifest.licence, manifest.ideal) == ("made up, free", {"test": 12.5})
    assert manifest.options.min_count == 2
    assert manifest.sources["train"].bytes == len("the cat sees the dog\nthe dog sleeps\na cat sleeps\n")


def import_in_plain_python(texts, min_count):
    """Tokens and ids by a reference implementation in plain Python."""
    counts = Counter(word for sentence in texts["train"] for word in sentence)
    kept = [word for word, count in counts.items() if count >= min_count and word != "<unk>"]
    tokens = ["<eos>", "<unk>", *sorted(kept, key=lambda word: (-counts[word], word))]
    ids = {token: number for number, token in enumerate(tokens)}
    streams = {
        split: [ids.get(word, 1) for sentence in sentences for word in (*sentence, "<eos>")]
        for split, sentences in texts.items()
    }
    return tokens, streams


WORDS = st.sampled_from(["a", "b", "A", "é", "<unk>", "日本", "ab", "b-", "longer"])


SPLIT = st.lists(st.lists(WORDS, max_size=5), min_size=1, max_size=12).filter(
    lambda sentences: any("a" in sentence for sentence in sentences)
)


@given(
    texts=st.fixed_dictionaries({"train": SPLIT, "valid": SPLIT, "test": SPLIT}),
    min_count=st.integers(1, 2),
    shard_tokens=st.integers(1, 20),
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_equal_those_of_a_reference_implementation(store, cache, texts, min_count, shard_tokens):
    texts["train"] = texts["train"] * min_count
    options = ImportOptions(min_count=min_count, shard_tokens=shard_tokens)
    import_corpus("any", texts, store, options, replace=True, cache=cache)
    corpus = open_corpus("any", store, cache)
    tokens, streams = import_in_plain_python(texts, min_count)
    assert list(corpus.vocabulary.tokens) == tokens
    for split, stream in streams.items():
        assert corpus[split].read_tokens(0, corpus[split].token_count).tolist() == stream
        assert corpus[split].lengths.tolist() == [len(sentence) + 1 for sentence in texts[split]]
    assert verify_corpus("any", store) == []


def test_sentences_passed_as_lists_give_the_corpus_of_their_text(import_texts, tmp_path, cache, write_texts):
    from_files = import_texts().manifest
    sentences = {
        split: [line.split() for line in source.path.read_text().splitlines()]
        for split, source in write_texts().items()
    }
    generated = import_corpus("small", sentences, tmp_path / "other", cache=cache).manifest
    assert generated.digest == from_files.digest
    assert generated.sources["train"].sha256 == from_files.sources["train"].sha256


def test_a_vocabulary_beyond_65536_words_takes_wider_ids(tmp_path, cache):
    words = [f"w{number:06d}" for number in range(70_000)]
    sources = {"train": [words], "valid": [words[:3]], "test": [words[-3:]]}
    import_corpus("wide", sources, tmp_path, ImportOptions(unknown="refuse"), cache=cache)
    corpus = open_corpus("wide", tmp_path, cache)
    assert decode_sentences(corpus, "test") == [[*words[-3:], "<eos>"]]
    assert np.array_equal(corpus["train"].read_tokens(0, 70_000), np.arange(1, 70_001))


def test_the_digest_does_not_depend_on_the_shards(import_texts, tmp_path):
    whole = import_texts(place=tmp_path / "whole").manifest
    cut = import_texts(place=tmp_path / "cut", shard_tokens=4).manifest
    assert len(cut.splits["train"].shards) > len(whole.splits["train"].shards)
    assert cut.digest == whole.digest


@pytest.mark.parametrize(
    "change",
    [
        {"train": "the cat sees the dog the\ndog sleeps\na cat sleeps\n"},
        {"test": "a cat sees the dog\n"},
        {"min_count": 2},
    ],
    ids=["boundary", "token", "vocabulary"],
)
def test_the_digest_changes_with_the_content(import_texts, tmp_path, change):
    assert import_texts(place=tmp_path / "b", **change).manifest.digest != import_texts().manifest.digest


def test_shards_hold_whole_sentences_up_to_their_size(import_texts):
    shards = (
        import_texts(train="a b\nc\na b c d e f g\nd\ne\n", shard_tokens=5).manifest.splits["train"].shards
    )
    assert [(shard.tokens, shard.sentences) for shard in shards] == [(5, 2), (8, 1), (4, 2)]


def test_importing_the_same_content_again_changes_nothing(import_texts, store):
    import_texts()
    before = read_store_files(store.local_path)
    again = import_texts()
    assert again.unchanged
    assert read_store_files(store.local_path) == before


def test_different_content_under_an_existing_name_is_refused(import_texts, store):
    import_texts()
    before = read_store_files(store.local_path)
    with pytest.raises(CorpusError, match=r"already has a different corpus small \(digest .*replace it"):
        import_texts(test="the dog\n")
    assert read_store_files(store.local_path) == before


def test_replacing_leaves_only_the_new_corpus(import_texts, store, cache):
    old = import_texts().manifest
    new = import_texts(test="the dog\n", replace=True).manifest
    assert open_corpus("small", store, cache).digest == new.digest
    assert {path.split("/")[1] for path in read_store_files(store.local_path)} == {
        "manifest.json",
        new.folder,
    }
    assert new.folder != old.folder


def test_replacing_repairs_an_altered_corpus_of_the_same_content(import_texts, store):
    manifest = import_texts().manifest
    (store.local_path / "small" / manifest.vocabulary.path).write_bytes(b"gone")
    assert not import_texts(replace=True).unchanged
    assert verify_corpus("small", store) == []


def test_the_next_import_deletes_files_of_a_dead_import(import_texts, store):
    manifest = import_texts().manifest
    left = store.local_path / "small" / "data-left" / "train-00000.arrow"
    left.parent.mkdir()
    left.write_bytes(b"half")
    import_texts()
    assert {path.name for path in (store.local_path / "small").iterdir()} == {
        "manifest.json",
        manifest.folder,
    }


@pytest.mark.parametrize("name", ["../up", ".hidden", "", "a/b", "a b", "ä", "x" * 101])
def test_a_name_that_is_not_a_valid_folder_name_is_refused(import_texts, store, name):
    with pytest.raises(CorpusError, match="is not a valid name for a corpus"):
        import_texts(name=name)
    assert not store.local_path.exists()


@pytest.mark.parametrize("name", ["ptb", "Wiki-2.v1_raw", "_x", "-", "7"])
def test_a_name_may_have_letters_digits_and_some_punctuation(import_texts, store, name):
    import_texts(name=name)
    assert store.list_names() == [name]


def test_progress_ends_at_the_size_of_each_file(import_texts, write_texts):
    calls = []
    import_texts(progress=lambda done, total, split: calls.append((split, done, total)))
    sizes = {split: source.path.stat().st_size for split, source in write_texts().items()}
    assert calls == [(split, size, size) for split, size in sizes.items()]


def test_progress_of_generated_sentences_has_no_total(store, cache):
    calls = []
    sentences = {split: [["a", "bc"]] for split in ("train", "valid", "test")}
    import_corpus("small", sentences, store, cache=cache, progress=lambda *call: calls.append(call))
    assert calls == [(5, None, "train"), (5, None, "valid"), (5, None, "test")]


def test_penn_treebank_has_its_published_counts(corpora_folder, store, cache):
    folder = corpora_folder("ptb")
    sources = {split: TextFile(folder / f"ptb.{split}.txt", "ptb") for split in ("train", "valid", "test")}
    manifest = import_corpus("ptb", sources, store, cache=cache).manifest
    assert [manifest.splits[split].tokens for split in sources] == [929_589, 73_760, 82_430]
    assert manifest.vocabulary.size == manifest.splits["train"].types == 10_000
    assert [manifest.splits[split].oov_tokens for split in sources] == [0, 0, 0]


def test_a_path_and_its_file_uri_are_one_store(import_texts, tmp_path, cache):
    import_texts(place=f"file://{tmp_path}/store")
    assert open_corpus("small", tmp_path / "store", cache).name == "small"
    assert CorpusStore.open(f"file://{tmp_path}/store").local_path == tmp_path / "store"


def test_a_reader_of_the_old_manifest_never_sees_a_part_of_the_new_one(import_texts, store):
    import_texts()
    path = store.local_path / "small" / "manifest.json"
    old = path.read_bytes()
    with path.open("rb") as reader:
        import_texts(test="the dog\n", replace=True)
        assert reader.read() == old
    assert path.read_bytes() != old
