"""Text that is given to a model is read as its corpus was."""

import logging
import math
import re

import numpy
import pandas
import pytest
from mlflow.exceptions import MlflowException

from memtune.corpora import ImportOptions, TextFile, import_corpus, open_corpus
from memtune.errors import TrackingError
from memtune.models import LSTMConfig, build_model
from memtune.tracking.registry.pyfunc_flavor import SentenceScorer
from memtune.tracking.registry.text_rules import TextReader, TextRules, find_text_rules

TOKENS = ("<eos>", "<unk>", "the", "cat", "sleeps", "N", "do", "n't", ".")
IDS = {token: number for number, token in enumerate(TOKENS)}


@pytest.mark.parametrize(
    ("rules", "text", "words"),
    [
        (TextRules(), "the cat sleeps", ["the", "cat", "sleeps"]),
        (TextRules(), "The cat", ["<unk>", "cat"]),
        (TextRules(casing="fold"), "The CAT N", ["the", "cat", "N"]),
        (TextRules(casing="lower"), "The CAT", ["the", "cat"]),
        (TextRules(tokeniser="prose"), "the cat sleeps.", ["the", "cat", "sleeps", "."]),
        (TextRules(tokeniser="prose", split_clitics=True), "don't", ["do", "n't"]),
        (TextRules(tokeniser="prose", final="drop"), "_the_ * cat.", ["the", "cat"]),
        (TextRules(tokeniser="prose"), "the <unk> sleeps", ["the", "<unk>", "sleeps"]),
        (TextRules(unescape=True), "do n&apos;t", ["do", "n't"]),
    ],
)
def test_a_text_is_split_and_looked_up_by_the_rules(rules, text, words):
    assert [TOKENS[number] for number in TextReader(rules, IDS).read(text).ids] == words


def test_unknown_words_are_told():
    assert TextReader(TextRules(), IDS).read("the dog sleeps Now").unknown_words == ["dog", "Now"]


def test_an_unknown_word_is_an_error_where_the_corpus_refused_it():
    with pytest.raises(TrackingError, match='does not know "dog"'):
        TextReader(TextRules(unknown="refuse"), IDS).read("the dog")


@pytest.mark.parametrize(
    ("sentence", "options", "casing"),
    [
        (["the", "cat"], ImportOptions(), "fold"),
        (["The", "Cat"], ImportOptions(), "keep"),
        (["The", "Cat"], ImportOptions(lower_case=True), "lower"),
    ],
)
def test_the_casing_is_that_of_the_import_or_of_the_text(tmp_path, sentence, options, casing):
    splits = dict.fromkeys(("train", "valid", "test"), [sentence] * 4)
    import_corpus("cased", splits, tmp_path / "store", options, cache=tmp_path / "cache")
    assert find_text_rules(open_corpus("cased", tmp_path / "store", tmp_path / "cache")).casing == casing


@pytest.mark.parametrize("tokens", ["words", "characters", "bytes", "bpe:300", "unigram:300"])
@pytest.mark.parametrize("lower_case", [True, False])
def test_a_corpus_is_read_again_as_the_tokens_that_its_import_made(tmp_path, tokens, lower_case):
    """With a capital sigma at the end of a word, which Python and the import put into other lower cases."""
    splits = dict.fromkeys(("train", "valid", "test"), [["The", "ΟΔΟΣ", "İs", "GRÜN"]] * 4)
    options = ImportOptions(tokens=tokens, lower_case=lower_case)
    import_corpus("cased", splits, tmp_path / "store", options, cache=tmp_path / "cache")
    corpus = open_corpus("cased", tmp_path / "store", tmp_path / "cache")
    read = TextReader(find_text_rules(corpus), corpus.vocabulary.ids).read("The ΟΔΟΣ İs GRÜN")
    assert read.ids == corpus["test"].read_tokens(0, len(read.ids)).tolist()
    assert read.unknown_words == []


def test_the_rules_of_a_corpus_without_a_train_split_are_those_of_its_first_split(tmp_path):
    """A corpus of questions or labels may have a test split alone."""
    path = tmp_path / "test.txt"
    path.write_text("(2 (2 the) (2 cat))\n")
    import_corpus("rated", {"test": TextFile(path, "sst")}, tmp_path / "store", cache=tmp_path / "cache")
    rules = find_text_rules(open_corpus("rated", tmp_path / "store", tmp_path / "cache"))
    assert (rules.tokeniser, rules.casing) == ("blanks", "fold")


@pytest.fixture(scope="module")
def scorer():
    return SentenceScorer(build_model(LSTMConfig(), len(TOKENS), seed=0), TOKENS, TextRules(casing="fold"))


def test_text_in_another_case_has_the_probability_of_the_corpus_own(scorer, caplog):
    assert scorer.predict(["THE Cat sleeps"]) == scorer.predict(["the cat sleeps"])
    assert caplog.text == ""


def test_unknown_words_are_warned_of_with_their_share(scorer, caplog):
    with caplog.at_level(logging.WARNING):
        scorer.predict(["the dog sleeps", "cat"])
    assert "25.0 % of the words are not in the model's vocabulary" in caplog.text
    assert "dog" in caplog.text


def test_sentences_come_as_a_list_a_column_or_one_text(scorer):
    (score,) = scorer.predict("the cat")
    for given in (
        ["the cat"],
        [["the cat"]],
        [{"sentence": "the cat", "id": 1}],
        numpy.array(["the cat"]),
        {"sentence": ["the cat"]},
        pandas.DataFrame({"id": [1], "sentence": ["the cat"]}),
        pandas.DataFrame({"text": ["the cat"]}),
        pandas.DataFrame(["the cat"]),
        pandas.Series(["the cat"]),
    ):
        assert scorer.predict(given) == [score]
    assert scorer.predict([]) == []


@pytest.mark.parametrize("columns", [["id", "text"], ["sentence", "sentence"]])
def test_columns_of_which_not_one_is_the_sentence_are_named(scorer, columns):
    with pytest.raises(
        MlflowException, match=f'columns {", ".join(columns)}; name the one with the sentences "sentence"'
    ):
        scorer.predict(pandas.DataFrame([["the", "cat"]], columns=columns))


@pytest.mark.parametrize("value", [None, math.nan, 7, b"the cat", ["the", "cat"]])
def test_the_first_row_without_a_text_is_named_with_its_value(scorer, value):
    message = rf"^row 2 of the input is {re.escape(repr(value))}, not a text"
    for given in (["the cat", value, 5], {"id": [1, 2], "sentence": ["the cat", value]}):
        with pytest.raises(MlflowException, match=message):
            scorer.predict(given)


def test_an_input_that_has_no_rows_is_refused(scorer):
    with pytest.raises(MlflowException, match="neither a list of sentences nor a table"):
        scorer.predict({"sentence": "the cat"})
