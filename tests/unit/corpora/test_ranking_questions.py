"""Ranking questions made from the sentences of a corpus."""

import pytest

from memtune.corpora import ImportOptions, import_corpus, open_corpus
from memtune.corpora.importing import ranking_questions
from memtune.corpora.importing.ranking_questions import (
    DISTRACTOR_COUNT,
    MIN_TRAINING_COUNT,
    NEIGHBOURS_PER_SIDE,
    generate_ranking_questions,
)
from memtune.errors import CorpusError
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.golden.tiny_trees import make_tree_corpus

FREQUENT = 20


@pytest.fixture(scope="module", autouse=True)
def rank_more_words():
    """The corpora of these tests have few words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking_questions, "EXCLUDED_FREQUENT", FREQUENT)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_tree_corpus(tmp_path_factory.mktemp("ranking"), {"train": 400, "valid": 60})


@pytest.fixture(scope="module")
def questions(corpus):
    return list(generate_ranking_questions(corpus, "valid", 0))


def get_question_row(question):
    (row,) = question.rows["completion"]
    return row


def test_distractors_differ_from_the_sentence_in_one_word(corpus, questions):
    opened = corpus["valid"]
    assert len(questions) > 30
    for question in questions:
        first, count, blank, answer, name = get_question_row(question)
        start, length = opened.starts[int(name)], opened.lengths[int(name)]
        sentence = corpus.vocabulary.decode(opened.read_tokens(start, start + length - 1))
        assert (first, count, len(question.sentences)) == (0, DISTRACTOR_COUNT + 1, DISTRACTOR_COUNT + 1)
        assert question.sentences[answer] == sentence
        assert len({tuple(words) for words in question.sentences}) == count
        assert {(*words[:blank], *words[blank + 1 :]) for words in question.sentences} == {
            (*sentence[:blank], *sentence[blank + 1 :])
        }


def test_candidates_are_about_as_frequent_as_the_word(corpus, questions):
    for question in questions:
        _, _, blank, answer, _ = get_question_row(question)
        ids = [corpus.vocabulary.get_id(words[blank]) for words in question.sentences]
        assert max(abs(id - ids[answer]) for id in ids) <= 2 * NEIGHBOURS_PER_SIDE
        assert min(ids) > FREQUENT
        assert min(corpus.vocabulary.counts[id] for id in ids) >= MIN_TRAINING_COUNT


def test_the_answer_occurs_at_every_position_among_the_candidates(questions):
    assert {get_question_row(question)[3] for question in questions} == set(range(DISTRACTOR_COUNT + 1))


def test_candidates_keep_the_tree_of_their_sentence(corpus, questions, tmp_path):
    rows = corpus.annotations["trees"]["valid"].to_pylist()
    import_corpus("asked", {"valid": questions}, tmp_path, ImportOptions(vocabulary="all"), cache=tmp_path)
    found = open_corpus("asked", tmp_path, tmp_path)
    trees, labels = (
        found.annotations["trees"]["valid"].to_pylist(),
        corpus.manifest.annotations["trees"].labels,
    )
    own = found.manifest.annotations["trees"].labels
    for row in found.annotations["completion"]["valid"].to_pylist():
        expected = rows[int(row["question"])]
        for tree in trees[row["first"] : row["first"] + row["candidates"]]:
            assert tree["heads"] == expected["heads"]
            assert [own[label] for label in tree["relations"]] == [
                labels[label] for label in expected["relations"]
            ]


def test_questions_are_a_function_of_seed_and_split(corpus, questions):
    assert list(generate_ranking_questions(corpus, "valid", 0)) == questions
    assert list(generate_ranking_questions(corpus, "valid", 1)) != questions


def test_a_corpus_without_trees_gives_questions_too(monkeypatch, tmp_path):
    monkeypatch.setattr(ranking_questions, "EXCLUDED_FREQUENT", 0)
    questions = list(generate_ranking_questions(make_tiny_corpus(tmp_path), "valid", 0))
    assert len(questions) > 30
    assert all(set(question.rows) == {"completion"} for question in questions)


def test_a_corpus_with_too_few_words_is_refused(monkeypatch, corpus):
    monkeypatch.setattr(ranking_questions, "EXCLUDED_FREQUENT", 10_000)
    with pytest.raises(CorpusError, match="use a larger corpus"):
        list(generate_ranking_questions(corpus, "valid", 0))
