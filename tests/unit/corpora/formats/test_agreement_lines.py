"""Number agreement: two files line by line, and the published table, which lacks the other forms."""

from collections import Counter
from pathlib import Path

import pytest

from memtune.corpora import TextFile, import_corpus, open_corpus
from memtune.errors import ConfigurationError, CorpusError
from tests.unit.corpora.formats.conftest import read_sentences


def read_questions(corpus, split="train"):
    """(sentence, verb, right form, wrong form, attractors)."""
    tokens = corpus.vocabulary.tokens
    return [
        (row["sentence"], row["verb"], tokens[row["right"]], tokens[row["wrong"]], row["attractors"])
        for row in corpus.annotations["agreement"][split].to_pylist()
    ]


@pytest.fixture
def import_with_gold(import_text, monkeypatch):
    """Imports a text with its gold file; every word gets an id."""

    def run(text, gold, **options):
        return import_text("agreement", text, "x.text", {"x.gold": gold}, **options)

    return run


def test_corresponding_lines_form_a_question(import_with_gold):
    corpus = import_with_gold("the dogs bark <eos>\nit barks\n", "2\tbark\tbarks\t0\n1\tbarks\tbark\t3\n")
    assert read_sentences(corpus) == ["the dogs bark", "it barks"]
    assert read_questions(corpus) == [(0, 2, "bark", "barks", 0), (1, 1, "barks", "bark", 3)]


def test_forms_have_the_case_of_the_sentence(import_with_gold):
    text = "here we are\nnow it is\nAre we\nIs it\n"
    corpus = import_with_gold(text, "2\tAre\tIs\t0\n2\tIs\tAre\t0\n0\tare\tis\t0\n0\tis\tare\t0\n")
    assert [row[2:4] for row in read_questions(corpus)] == [
        ("are", "is"),
        ("is", "are"),
        ("Are", "Is"),
        ("Is", "Are"),
    ]


def test_an_option_names_the_gold_file(import_text, tmp_path):
    (tmp_path / "other").write_text("0\tgo\tgoes\t1\n")
    corpus = import_text("agreement", "go goes\n", gold=str(tmp_path / "other"))
    assert read_questions(corpus) == [(0, 0, "go", "goes", 1)]
    assert [record.name for record in corpus.manifest.sources["train"].beside] == [str(tmp_path / "other")]


@pytest.mark.parametrize(
    ("text", "gold", "message"),
    [
        ("a b\na b\n", "0\ta\tb\t0\n", r"x.gold ends after 1 line, but .*x.text has more"),
        ("a b\n", "0\ta\tb\t0\n0\ta\tb\t0\n", r"x.gold has more lines than .*x.text"),
        (
            "a b\n",
            "0\ta\tb\n",
            "line 1: its gold line is not position, right form, wrong form and attractors",
        ),
        ("a b\n", "5\ta\tb\t0\n", 'line 1: word 5 is missing, its gold line says "a"'),
    ],
)
def test_files_that_do_not_correspond_are_refused(import_with_gold, text, gold, message):
    with pytest.raises(CorpusError, match=message):
        import_with_gold(text, gold)


def test_a_text_without_gold_is_refused_with_the_missing_file(import_text):
    with pytest.raises(CorpusError, match=r"in .*text\.gold, but .* does not exist; .*--option gold=FILE"):
        import_text("agreement", "a b\n")


HEADER = "sentence\torig_sentence\tpos_sentence\tverb\tverb_index\tn_diff_intervening"


def format_row(sentence, tags, verb, index, attractors=0):
    return f"x\t{sentence}\t{tags}\t{verb}\t{index}\t{attractors}"


def test_other_forms_are_found_among_the_tagged_words_of_the_file(import_text):
    rows = [
        format_row("the boxes near it are red", "DT NNS IN PRP VBP JJ", "are", 5, 1),
        format_row("he carries it and is red", "PRP VBZ PRP CC VBZ JJ", "carries", 2),
        format_row("they carry and they pass", "PRP VBP CC PRP VBP", "carry", 2, 2),
        format_row("it passes", "PRP VBZ", "passes", 2),
        format_row("They Do", "PRP VBP", "Do", 2),
        format_row("it does", "PRP VBZ", "does", 2),
    ]
    corpus = import_text("linzen-tsv", "\n".join([HEADER, *rows]))
    assert read_questions(corpus) == [
        (0, 4, "are", "is", 1),
        (1, 1, "carries", "carry", 0),
        (2, 1, "carry", "carries", 2),
        (3, 1, "passes", "pass", 0),
        (4, 1, "Do", "Does", 0),
        (5, 1, "does", "do", 0),
    ]


def test_rows_without_the_other_form_are_left_out_and_counted(import_text):
    rows = [
        format_row("it eats", "PRP VBZ", "eats", 2),
        format_row("they eat", "PRP VB", "eat", 2),  # not tagged as a present tense
        format_row("they do", "PRP VBP", "do", 2),
        format_row("it does", "PRP VBZ", "does", 2),
    ]
    corpus = import_text("linzen-tsv", "\n".join([HEADER, *rows]))
    assert read_sentences(corpus) == ["they do", "it does"]
    skipped = corpus.manifest.sources["train"].skipped
    assert skipped == {"rows whose verb's other form is not in the file": 2}


def test_a_table_without_the_columns_is_refused(import_text):
    with pytest.raises(CorpusError, match="line 1: a header without orig_sentence, pos_sentence"):
        import_text("linzen-tsv", "verb\tverb_index\tn_diff_intervening\nis\t1\t0\n")


def test_quoted_columns_are_read_as_written(import_text):
    rows = ['x\t"the ""dog"" is"\tDT NN VBZ\tis\t3\t0', format_row("we are", "PRP VBP", "are", 2)]
    assert read_sentences(import_text("linzen-tsv", "\n".join([HEADER, *rows])))[0] == 'the "dog" is'


def test_the_published_questions_have_their_counts(corpora_folder, store, cache):
    folder = corpora_folder("linzen_agreement")
    source = TextFile(folder / "subj_agr_filtered.dev.text", "agreement")
    import_corpus("linzen", {"test": source}, store, cache=cache)
    corpus = open_corpus("linzen", store, cache)
    attractors = Counter(corpus.annotations["agreement"]["test"]["attractors"].to_pylist())
    assert attractors == {0: 1_000, 1: 996, 2: 932, 3: 629, 4: 143}
    same = [right for *_, right, wrong, _ in read_questions(corpus, "test") if right == wrong]
    assert same == ["wherein", "lie"]  # the file has no other form of these two
    assert "<unk>" not in {
        form for *_, right, wrong, _ in read_questions(corpus, "test") for form in (right, wrong)
    }


def write_generated(verb, right, wrong, columns=12):
    """A gold line of the generated questions of Gulordava et al. (2018)."""
    line = ["R!A!B", "3", "1", str(verb), "VERB", "Number=Plur", right, wrong, "_", "1", "NOUN", "A_B"]
    return "\t".join(line[:columns]) + "\n"


TABLE = "form\tclass\tn_attr\nstays\tcorrect\t2\nstay\twrong\t2\nrun\tcorrect\t0\nruns\twrong\t0\n"
GENERATED = ("the dog green off <eos>\ncats Run there\n", [(2, "stays", "stay"), (1, "run", "runs")])


@pytest.mark.parametrize("columns", [11, 12])
def test_generated_questions_keep_their_forms_if_the_text_has_another_word(import_with_gold, columns):
    text, questions = GENERATED
    corpus = import_with_gold(text, "".join(write_generated(*question, columns) for question in questions))
    assert read_sentences(corpus) == ["the dog green off", "cats Run there"]
    assert read_questions(corpus) == [(0, 2, "stays", "stay", -1), (1, 1, "Run", "Runs", -1)]


def test_the_attractors_of_generated_questions_are_in_their_table(import_text):
    text, questions = GENERATED
    gold = "".join(write_generated(*question) for question in questions)
    corpus = import_text("agreement", text, "x.text", {"x.gold": gold, "x.tab": TABLE})
    assert [row[-1] for row in read_questions(corpus)] == [2, 0]
    assert corpus.manifest.sources["train"].notes == ()
    beside = corpus.manifest.sources["train"].beside
    assert [Path(record.name).name for record in beside] == ["x.gold", "x.tab"]


def test_unknown_attractors_are_noted_once(import_with_gold):
    text, questions = GENERATED
    corpus = import_with_gold(text, "".join(write_generated(*question) for question in questions))
    (note,) = corpus.manifest.sources["train"].notes
    assert "the number of attractors is not known for some questions" in note


@pytest.mark.parametrize(
    ("gold", "table", "message"),
    [
        (write_generated(9, "stays", "stay"), TABLE, "line 1: position 9 in a sentence of 4 words"),
        (
            write_generated(2, "goes", "go"),
            TABLE,
            'rows of the table .* are not of "goes" and "go"',
        ),
        (write_generated(2, "stays", "stay"), "form\tclass\n", r"x\.tab: line 1: a header without n_attr"),
        (write_generated(2, "stays", "stay"), TABLE.replace("2", "x"), 'n_attr "x" is not a whole number'),
        (write_generated(2, "a b", "stay"), TABLE, '"a b" and "stay" are not two forms of one word'),
        (write_generated("9" * 5_000, "a", "b"), TABLE, r'position "9{40}\.\.\." is not a whole number'),
    ],
)
def test_generated_questions_that_do_not_match_their_text_are_refused(import_text, gold, table, message):
    with pytest.raises(CorpusError, match=message):
        import_text("agreement", "the dog green off\n", "x.text", {"x.gold": gold, "x.tab": table})


def test_a_table_next_to_other_questions_is_not_read(import_text):
    corpus = import_text(
        "agreement", "it barks\n", "x.text", {"x.gold": "1\tbarks\tbark\t3\n", "x.tab": "other\n"}
    )
    assert read_questions(corpus) == [(0, 1, "barks", "bark", 3)]


@pytest.mark.parametrize("label", ["VBZ", "sing", "singular"])
def test_a_number_label_asks_for_a_form_after_its_prefix(import_text, label):
    corpus = import_text("agreement-prefix", f"{label}\tthe dog near cats\nVBP\tdogs\n")
    assert read_sentences(corpus) == ["the dog near cats is", "dogs are"]
    assert read_questions(corpus) == [(0, 4, "is", "are", -1), (1, 1, "are", "is", -1)]


def test_options_set_forms_and_attractors_of_prefixes(import_text):
    corpus = import_text("agreement-prefix", "VBZ\tder Hund\n", singular="ist", plural="sind", attractors="5")
    assert read_questions(corpus) == [(0, 2, "ist", "sind", 5)]


@pytest.mark.parametrize("forms", [{"singular": "are"}, {"plural": "have been"}])
def test_equal_forms_for_prefixes_are_refused(import_text, forms):
    with pytest.raises(ConfigurationError, match="singular and plural must be two different words"):
        import_text("agreement-prefix", "VBZ\tthe dog\n", **forms)


def test_verbs_of_other_languages_get_their_forms_from_a_file(import_text, tmp_path):
    (tmp_path / "forms").write_text("schläft\tschlafen\nè\tsono\nшёл\tшли\nшла\tшли\n")  # noqa: RUF001
    rows = [
        "orig_sentence\tverb\tverb_index\tn_diff_intervening",
        "Der Hund schläft\tschläft\t3\t0",
        "Sono qui\tSono\t1\t1",
        "мы шли там\tшли\t2\t0",  # the form of the first line, of two genders
        "sie geht\tgeht\t2\t0",
    ]
    corpus = import_text("linzen-tsv", "\n".join(rows), forms=str(tmp_path / "forms"))
    assert read_questions(corpus) == [
        (0, 2, "schläft", "schlafen", 0),
        (1, 0, "Sono", "È", 1),
        (2, 1, "шли", "шёл", 0),
    ]
    assert list(corpus.manifest.sources["train"].skipped.values()) == [1]


def test_a_file_of_forms_has_two_words_per_line(import_text, tmp_path):
    (tmp_path / "forms").write_text("is\tare\nhas\n")
    with pytest.raises(CorpusError, match="forms: line 2: 1 word; give a singular form, a TAB and a plural"):
        import_text("linzen-tsv", f"{HEADER}\n", forms=str(tmp_path / "forms"))
