"""Warnings of imports: each has its numbers and a remedy, and a clean text has none."""

import re
from pathlib import Path

import numpy as np
import pytest

from memtune.corpora import TextFile, import_corpus
from memtune.errors import CorpusError


def write_sentences(words: list[str], length: int) -> str:
    return "".join(" ".join(words[place : place + length]) + "\n" for place in range(0, len(words), length))


@pytest.fixture
def find_warnings(import_texts):
    def run(*texts, **options):
        return "\n".join(import_texts(*texts, **options).warnings)

    return run


def test_a_clean_text_has_no_warning(find_warnings):
    assert find_warnings() == ""


@pytest.mark.parametrize(
    ("sign", "advice"), [(",", r"10,500 types end in a sign .*; --format prose"), ("", "keeps 0 of")]
)
def test_a_vocabulary_that_is_too_large_is_told_with_its_share(find_warnings, sign, advice):
    words = [f"w{number}{sign}" for number in range(10_500)]
    told = find_warnings(write_sentences(words, 10), "w1 w2\n", "w1 w2\n", unknown="map")
    assert "10,500 types for 10,500 words of training (100.0%) leave few examples of each" in told
    assert "--min-count 2" in told
    assert "--tokens bpe:2600" in told  # 8,000 would make one token of most words

    assert re.search(advice, told)


@pytest.mark.parametrize(("name", "told"), [("a.jsonl", ["jsonl"]), ("b.CSV.gz", ["csv"]), ("c.txt", [])])
def test_a_file_of_records_that_is_read_as_text_is_told(write_texts, store, cache, name, told):
    sources = write_texts()
    file = Path(sources["train"].path).with_name(name)
    file.write_text('{"text": "the cat"}\n')
    warnings = import_corpus("small", sources | {"train": TextFile(file)}, store, cache=cache).warnings
    assert re.findall(r"read as text, .*--format (\w+)", "\n".join(warnings)) == told


@pytest.mark.parametrize(("share", "is_told"), [(3, True), (10, False)])
def test_raw_prose_is_told_at_any_size(find_warnings, share, is_told):
    words = [f"w{number}{'' if number % share else ','}" for number in range(300)]
    told = find_warnings(write_sentences(words, 10), "w1 w2\n", "w1 w2\n", unknown="map")
    message = "100 of 300 types end in a sign of punctuation, such as 'w0,'; --format prose splits"
    assert (message in told) is is_told


@pytest.mark.parametrize("options", [{"max_size": 5000}, {"tokens": "characters"}])
def test_a_limited_vocabulary_is_not_too_large(find_warnings, options):
    words = [f"w{number}" for number in range(10_500)]
    assert "types for" not in find_warnings(write_sentences(words, 10), "w1 w2\n", "w1 w2\n", **options)


def test_sentences_of_two_splits_are_counted(find_warnings):
    random = np.random.default_rng(0)
    lines = [" ".join(f"w{number}" for number in random.integers(0, 50, 12)) + "\n" for _ in range(400)]
    told = find_warnings("".join(lines[:300]), "".join(lines[280:380]), "".join(lines[380:]))
    assert "20 of the 100 valid sentences of at least 5 words (20.0%) are in training too" in told
    assert "test sentences" not in told


def test_sentences_that_differ_in_few_words_are_not_the_same(find_warnings):
    """Rows of which all but two words are equal, as those of a probe from a file."""
    rows = [
        " ".join(["_"] * 5 + [f"a{own}"] + ["_"] * 4 + [f"b{own}"] + ["_"] * 11) + "\n" for own in range(80)
    ]
    assert "in training too" not in find_warnings(
        "".join(rows[:40]), "".join(rows[40:60]), "".join(rows[60:])
    )


def test_short_sentences_may_occur_again(find_warnings):
    assert "in training too" not in find_warnings("the cat\n" * 20, "the cat\n", "the cat\n")


def test_a_text_that_is_one_sentence_is_told_with_a_format(find_warnings):
    told = find_warnings("the cat " * 600 + "\n")
    assert "the train split has 1 sentence of 1,200 words on average" in told
    assert "--format prose" in told


@pytest.mark.parametrize(("words", "is_told"), [(102, True), (98, False)])
def test_a_split_of_one_line_is_told_from_a_hundred_words_on(find_warnings, words, is_told):
    assert ("1 sentence of" in find_warnings("the cat " * (words // 2) + "\n")) == is_told


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("c\u200bat", r"2 words of 1 type with zero-width characters, .* such as 'c\\u200bat', .*; --norm"),
        ("cafe\u0301", r"2 words of 1 type .* not in Unicode's composed form, such as 'cafe\\u0301'"),
    ],
)
def test_spellings_that_look_alike_are_told_until_they_are_normalised(find_warnings, word, message):

    text = f"the {word} sleeps\n"
    assert re.search(message, find_warnings(text, "the cat\n", text))
    assert "types" not in find_warnings(text, text, text, normalise="NFC", name="other")


def test_carriage_returns_as_line_ends_are_refused_with_a_command(import_texts):

    with pytest.raises(CorpusError, match=r"a carriage return within a line; .*tr '\\r' '\\n' < FILE > NEW"):
        import_texts("the cat\rthe dog\r")


def test_the_advised_number_of_subwords_is_below_that_of_types(find_warnings):
    words = [f"w{number}{'' if number % 3 else ','}" for number in range(4000)]
    told = find_warnings(write_sentences(words, 10), "w1 w2\n", "w1 w2\n", unknown="map")
    assert "--tokens bpe:1000 has" in told


def test_subwords_are_not_advised_for_a_text_with_annotations_which_would_refuse_them(find_warnings):
    train, other = (
        "".join(f"1\t{letter}{number},\t_\t_\t_\t_\t0\troot\t_\t_\n\n" for number in range(10_500))
        for letter in "wv"
    )
    told = find_warnings(train, other, other, kind="conllu", unknown="map")
    for warning in ("types end in a sign", "leave few examples of each", "are outside the vocabulary"):
        assert warning in told
    assert "--tokens" not in told


def test_the_advice_for_prose_says_how_lines_stay_apart(find_warnings):
    words = [f"w{number}," for number in range(300)]
    told = find_warnings(write_sentences(words, 10), "w1 w2\n", "w1 w2\n", unknown="map")
    assert "joins lines unless --option paragraphs=lines" in told


@pytest.mark.parametrize("kind", ["text", "prose"])
@pytest.mark.parametrize(
    "header", ["*** START OF THE PROJECT GUTENBERG EBOOK DOGS ***", "Project Gutenberg's Etext of Dogs"]
)
def test_a_licence_of_project_gutenberg_in_the_text_is_told(find_warnings, kind, header):
    text = f"{header}\n\nThe dog sleeps.\n"
    assert "import it with --format gutenberg" in find_warnings(text, text, text, kind=kind)


def test_a_text_about_gutenberg_is_not_told(find_warnings):
    text = "Gutenberg's press prints a book\n"
    assert "--format gutenberg" not in find_warnings(text, text, text)
