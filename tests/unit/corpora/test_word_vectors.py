"""Pretrained vectors: rows of the vocabulary, words that the file lacks, and invalid lines."""

import numpy as np
import pytest

from memtune.corpora import ImportOptions, VectorFile, import_corpus, open_corpus, verify_corpus
from memtune.errors import CorpusError
from tests.presence import require

TEXT = {"train": [["a", "b", "é"]], "valid": [["a"]], "test": [["b"]]}
GLOVE = "the 0.5 1 2\na 1 -2.5 3e-1\né 4 5 6\n"


@pytest.fixture
def import_with_vectors(store, cache, tmp_path):
    """Imports a text with vectors and opens the corpus."""

    def run(glove, seed=0, place=store, **options):
        path = tmp_path / "glove.txt"
        path.write_text(glove)
        vectors = VectorFile(path, seed)
        import_corpus(
            "small", TEXT, place, ImportOptions(**options), vectors=vectors, cache=cache, replace=True
        )
        return open_corpus("small", place, cache)

    return run


def get_vector(corpus, word):
    return corpus.vectors.values_VE[corpus.vocabulary.get_id(word)].tolist()


def test_each_word_gets_its_row(import_with_vectors):
    corpus = import_with_vectors(GLOVE)
    assert corpus.vectors.values_VE.dtype == np.float32
    assert corpus.vectors.values_VE.shape == (len(corpus.vocabulary), 3)
    assert get_vector(corpus, "a") == pytest.approx([1, -2.5, 0.3])
    assert get_vector(corpus, "é") == [4, 5, 6]
    known = {
        token for token, found in zip(corpus.vocabulary.tokens, corpus.vectors.known_V, strict=True) if found
    }
    assert known == {"a", "é"}


def test_vectors_of_words_outside_the_file_depend_on_the_seed(import_with_vectors, store):
    first, again, other = (get_vector(import_with_vectors(GLOVE, seed), "b") for seed in (3, 3, 4))
    assert first == again != other


def test_vectors_of_words_outside_the_file_are_standard_normal(store, cache, tmp_path):
    words = [f"w{number}" for number in range(4000)]
    (tmp_path / "glove").write_text("w0 1 1\n")
    sources = {split: [words] for split in ("train", "valid", "test")}
    import_corpus("many", sources, store, vectors=VectorFile(tmp_path / "glove"), cache=cache)
    values = require(open_corpus("many", store, cache).vectors).values_VE
    assert abs(values.mean()) < 0.05  # over four standard errors of 8,000 draws
    assert values.std() == pytest.approx(1, abs=0.05)


def test_tokens_may_contain_spaces_and_the_first_row_of_a_token_counts(import_with_vectors):
    corpus = import_with_vectors("the 0 0 0\n. . . 1 2 3\na 1 2 3\na 9 9 9\nat name@domain.com 0 0 0\n")
    assert get_vector(corpus, "a") == [1, 2, 3]


def test_a_word_found_only_within_a_longer_token_is_unknown(import_with_vectors):
    corpus = import_with_vectors("é 0 0 0\nb 7 1 2 3\n")
    assert not corpus.vectors.known_V[corpus.vocabulary.get_id("b")]


@pytest.mark.parametrize(
    ("glove", "message"),
    [
        ("a 1 2 3\nb 1 2\n", "line 2: 2 numbers instead of 3"),
        ("a 1 2 3\nb 1 x 3\n", 'line 2: "b" is not followed by 3 finite numbers'),
        ("a 1 2 3\nb 1 nan 3\n", 'line 2: "b" is not followed by 3 finite numbers'),
        ("400000 300\na 1 2 3\n", "line 1: 1 number after the token"),
        ("A 1 2 3\n", "has no vector for any word of the corpus; check that both use the same case"),
        ("", "has no vector for any word"),
    ],
)
def test_an_invalid_vector_is_refused_with_its_line(import_with_vectors, glove, message):
    with pytest.raises(CorpusError, match=message):
        import_with_vectors(glove)


def test_bad_vectors_are_skipped_on_request(import_with_vectors):
    glove = "".join(f"w{number} 0 0 0\n" for number in range(200))
    corpus = import_with_vectors(f"{glove}b 1 2\na 1 2 3\n", skip_bad=True)
    assert get_vector(corpus, "a") == [1, 2, 3]


def test_a_missing_vector_file_is_reported_before_any_file_is_read(store, tmp_path):
    with pytest.raises(CorpusError, match=r"the file of vectors .*absent does not exist"):
        import_corpus("small", TEXT, store, vectors=VectorFile(tmp_path / "absent"))


def test_a_negative_seed_of_vectors_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="at least 0, got -1"):
        VectorFile(tmp_path / "glove", seed=-1)


def test_vectors_are_part_of_the_corpus(import_with_vectors, store, cache):
    corpus = import_with_vectors(GLOVE)
    bare = import_corpus("bare", TEXT, store, cache=cache).manifest
    assert import_with_vectors(GLOVE.replace("4 5 6", "4 5 7")).digest != corpus.digest != bare.digest
    assert open_corpus("bare", store, cache).vectors is None
    assert verify_corpus("small", store) == []
    record = store.read_manifest("small").vectors
    assert (record.width, record.known, record.source.name.rsplit("/", 1)[1]) == (3, 2, "glove.txt")
    path = store.local_path / "small" / record.path
    path.write_bytes(path.read_bytes()[:-8])
    assert "vectors.arrow has" in verify_corpus("small", store)[0]


def test_vectors_of_a_remote_corpus_are_downloaded(import_with_vectors, remote_store):
    assert get_vector(import_with_vectors(GLOVE, place=remote_store), "a") == pytest.approx([1, -2.5, 0.3])


def test_an_import_warns_of_the_number_of_words_without_vector(store, cache, tmp_path):
    (tmp_path / "glove").write_text(GLOVE)
    imported = import_corpus("small", TEXT, store, vectors=VectorFile(tmp_path / "glove"), cache=cache)
    assert "3 of 5 tokens have no vector in" in imported.warnings[0]
