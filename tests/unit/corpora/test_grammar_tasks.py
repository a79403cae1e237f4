"""The embedded grammar's tasks: gold answers and labels that a few words do not determine."""

from collections import Counter, defaultdict
from hashlib import sha256
from itertools import pairwise
from math import inf, isfinite
from types import ModuleType
from typing import Any

import pytest

from memtune.corpora import Example, open_corpus
from memtune.corpora.grammar import completion_questions, inference_pairs, labelled_phrases
from memtune.corpora.grammar.derivation import parse_words
from memtune.corpora.grammar.embedded_corpus import Sentence, draw_items, generate_sentences, log_probability
from memtune.corpora.grammar.labelled_phrases import label_phrases, score_word
from memtune.corpora.grammar.lexicon import WORDS
from memtune.corpora.grammar.task_corpora import GRAMMAR_TASKS, import_grammar_task
from memtune.errors import CorpusError
from tests.presence import require


def draw_examples(module: ModuleType, split: str, count: int) -> list[Example]:
    return list(draw_items(module.SEEDS[split], count, module.make_example))


def draw_pairs(split: str, count: int) -> list[inference_pairs.Pair]:
    return list(draw_items(inference_pairs.SEEDS[split], count, inference_pairs.make_pair))


@pytest.fixture(scope="module")
def text():
    return [sentence.words for sentence in generate_sentences("train", 10_000)]


@pytest.fixture(scope="module")
def asked():
    return draw_examples(completion_questions, "test", 300)


@pytest.fixture(scope="module")
def paired():
    return draw_pairs("test", 600)


# Completion


def test_only_the_answer_gives_a_sentence_of_the_grammar(asked):
    for example in asked:
        ((_, candidates, _, answer, _),) = example.rows["completion"]
        scores = [log_probability(sentence) for sentence in example.sentences]
        assert candidates == len(scores) == 5
        assert [isfinite(score) for score in scores] == [place == answer for place in range(5)]
        assert scores.count(-inf) == 4


def test_candidates_differ_only_in_the_blank_and_at_most_twofold_in_frequency(asked, text):
    counts = Counter(word for words in text for word in words)
    for example in asked:
        ((_, _, blank, answer, _),) = example.rows["completion"]
        assert len({(*words[:blank], *words[blank + 1 :]) for words in example.sentences}) == 1
        words = [sentence[blank] for sentence in example.sentences]
        assert len(set(words)) == 5
        assert all(0.5 <= counts[word] / counts[words[answer]] <= 2 for word in words)


def test_every_kind_of_blank_and_position_of_the_answer_occurs(asked):
    rows = [example.rows["completion"][0] for example in asked]
    kinds = Counter(name.split()[0] for *_, name in rows)
    assert kinds.keys() == {"name", "verb", "particle"}
    assert min(kinds.values()) > 5
    assert min(Counter(answer for *_, answer, _ in rows).values()) > 300 / 5 / 2


def test_the_word_before_the_blank_does_not_give_the_answer(asked, text):
    """Bigram counts of the training text choose little better than chance, which is 20 %."""
    seen = Counter(pair for words in text for pair in pairwise(words))
    right = 0
    for example in asked:
        ((_, _, blank, answer, _),) = example.rows["completion"]
        counts = [seen[words[blank - 1], words[blank]] for words in example.sentences]
        right += max(range(5), key=lambda place: counts[place]) == answer
    assert right / len(asked) < 0.4


# Sentiment


def make_sentence(text):
    words = tuple(text.split())
    return Sentence(words, *require(parse_words(words)).dependencies(), 0.0)


def label_sentence(text):
    """The label of the whole sentence."""
    ((start, stop, label, root), *_) = label_phrases(make_sentence(text))
    assert (start, stop, root) == (0, len(text.split()), True)
    return label


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("the dogs guard the king", 3),
        ("the young dogs guard the king", 4),
        ("the old dogs guard the king", 2),
        ("the old dogs hunt the noisy cats", 0),
        ("the young dogs guard the king never", 0),
        ("the roses cover the truck", 2),
        ("the king thinks that the young dogs hunt the cats daily", 2),
        ("the young king doubts that the lion sleeps daily", 3),
        ("the king doubts that the young lion sleeps daily", 1),
        ("the lion sleeps daily", 2),
    ],
)
def test_scores_add_up_and_negations_reverse_them(text, label):
    if log_probability(text.split()) == -inf:
        pytest.fail(f"{text} is not a sentence of the grammar")
    assert label_sentence(text) == label


def test_a_negation_reverses_the_whole_clause():
    plain = label_sentence("the lion bites the cat because the young rose shades the herb")
    turned = label_sentence("the lion bites the cat although the young rose shades the herb")
    assert (plain, turned) == (3, 0)


def test_phrases_are_spans_and_words_have_their_own_labels():
    found = list(label_phrases(make_sentence("the old dogs that Anna feeds sleep daily")))
    spans = {(start, stop): label for start, stop, label, _ in found}
    assert spans[0, 6] == 2  # the old dogs that Anna feeds
    assert spans[3, 6] == 3  # that Anna feeds
    assert [spans[word, word + 1] for word in range(8)] == [2, 1, 2, 2, 2, 3, 2, 2]
    assert sum(root for *_, root in found) == 1


def test_every_label_of_sentences_is_common():
    roots = Counter(
        example.rows["sentiment"][0][3] for example in draw_examples(labelled_phrases, "train", 1000)
    )
    assert min(roots.values()) > 50
    assert max(roots.values()) < 400


def test_scored_words_are_words_of_the_grammar():
    values = Counter(score_word(word) for word in WORDS)
    assert min(values[-1], values[1]) > 40


# Inference


def test_labels_rotate_and_both_sentences_are_in_the_grammar(paired):
    assert [pair.label for pair in paired[:6]] == ["entailment", "neutral", "contradiction"] * 2
    assert all(
        isfinite(log_probability(words)) for pair in paired for words in (pair.premise, pair.hypothesis)
    )


def test_a_pair_differs_only_in_the_modifier_and_in_never(paired):
    for pair in paired:
        longer, shorter = (
            (pair.premise, pair.hypothesis) if pair.has_longer_premise else (pair.hypothesis, pair.premise)
        )
        remaining = iter(longer)
        without_adverb = [word for word in shorter if word != "never"]
        if pair.negated[0] == pair.negated[1]:
            assert all(word in remaining for word in shorter)  # in this order
        else:
            assert len(set(without_adverb) - set(longer)) <= 1  # an adverb that the other's never replaced
        assert ("never" in pair.premise, "never" in pair.hypothesis) == pair.negated


def find_subject(words):
    heads, relations = require(parse_words(words)).dependencies()
    root = heads.index(-1)
    return next(i for i, edge in enumerate(zip(heads, relations, strict=True)) if edge == (root, "nsubj"))


def test_never_modifies_the_main_verb(paired):
    for pair in paired:
        for words in (pair.premise, pair.hypothesis):
            if "never" in words:
                heads, _ = require(parse_words(words)).dependencies()
                assert heads[words.index("never")] == heads.index(-1)


EDGES = [(subject, thing) for subject in (0, 1) for thing in (2, 3)]
WORLDS = [{edge for bit, edge in enumerate(EDGES) if number >> bit & 1} for number in range(2 ** len(EDGES))]
"""All relations between subjects 0 and 1 and objects 2 and 3."""


def is_true(pair, modified, denied, world):
    """Whether a sentence is true in a world in which subject 0 and object 2 have the modifier's property."""
    if pair.role == "obj":
        things = [2] if modified else [2, 3]
        done = [(0, thing) in world for thing in things]
        is_stated = all(done) if pair.is_universal else any(done)
        return is_stated != denied
    subjects = (
        ([0] if modified else [0, 1]) if pair.is_universal else [0]
    )  # the known subject has the property
    return all(((subject, 2) in world) != denied for subject in subjects)


def test_labels_agree_with_an_enumeration_of_all_models(paired):
    """A hypothesis is entailed if it is true in every world of the premise, contradicted if false in all.

    With a definite subject, a longer hypothesis may have another referent, so the premise never decides it.
    """
    for pair in paired:
        possible = [
            world for world in WORLDS if is_true(pair, pair.has_longer_premise, pair.negated[0], world)
        ]
        outcomes = {is_true(pair, not pair.has_longer_premise, pair.negated[1], world) for world in possible}
        undecided = pair.role == "nsubj" and not pair.is_universal and not pair.has_longer_premise
        expected = {(True,): "entailment", (False,): "contradiction"}.get(tuple(outcomes), "neutral")
        assert pair.label == ("neutral" if undecided else expected)


def test_surface_features_do_not_determine_the_label(paired):
    """The longer sentence and the "never" alone allow a guess that is right for three of four pairs."""
    labels_by_features: dict[Any, Counter[Any]] = defaultdict(Counter)
    for pair in paired:
        labels_by_features[pair.has_longer_premise, pair.negated][pair.label] += 1
    assert sum(max(labels.values()) for labels in labels_by_features.values()) / len(paired) < 0.78
    hypotheses = Counter((pair.negated[1], pair.label) for pair in paired)
    assert max(hypotheses.values()) / len(paired) < 0.2


# All tasks


def test_the_generated_examples_never_change():
    """A change of these values changes every task corpus: state it in the changelog."""
    text = "\n".join(
        f"{example.sentences} {dict(example.rows)}"
        for example in (
            *draw_examples(completion_questions, "valid", 20),
            *draw_examples(labelled_phrases, "train", 20),
        )
    ) + "\n".join(f"{pair.premise} {pair.hypothesis} {pair.label}" for pair in draw_pairs("train", 20))
    assert (
        sha256(text.encode()).hexdigest()
        == "a8dc917ec0fd3ac623ada8612ca1d6052d4dd64a4a5ec2462c6f4652aceacc00"
    )


def test_no_long_sentence_of_a_task_occurs_in_the_text(text):
    drawn = [example.sentences[0] for example in draw_examples(labelled_phrases, "test", 300)]
    long = [words for words in drawn if len(words) > 12]
    assert not set(text) & set(long)


@pytest.mark.parametrize(
    ("task", "split"), [("completion", "test"), ("sentiment", "valid"), ("inference", "valid")]
)
def test_each_task_is_imported_with_its_annotations(monkeypatch, tmp_path, cache, task, split):
    training = {"train": 60, "valid": 20, "test": 20}
    testing = {"valid": 20, "test": 20}
    for module, sizes in (
        ("completion_questions", testing),
        ("labelled_phrases", training),
        ("inference_pairs", training),
    ):
        monkeypatch.setattr(f"memtune.corpora.grammar.{module}.SPLIT_SIZES", sizes)
    import_grammar_task(task, "any", tmp_path / "store")
    corpus = open_corpus("any", tmp_path / "store", cache)
    assert set(corpus.annotations) == ({task, "trees"} if task == "completion" else {task})
    assert corpus.annotations[task][split].num_rows >= 20
    assert set(corpus.vocabulary.tokens) <= {"<eos>", *WORDS}


def test_an_unknown_task_is_refused_with_the_nearest_name(tmp_path):
    assert GRAMMAR_TASKS == ("completion", "sentiment", "inference")
    with pytest.raises(CorpusError, match='no task "sentimet"; did you mean "sentiment"'):
        import_grammar_task("sentimet", "any", tmp_path)
