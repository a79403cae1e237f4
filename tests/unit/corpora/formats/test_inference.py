"""Pairs of sentences: both published forms of SNLI, and the plain table."""

import json

import pytest

from memtune.corpora import TextFile, import_corpus, open_corpus
from memtune.errors import CorpusError
from tests.unit.corpora.formats.conftest import read_sentences

PAIRS = [
    ("neutral", "( ( A dog ) ( runs . ) )", "( It ( -LRB- ( sleeps -RRB- ) ) )"),
    ("-", "( A dog )", "( A cat )"),
    ("contradiction", "( A dog )", "( No dog )"),
]


def format_json_lines():
    keys = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")
    return "".join(json.dumps(dict(zip(keys, row, strict=True)) | {"pairID": "x"}) + "\n" for row in PAIRS)


def format_columns():
    header = "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tpairID\n"
    return header + "".join("\t".join((*row, "x")) + "\n" for row in PAIRS)


def read_rows(corpus):
    return corpus.annotations["inference"]["train"].to_pylist()


@pytest.mark.parametrize("text", [format_json_lines(), format_columns()], ids=["jsonl", "txt"])
def test_words_come_from_the_binary_parse_and_unlabelled_pairs_are_left_out(import_text, text):
    corpus = import_text("snli", text)
    assert read_sentences(corpus) == ["A dog runs .", "It ( sleeps )", "A dog", "No dog"]
    assert read_rows(corpus) == [
        {"premise": 0, "hypothesis": 1, "label": 1},
        {"premise": 2, "hypothesis": 3, "label": 2},
    ]
    left_out = "pairs without a label that annotators agreed on"
    assert corpus.manifest.sources["train"].skipped == {left_out: 1}


def test_a_file_in_neither_published_form_is_refused(import_text):
    with pytest.raises(CorpusError, match="line 1: neither JSON nor a header with gold_label"):
        import_text("snli", "a dog\ta cat\t0\n")


def test_each_line_of_a_table_is_a_pair(import_text):
    corpus = import_text("snli-tsv", "a dog runs\tit  runs\t0\n\nno\tyes\t2\n")
    assert read_sentences(corpus) == ["a dog runs", "it runs", "no", "yes"]
    assert [row["label"] for row in read_rows(corpus)] == [0, 2]


def test_pairs_of_hugging_face_are_split_as_prose_and_those_without_a_majority_are_left_out(import_text):
    rows = [("A dog runs.", "It sleeps.", 1), ("A dog", "A cat", -1), ("A dog's tail", "No dog", 2)]
    names = ("premise", "hypothesis", "label")
    text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    corpus = import_text("snli", text)
    assert read_sentences(corpus) == ["A dog runs .", "It sleeps .", "A dog's tail", "No dog"]
    assert [row["label"] for row in read_rows(corpus)] == [1, 2]
    left_out = "pairs without a label that annotators agreed on"
    assert corpus.manifest.sources["train"].skipped == {left_out: 1}


def test_characters_of_a_chinese_pair_are_words(import_text):
    text = json.dumps({"premise": "狗用 GPU 跑。", "hypothesis": "it runs", "label": 0}) + "\n"
    assert read_sentences(import_text("snli", text)) == ["狗 用 GPU 跑 。", "it runs"]


def test_a_pair_of_a_table_without_a_majority_is_left_out(import_text):
    corpus = import_text("snli-tsv", "a dog\tit runs\t-1\na dog\tit runs\t0\n")
    assert corpus.manifest.splits["train"].sentences == 2
    assert list(corpus.manifest.sources["train"].skipped.values()) == [1]


@pytest.mark.parametrize("label", [3, 1.5, None, "yes", [1]])
def test_another_label_of_a_pair_is_named(import_text, label):
    text = json.dumps({"premise": "a dog", "hypothesis": "it runs", "label": label}) + "\n"
    with pytest.raises(CorpusError, match=r"line 1: the label .* is none of entailment, neutral"):
        import_text("snli", text)


def test_both_published_forms_give_the_same_corpus(corpora_folder, store, cache):
    folder = corpora_folder("snli")
    for name, ending in (("a", "jsonl"), ("b", "txt")):
        sources = {
            split: TextFile(folder / f"snli_1.0_{file}.{ending}", "snli")
            for split, file in (("valid", "dev"),)
        }
        import_corpus(name, sources, store, cache=cache)
    assert open_corpus("a", store, cache).digest == open_corpus("b", store, cache).digest
