"""Sentence completion: questions, files of answers, and words normalised for a language model."""

import re

import pytest

from memtune.corpora import TextFile, import_corpus, open_corpus
from memtune.errors import ConfigurationError, CorpusError
from tests.unit.corpora.formats.conftest import read_sentences

QUESTIONS = """1a) It's the girl's [hat] , I think.
1b) It's the girl's [cats'] , I think.
1c) It's the girl's [o'clock] , I think.

2a) Don't [go] there
2b) Don't [went] there
"""


def read_questions(corpus, split="train"):
    rows = corpus.annotations["completion"][split].to_pylist()
    return [(row["question"], row["first"], row["candidates"], row["blank"], row["answer"]) for row in rows]


def test_questions_are_consecutive_candidates(import_text):
    corpus = import_text("msr-completion", QUESTIONS)
    assert read_questions(corpus) == [("1", 0, 3, 3, -1), ("2", 3, 2, 1, -1)]
    assert read_sentences(corpus)[0] == "It's the girl's hat , I think ."
    assert read_sentences(corpus)[4] == "Don't went there"


def test_the_final_punctuation_can_be_dropped(import_text):
    found = read_sentences(import_text("msr-completion", QUESTIONS, final="drop"))
    assert (found[0], found[4]) == ("It's the girl's hat , I think", "Don't went there")


@pytest.mark.parametrize("sign", [".", "!", "?", " ."])
def test_punctuation_after_the_blank_is_a_separate_word(import_text, sign):
    corpus = import_text("msr-completion", f"7a) I [go]{sign}\n7b) I [went]{sign}\n")
    assert read_sentences(corpus)[0] == f"I go {sign.strip()}"


def test_clitics_can_be_split_as_in_the_penn_treebank(import_text):
    corpus = import_text("msr-completion", QUESTIONS, clitics="split")
    assert read_sentences(corpus) == [
        "It 's the girl 's hat , I think .",
        "It 's the girl 's cats ' , I think .",
        "It 's the girl 's o'clock , I think .",
        "Do n't go there",
        "Do n't went there",
    ]
    assert read_questions(corpus) == [("1", 0, 3, 5, -1), ("2", 3, 2, 2, -1)]


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("x.answers.txt", "2b) Don't [went] there\n1c) It's the girl's [o'clock] , I think.\n"),
        ("x.labels.txt", "2\n1\n"),
    ],
)
def test_the_answers_file_next_to_the_questions_is_used(import_text, name, answers):
    corpus = import_text("msr-completion", QUESTIONS, "x.questions.txt", {name: answers})
    assert [answer for *_, answer in read_questions(corpus)] == [2, 1]


def test_an_option_names_the_answers_file(import_text, tmp_path):
    (tmp_path / "labels").write_text("0\n1\n")
    corpus = import_text("msr-completion", QUESTIONS, answers=str(tmp_path / "labels"))
    assert [answer for *_, answer in read_questions(corpus)] == [0, 1]


def test_a_missing_answers_file_is_reported_with_its_path(import_text, tmp_path):
    with pytest.raises(CorpusError, match=r"the file of answers .*absent does not exist"):
        import_text("msr-completion", QUESTIONS, answers=str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("0\n", "question 2 has no answer among its candidates"),
        ("0\n2\n", "question 2 has no answer"),
        ("0\nb\n", r"x.labels.txt: line 2: neither .* nor a number"),
    ],
)
def test_answers_that_do_not_match_the_questions_are_refused(import_text, labels, message):
    with pytest.raises(CorpusError, match=message):
        import_text("msr-completion", QUESTIONS, "x.questions.txt", {"x.labels.txt": labels})


def test_an_answer_with_other_words_than_its_candidate_is_refused(import_text):
    beside = {"x.answers.txt": "1b) It's the girl's [hat] , I think.\n2b) Don't [went] there\n"}
    message = r"line 1: the answer to question 1 is b, \[hat\], but its candidate b is \[cats'\]"
    with pytest.raises(CorpusError, match=message):
        import_text("msr-completion", QUESTIONS, "x.questions.txt", beside)


def test_an_unknown_option_is_refused_with_the_nearest_name(import_text):
    with pytest.raises(
        ConfigurationError, match=r'format msr-completion: unknown name "clitic".*did you mean "clitics"'
    ):
        import_text("msr-completion", QUESTIONS, clitic="split")


def test_the_published_questions_and_both_kinds_of_answers_agree(corpora_folder, store, cache):
    folder = corpora_folder("msr_completion")
    path = folder / "Holmes.dev.questions.txt"
    for name, options in (("a", {}), ("b", {"answers": str(folder / "dev.labels")})):
        import_corpus(name, {"valid": TextFile(path, "msr-completion", options)}, store, cache=cache)
    corpus = open_corpus("a", store, cache)
    table = corpus.annotations["completion"]["valid"]
    assert table.num_rows == 520
    assert set(table["candidates"].to_pylist()) == {5}
    assert corpus.digest == open_corpus("b", store, cache).digest


PARSED = (("I", 1, "nsubj"), ("{verb}", -1, "root"), (",", 1, "punct"), ("{noun}", 1, "obj"))
ASKED = "1a) I go , [there]\n1b) I go , [then]\n"


def format_trees(*candidates):
    """CoNLL-U of the candidates, each a (verb, noun)."""
    return "".join(
        "".join(
            f"{place}\t{form.format(verb=verb, noun=noun)}\t_\t_\t_\t_\t{head + 1}\t{relation}\t_\t_\n"
            for place, (form, head, relation) in enumerate(PARSED, start=1)
        )
        + "\n"
        for verb, noun in candidates
    )


def test_candidates_can_have_trees(import_text, tmp_path):
    beside = {"trees.conllu": format_trees(("go", "there"), ("go", "then"))}
    corpus = import_text("msr-completion", ASKED, beside=beside, trees=tmp_path / "trees.conllu")
    assert read_questions(corpus) == [("1", 0, 2, 3, -1)]
    assert [row["heads"] for row in corpus.annotations["trees"]["train"].to_pylist()] == [[1, -1, 1, 1]] * 2


def test_each_file_of_questions_has_its_own_trees_in_a_folder(store, tmp_path):
    (tmp_path / "trees").mkdir()
    sources = {}
    for split, verb in (("valid", "go"), ("test", "went")):
        (tmp_path / f"{split}.txt").write_text(ASKED.replace("go", verb))
        trees = format_trees((verb, "there"), (verb, "then"))
        (tmp_path / "trees" / f"{split}.conllu").write_text(trees)
        sources[split] = TextFile(
            tmp_path / f"{split}.txt", "msr-completion", {"trees": str(tmp_path / "trees")}
        )
    import_corpus("asked", sources, store, cache=tmp_path / "cache")
    corpus = open_corpus("asked", store, tmp_path / "cache")
    assert [len(corpus.annotations["trees"][split]) for split in sources] == [2, 2]


def test_punctuation_marked_by_trees_can_be_dropped(import_text, tmp_path):
    beside = {"trees.conllu": format_trees(("go", "there"), ("go", "then"))}
    trees = {"trees": tmp_path / "trees.conllu", "punctuation": "drop"}
    corpus = import_text("msr-completion", ASKED, beside=beside, **trees)
    assert read_sentences(corpus) == ["I go there", "I go then"]
    assert read_questions(corpus) == [("1", 0, 2, 2, -1)]
    assert corpus.annotations["trees"]["train"].to_pylist()[0]["heads"] == [1, -1, 1]


def test_candidates_that_differ_in_dropped_punctuation_alone_are_refused(import_text, tmp_path):
    candidates = "".join(f"1{letter}) Go [{sign}] there\n" for letter, sign in zip("ab", ",;", strict=True))
    tree = "1\tGo\t_\t_\t_\t_\t0\troot\t_\t_\n2\t{}\t_\t_\t_\t_\t1\tpunct\t_\t_\n"
    tree += "3\tthere\t_\t_\t_\t_\t1\tadvmod\t_\t_\n\n"
    with pytest.raises(CorpusError, match="question 1 has candidates that differ in punctuation alone"):
        import_text(
            "msr-completion",
            candidates,
            beside={"trees.conllu": tree.format(",") + tree.format(";")},
            trees=tmp_path / "trees.conllu",
            punctuation="drop",
        )


@pytest.mark.parametrize("candidates", [[("go", "there"), ("goes", "then")], [("go", "there")]])
def test_trees_of_other_words_are_refused(import_text, tmp_path, candidates):
    beside = {"trees.conllu": format_trees(*candidates)}
    with pytest.raises(CorpusError, match=r'line 1: the tree of "I go , then" is not the next one in'):
        import_text("msr-completion", ASKED, beside=beside, trees=tmp_path / "trees.conllu")


def test_a_bad_tree_is_reported_with_its_own_file_and_line(import_text, tmp_path):
    broken = format_trees(("go", "there"), ("go", "then")).replace("\t2\tobj", "\t9\tobj", 1)
    with pytest.raises(CorpusError, match=r"trees\.conllu: line 4: head 9 in a sentence of 4 words"):
        import_text("msr-completion", ASKED, beside={"trees.conllu": broken}, trees=tmp_path / "trees.conllu")


def test_dropping_punctuation_without_trees_is_refused(import_text):
    with pytest.raises(ConfigurationError, match="needs trees, whose relations mark punctuation"):
        import_text("msr-completion", ASKED, punctuation="drop")


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({}, r"x\.questions\.txt has no answers: .* --option answers=FILE"),
        ({"x.labels.txt": "0\n" * 7}, r"x\.labels\.txt has answers to 7 questions, .*x\.questions\.txt 2$"),
        ({"x.labels.txt": "2\n1\n"}, None),
    ],
)
def test_an_import_warns_of_missing_or_surplus_answers(store, tmp_path, beside, message):
    for name, content in {"x.questions.txt": QUESTIONS, **beside}.items():
        (tmp_path / name).write_text(content)
    source = TextFile(tmp_path / "x.questions.txt", "msr-completion")
    warnings = import_corpus("asked", {"valid": source}, store, cache=tmp_path / "cache").warnings
    found = [warning for warning in warnings if "answers" in warning]
    assert len(found) == (message is not None)
    assert message is None or re.search(message, found[0])
