"""Annotations of sentences: stored, verified, cached, part of the digest, and joined with another text."""

import pyarrow as pa
import pytest

from memtune.corpora import (
    ANNOTATION_KINDS,
    Example,
    ImportOptions,
    import_corpus,
    list_corpora,
    open_corpus,
    verify_corpus,
)
from memtune.errors import CorpusError
from tests.presence import require

AGREEMENT = [
    Example([["the", "dogs", "bark"]], {"agreement": [(0, 2, "bark", "barks", 0)]}),
    Example([["a", "cat"]]),
    Example([["the", "cat", "near", "dogs", "sleeps"]], {"agreement": [(0, 4, "sleeps", "sleep", 1)]}),
]
TREES = [
    Example([["the", "dogs", "bark"]], {"trees": [((1, 2, -1), ("det", "nsubj", "root"))]}),
    Example([["hello"]], {"trees": [((-1,), ("root",))]}),
]
PAIRS = [
    Example([["a", "dog", "barks"], ["a", "dog"]], {"inference": [(0, 1, 0)]}),
    Example([["a", "cat"], ["no", "cat"]], {"inference": [(0, 1, 2)]}),
]
QUESTION = Example(
    [["The", "dogs", "bark"], ["The", "CATS", "bark"], ["The", "rains", "bark"]],
    {"completion": [(0, 3, 1, 0, "7")]},
)
TEXT = [["the", "dogs", "bark"], ["Cats", "bark", "cats"]]


@pytest.fixture
def import_splits(store, cache):
    """Imports sentences or examples as splits and opens the corpus."""

    def run(name="small", place=store, replace=False, options=None, **splits):
        import_corpus(name, splits, place, options, cache=cache, replace=replace)
        return open_corpus(name, place, cache)

    return run


def test_rows_hold_sentence_indices_of_the_whole_split(import_splits):
    corpus = import_splits(train=PAIRS * 5000, valid=PAIRS, test=PAIRS)
    table = corpus.annotations["inference"]["train"]
    assert table.schema == ANNOTATION_KINDS["inference"].stored_schema
    assert table["premise"].to_numpy().tolist() == list(range(0, 20_000, 2))
    assert table["hypothesis"].to_numpy().tolist() == list(range(1, 20_000, 2))
    assert set(table["label"].to_pylist()) == {0, 2}
    assert corpus.manifest.annotations["inference"].labels == ("entailment", "neutral", "contradiction")


def test_forms_become_ids_of_the_vocabulary(import_splits):
    corpus = import_splits(options=ImportOptions(vocabulary="all"), test=AGREEMENT)
    rows = corpus.annotations["agreement"]["test"].to_pylist()
    assert [row["sentence"] for row in rows] == [0, 2]
    assert [corpus.vocabulary.tokens[row["wrong"]] for row in rows] == ["barks", "sleep"]
    assert [corpus.vocabulary.tokens[row["right"]] for row in rows] == ["bark", "sleeps"]


def test_a_form_that_no_sentence_has_gets_an_id_and_count_0(import_splits):
    vocabulary = import_splits(test=AGREEMENT).vocabulary
    assert vocabulary.counts[vocabulary.get_id("barks")] == 0


def test_forms_outside_a_vocabulary_of_the_training_text_are_unknown(import_splits):
    corpus = import_splits(train=AGREEMENT, valid=AGREEMENT)
    assert corpus.annotations["agreement"]["train"]["wrong"].to_pylist() == [1, 1]


def test_forms_outside_the_vocabulary_are_refused_with_unknown_refuse(import_splits):
    with pytest.raises(CorpusError, match="questions' text has 2 words outside the vocabulary"):
        import_splits(train=AGREEMENT, valid=AGREEMENT, options=ImportOptions(unknown="refuse"))


def test_forms_are_normalised_like_the_words(import_splits):
    example = Example([["Dogs", "Bark"]], {"agreement": [(0, 1, "Bark", "Barks", 0)]})
    corpus = import_splits(options=ImportOptions(lower_case=True), test=[example])
    (row,) = corpus.annotations["agreement"]["test"].to_pylist()
    assert corpus.vocabulary.decode([row["right"], row["wrong"]]) == ["bark", "barks"]


def test_trees_hold_heads_and_labels_by_first_appearance(import_splits):
    corpus = import_splits(train=TREES, valid=TREES[1:])
    assert corpus.manifest.annotations["trees"].labels == ("det", "nsubj", "root")
    assert corpus.annotations["trees"]["train"].to_pylist() == [
        {"heads": [1, 2, -1], "relations": [0, 1, 2]},
        {"heads": [-1], "relations": [2]},
    ]
    assert corpus.annotations["trees"]["valid"].to_pylist() == [{"heads": [-1], "relations": [2]}]


def test_trees_for_some_of_the_sentences_are_refused(import_splits):
    with pytest.raises(CorpusError, match="the valid split has trees for 1 of its 2 sentences"):
        import_splits(train=TREES, valid=[TREES[0], ["bare"]])


def test_a_vocabulary_of_all_counts_every_split(import_splits):
    vocabulary = import_splits(options=ImportOptions(vocabulary="all"), train=TREES, valid=TREES).vocabulary
    assert vocabulary.counts[vocabulary.get_id("hello")] == 2


def test_a_corpus_of_questions_alone_has_all_their_words(import_splits):
    corpus = import_splits(test=[QUESTION])
    assert list(corpus.splits) == ["test"]
    assert corpus.manifest.options.vocabulary == "all"
    assert corpus.annotations["completion"]["test"].to_pylist() == [
        {"first": 0, "candidates": 3, "blank": 1, "answer": 0, "question": "7"}
    ]
    assert corpus["test"].lengths.tolist() == [4, 4, 4]


def test_a_corpus_without_annotations_requires_every_split(import_splits, store):
    with pytest.raises(CorpusError, match="a corpus without annotations has the splits train, valid, test"):
        import_splits(train=TEXT)
    assert not store.list_names()


def test_a_table_is_memory_mapped(import_splits):
    before = pa.total_allocated_bytes()
    corpus = import_splits(train=PAIRS * 5000, valid=PAIRS)
    assert corpus.annotations["inference"]["train"].nbytes > 150_000
    assert pa.total_allocated_bytes() - before < 100_000


@pytest.mark.parametrize(
    "other",
    [
        [PAIRS[0], Example(PAIRS[1].sentences, {"inference": [(0, 1, 1)]})],
        [PAIRS[0], Example(PAIRS[1].sentences)],
    ],
    ids=["a label", "a row"],
)
def test_the_digest_changes_with_the_annotations(import_splits, tmp_path, other):
    assert (
        import_splits(train=PAIRS, valid=PAIRS).digest
        != import_splits(place=tmp_path / "b", train=other, valid=PAIRS).digest
    )


def test_the_digest_changes_with_the_labels_of_trees(import_splits, tmp_path):
    renamed = [
        Example(e.sentences, {"trees": [(e.rows["trees"][0][0], e.rows["trees"][0][1][::-1])]}) for e in TREES
    ]
    assert import_splits(train=TREES).digest != import_splits(place=tmp_path / "b", train=renamed).digest


def test_the_digest_of_a_text_without_annotations_does_not_change(import_splits):
    corpus = import_splits(train=[["a", "b"], ["b"]], valid=[["a"]], test=[["c", "a"]])
    assert corpus.digest == "48fb9f3c56428d296f842eb6b23fc180ddd0578bbc3fcee8c1b3ce6dac8112c8"


def test_an_altered_table_is_reported_with_its_file(import_splits, store):
    corpus = import_splits(train=PAIRS, valid=PAIRS)
    assert verify_corpus("small", store) == []
    path = store.local_path / "small" / corpus.manifest.annotations["inference"].files["valid"].path
    content = bytearray(path.read_bytes())
    content[-300] ^= 1
    path.write_bytes(content)
    (problem,) = verify_corpus("small", store)
    assert "valid-inference.arrow has another SHA-256" in problem
    with pytest.raises(CorpusError, match=r"valid-inference\.arrow"):
        open_corpus("small", store, path.parent / "fresh")


def test_tables_of_a_remote_corpus_are_downloaded(import_splits, remote_store):
    corpus = import_splits(place=remote_store, train=PAIRS, valid=PAIRS)
    assert corpus.annotations["inference"]["valid"].num_rows == 2
    assert verify_corpus("small", remote_store) == []


def test_replacing_deletes_the_old_tables(import_splits, store):
    import_splits(train=PAIRS, valid=PAIRS)
    import_splits(train=TREES, valid=TREES, replace=True)
    assert not list(store.local_path.rglob("*inference*"))
    assert list_corpora(store)[0].annotations.keys() == {"trees"}


# Joined corpora


def test_questions_can_be_joined_with_another_text(import_splits, store, cache):
    text = import_splits(train=TEXT, valid=TEXT, test=TEXT)
    questions = import_splits(name="asked", test=[QUESTION])
    joined = open_corpus("small+asked", store, cache)
    assert joined.name == "small+asked"
    assert joined.vocabulary.batch == text.vocabulary.batch
    assert list(joined.splits) == ["train", "valid", "test"]
    assert require(joined.questions).digest == questions.digest
    assert joined.digest not in (text.digest, questions.digest)


def test_both_parts_of_a_joined_corpus_are_verified(import_splits, store):
    corpus = import_splits(train=TEXT, valid=TEXT, test=TEXT)
    import_splits(name="asked", test=[QUESTION])
    assert verify_corpus("small+asked", store) == []
    (store.local_path / "small" / corpus.manifest.vocabulary.path).write_bytes(b"")
    asked = store.read_manifest("asked").annotations["completion"].files["test"].path
    (store.local_path / "asked" / asked).write_bytes(b"")
    first, second = verify_corpus("small+asked", store)
    assert first.startswith(f"{store.folder}/small/")
    assert second.startswith(f"{store.folder}/asked/")


def test_words_are_looked_up_as_written_then_in_lower_case_then_in_any_case(import_splits, store, cache):
    import_splits(train=TEXT, valid=TEXT, test=TEXT)
    import_splits(name="asked", test=[QUESTION])
    joined = open_corpus("small+asked", store, cache)
    asked = dict(
        zip(require(joined.questions).vocabulary.tokens, joined.map_question_ids().tolist(), strict=True)
    )
    here = joined.vocabulary.get_id
    assert asked == {
        "<eos>": 0,
        "<unk>": 1,
        "The": here("the"),
        "dogs": here("dogs"),
        "bark": here("bark"),
        "CATS": here("cats"),
        "rains": here("<unk>"),
    }


def test_a_corpus_with_annotations_is_its_own_question_corpus(import_splits):
    corpus = import_splits(train=TREES, valid=TREES)
    assert corpus.questions is corpus
    assert corpus.map_question_ids().tolist() == list(range(len(corpus.vocabulary)))


def test_a_text_without_annotations_has_no_questions(import_splits, store, cache):
    corpus = import_splits(train=TEXT, valid=TEXT, test=TEXT)
    assert corpus.questions is None
    with pytest.raises(CorpusError, match=r'small has no annotations; join .*"small\+QUESTIONS"'):
        corpus.map_question_ids()
    with pytest.raises(CorpusError, match="small has no annotations, so it cannot be asked of small"):
        open_corpus("small+small", store, cache)
