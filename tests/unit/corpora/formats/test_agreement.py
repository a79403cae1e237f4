"""Number agreement: two files line by line, and the published table without its other forms."""

from collections import Counter

import pytest

from memtune.corpora import TextFile, import_corpus, open_corpus
from memtune.errors import CorpusError
from tests.unit.corpora.formats.conftest import sentences


def asked(corpus, split="train"):
    """(sentence, verb, right form, wrong form, attractors)."""
    tokens = corpus.vocabulary.tokens
    return [
        (row["sentence"], row["verb"], tokens[row["right"]], tokens[row["wrong"]], row["attractors"])
        for row in corpus.annotations["agreement"][split].to_pylist()
    ]


@pytest.fixture
def bring_pair(bring, monkeypatch):
    """Imports a text and its gold, whose words all get ids."""

    def run(text, gold, **options):
        return bring("agreement", text, "x.text", {"x.gold": gold}, **options)

    return run


def test_lines_belong_together(bring_pair):
    corpus = bring_pair("the dogs bark <eos>\nit barks\n", "2\tbark\tbarks\t0\n1\tbarks\tbark\t3\n")
    assert sentences(corpus) == ["the dogs bark", "it barks"]
    assert asked(corpus) == [(0, 2, "bark", "barks", 0), (1, 1, "barks", "bark", 3)]


def test_forms_are_spelled_as_in_the_sentence(bring_pair):
    text = "here we are\nnow it is\nAre we\nIs it\n"
    corpus = bring_pair(text, "2\tAre\tIs\t0\n2\tIs\tAre\t0\n0\tare\tis\t0\n0\tis\tare\t0\n")
    assert [row[2:4] for row in asked(corpus)] == [("are", "is"), ("is", "are"), ("Are", "Is"), ("Is", "Are")]


def test_the_gold_may_be_given(bring, tmp_path):
    (tmp_path / "other").write_text("0\tgo\tgoes\t1\n")
    corpus = bring("agreement", "go goes\n", gold=str(tmp_path / "other"))
    assert asked(corpus) == [(0, 0, "go", "goes", 1)]
    assert [record.name for record in corpus.manifest.sources["train"].beside] == [str(tmp_path / "other")]


@pytest.mark.parametrize(
    ("text", "gold", "message"),
    [
        ("a b\na b\n", "0\ta\tb\t0\n", r"x.gold ends after 1 lines, .*x.text goes on"),
        ("a b\n", "0\ta\tb\t0\n0\ta\tb\t0\n", r"x.gold has more lines than .*x.text"),
        (
            "a b\n",
            "0\ta\tb\n",
            "line 1: its line of gold is not position, right form, wrong form and attractors",
        ),
        ("a b\n", "5\ta\tb\t0\n", 'line 1: word 5 is nothing, its line of gold says "a"'),
    ],
)
def test_files_that_do_not_belong_together_are_refused(bring_pair, text, gold, message):
    with pytest.raises(CorpusError, match=message):
        bring_pair(text, gold)


def test_a_text_without_gold_names_what_is_missing(bring):
    with pytest.raises(CorpusError, match=r"in .*text\.gold, which does not exist; .*--option gold=FILE"):
        bring("agreement", "a b\n")


HEADER = "sentence\torig_sentence\tpos_sentence\tverb\tverb_index\tn_diff_intervening"


def row(sentence, tags, verb, index, attractors=0):
    return f"x\t{sentence}\t{tags}\t{verb}\t{index}\t{attractors}"


def test_other_forms_are_found_among_the_tagged_words_of_the_file(bring):
    rows = [
        row("the boxes near it are red", "DT NNS IN PRP VBP JJ", "are", 5, 1),
        row("he carries it and is red", "PRP VBZ PRP CC VBZ JJ", "carries", 2),
        row("they carry and they pass", "PRP VBP CC PRP VBP", "carry", 2, 2),
        row("it passes", "PRP VBZ", "passes", 2),
        row("They Do", "PRP VBP", "Do", 2),
        row("it does", "PRP VBZ", "does", 2),
    ]
    corpus = bring("linzen-tsv", "\n".join([HEADER, *rows]))
    assert asked(corpus) == [
        (0, 4, "are", "is", 1),
        (1, 1, "carries", "carry", 0),
        (2, 1, "carry", "carries", 2),
        (3, 1, "passes", "pass", 0),
        (4, 1, "Do", "Does", 0),
        (5, 1, "does", "do", 0),
    ]


def test_rows_without_the_other_form_are_left_out_and_counted(bring):
    rows = [
        row("it eats", "PRP VBZ", "eats", 2),
        row("they eat", "PRP VB", "eat", 2),  # not tagged as a present tense
        row("they do", "PRP VBP", "do", 2),
        row("it does", "PRP VBZ", "does", 2),
    ]
    corpus = bring("linzen-tsv", "\n".join([HEADER, *rows]))
    assert sentences(corpus) == ["they do", "it does"]
    skipped = corpus.manifest.sources["train"].skipped
    assert skipped == {"rows whose verb's other form is not in the file": 2}


def test_a_table_without_the_columns_is_refused(bring):
    with pytest.raises(CorpusError, match="line 1: a header without orig_sentence, pos_sentence"):
        bring("linzen-tsv", "verb\tverb_index\tn_diff_intervening\nis\t1\t0\n")


def test_quoted_columns_are_read_as_written(bring):
    rows = ['x\t"the ""dog"" is"\tDT NN VBZ\tis\t3\t0', row("we are", "PRP VBP", "are", 2)]
    assert sentences(bring("linzen-tsv", "\n".join([HEADER, *rows])))[0] == 'the "dog" is'


def test_the_published_questions_have_their_counts(corpora_folder, store, cache):
    folder = corpora_folder("linzen_agreement")
    source = TextFile(folder / "subj_agr_filtered.dev.text", "agreement")
    import_corpus("linzen", {"test": source}, store, cache=cache)
    corpus = open_corpus("linzen", store, cache)
    attractors = Counter(corpus.annotations["agreement"]["test"]["attractors"].to_pylist())
    assert attractors == {0: 1_000, 1: 996, 2: 932, 3: 629, 4: 143}
    same = [right for *_, right, wrong, _ in asked(corpus, "test") if right == wrong]
    assert same == ["wherein", "lie"]  # the file has these two without another form
    assert "<unk>" not in {form for *_, right, wrong, _ in asked(corpus, "test") for form in (right, wrong)}
