"""Texts in the tokens of a model, and the units in which models of different tokens compare."""

import math
from pathlib import Path

import pytest

from memtune.corpora import (
    Corpus,
    ImportOptions,
    TextFile,
    TextUnits,
    count_text_units,
    import_corpus,
    open_corpus,
)
from memtune.errors import CorpusError
from memtune.results.other_texts import read_other_text

SPLITS = ("train", "valid", "test")
TEXT = "the cat sleeps\na dog sees the cat\n"


def import_text(folder: Path, name: str, tokens: str, text: str = TEXT) -> Corpus:
    path = folder / f"{name}.txt"
    path.write_text(text)
    store, cache = folder / "store", folder / "cache"
    sources = dict.fromkeys(SPLITS, TextFile(path))
    import_corpus(name, sources, store, ImportOptions(tokens=tokens), cache=cache)
    return open_corpus(name, store, cache)


@pytest.mark.parametrize("tokens", ["words", "characters", "bytes", "bpe:300"])
def test_a_text_has_the_same_words_and_bytes_in_every_tokens(tmp_path, tokens):
    units = count_text_units(import_text(tmp_path, "own", tokens), "valid")
    assert (units.words, units.bytes, units.lost) == (8, len(TEXT), 0)


@pytest.mark.parametrize("tokens", ["words", "characters", "bytes", "bpe:300"])
@pytest.mark.parametrize("others", ["words", "characters", "bpe:300"])
def test_another_corpus_of_the_text_is_read_as_the_own_one(tmp_path, tokens, others):
    own = import_text(tmp_path, "own", tokens)
    import_text(tmp_path, "other", others)
    read, units = read_other_text(own, "other", "test", str(tmp_path / "store"))
    text, expected = read["test"], own["test"]
    assert (text.read_tokens(0, text.token_count) == expected.read_tokens(0, expected.token_count)).all()
    assert units == count_text_units(own, "test")


def test_words_that_the_model_lacks_are_counted(tmp_path):
    own = import_text(tmp_path, "own", "words")
    import_text(tmp_path, "other", "words", "the bird sleeps\n")
    _, units = read_other_text(own, "other", "test", str(tmp_path / "store"))
    assert units == TextUnits(4, 3, 16, 1, 1)


def test_bits_per_byte_and_perplexity_per_word_follow_from_the_loss():
    units = TextUnits(tokens=10, words=4, bytes=40, sentences=1)
    assert units.compute_figures(math.log(16))["bits_per_byte"] == pytest.approx(1)
    assert units.compute_figures(math.log(4))["word_perplexity"] == pytest.approx(16)
    assert units.compute_figures(math.log(16))["byte_perplexity"] == pytest.approx(2)


def test_the_share_of_lost_tokens_tells_that_figures_are_lower_bounds():
    units = TextUnits(tokens=10, words=8, bytes=40, sentences=2, lost=3)
    assert units.compute_figures(1.0)["lost_share"] == 0.3


def test_questions_are_not_joined_to_a_text_of_characters(tmp_path):
    import_text(tmp_path, "own", "characters")
    path = tmp_path / "pairs.tsv"
    path.write_text("a cat\tit sleeps\t1\n")
    sources = {"valid": TextFile(path, "snli-tsv")}
    import_corpus("asked", sources, tmp_path / "store", cache=tmp_path / "cache")
    with pytest.raises(CorpusError, match="questions are about words, and the tokens of own are characters"):
        open_corpus("own+asked", tmp_path / "store", tmp_path / "cache")


def test_the_perplexity_per_word_of_a_model_of_words_is_its_perplexity(tmp_path):
    units = count_text_units(import_text(tmp_path, "own", "words"), "valid")
    assert units.compute_figures(math.log(7))["word_perplexity"] == pytest.approx(7)


def test_a_text_of_lines_is_read_with_the_signs_and_clitics_of_the_model_that_learnt_prose(tmp_path):
    prose = tmp_path / "prose.txt"
    prose.write_text("The girl's cat sleeps. Don't run!\n")
    sources = dict.fromkeys(SPLITS, TextFile(prose, "prose", {"clitics": "split"}))
    store, cache = tmp_path / "store", tmp_path / "cache"
    import_corpus("own", sources, store, cache=cache)
    own = open_corpus("own", store, cache)
    import_text(tmp_path, "lines", "words", "The girl's cat sleeps.\nDon't run!\n")
    for other in ("own", "lines"):
        text = read_other_text(own, other, "test", str(store))[0]["test"]
        assert (text.read_tokens(0, 12) == own["test"].read_tokens(0, 12)).all()
        assert text.token_count == 12
