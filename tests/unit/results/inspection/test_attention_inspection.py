"""The figures of attention, on networks whose attention is set by hand and computed again here."""

import json
import math
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError, CorpusError
from memtune.models import LSTMConfig
from memtune.models.families.lstmn import LSTMNConfig
from memtune.models.families.recurrent_memory import RecurrentMemoryConfig
from memtune.results.inspection.attention_weights import (
    average_positions,
    find_distant_examples,
    sample_attention,
)
from memtune.results.inspection.sentence_readings import TextChoice, WordTree, read_attention
from memtune.results.inspection.word_pairs import (
    average_dependencies,
    count_attended_pairs,
    count_cooccurrences,
    find_links,
    find_path,
)
from memtune.results.loaded_models import TrainedModel
from memtune.settings import Settings
from memtune.tasks import SentimentConfig
from tests.unit.results.inspection.known_models import (
    make_attention_model,
    make_corpus,
    make_trained_model,
    predict_words,
)

SENTENCES = [
    "the key that the old dogs saw is here",
    "a dog sees the key",
    "here is the old dog",
    "the dogs see a key that is old",
]
WORD_SCORES = {"key": 2.0, "the": -1.0}
POSITION_SCORES = [0.5, 0.0, -0.5, 1.0]
ALL = TextChoice()


@pytest.fixture
def model(settings: Settings) -> TrainedModel:
    return make_attention_model(make_corpus(settings, SENTENCES), settings, WORD_SCORES, POSITION_SCORES)


def make_classifier(model: TrainedModel) -> TrainedModel:
    """The same network as the body of a classifier."""
    return replace(model, config=model.config.model_copy(update={"task": SentimentConfig()}))


def compute_attention(words: list[str], step: int) -> dict[int, float]:
    """Weight by distance to the predicted word, after reading words[step], from the softmax of equation 2."""
    slots = len(POSITION_SCORES)
    scores = {
        1 + back: WORD_SCORES.get(words[step - back], 0.0) + POSITION_SCORES[slots - 1 - back]
        for back in range(min(slots, step + 1))
    }
    total = sum(math.exp(score) for score in scores.values())
    return {distance: math.exp(score) / total for distance, score in scores.items()}


def list_steps(sentences: list[str]) -> list[tuple[list[str], int]]:
    """The words read of each sentence and each step."""
    read = [["<eos>", *sentence.split()] for sentence in sentences]
    return [(words, step) for words in read for step in range(len(words))]


def test_mean_attention_by_position_is_that_of_the_softmax(model: TrainedModel) -> None:
    expected = defaultdict[int, float](float)
    counts = Counter[int]()
    for words, step in list_steps(SENTENCES):
        for distance, weight in compute_attention(words, step).items():
            expected[distance] += weight
            counts[distance] += 1
    found = average_positions(model, ALL)
    assert [position.distance for position in found.positions] == [4, 3, 2, 1]
    assert found.predictions == len(list_steps(SENTENCES))
    for position in found.positions:
        assert position.predictions == counts[position.distance]
        assert position.mean == pytest.approx(expected[position.distance] / counts[position.distance])
    assert sum(position.share for position in found.positions) == pytest.approx(1)
    assert found.share_without_word == 0


def test_a_part_of_the_split_is_read(model: TrainedModel) -> None:
    assert average_positions(model, TextChoice(sentences=2)).predictions == 10 + 6


def test_samples_hold_the_weights_of_the_words_before_each_predicted_word(model: TrainedModel) -> None:
    samples = sample_attention(model, ALL, count=1000)
    assert len(samples) == sum(len(sentence.split()) for sentence in SENTENCES)
    for sample in samples:
        words = ["<eos>", *SENTENCES[sample.sentence].split()]
        assert sample.predicted == words[sample.step + 1]
        expected = compute_attention(words, sample.step)
        assert {word.distance: word.weight for word in sample.attended} == pytest.approx(expected)
        assert [words[sample.step + 1 - word.distance] for word in sample.attended] == [
            word.word for word in sample.attended
        ]


def test_a_sample_depends_on_its_seed_alone(model: TrainedModel) -> None:
    first = sample_attention(model, ALL, 5, seed=1)
    assert first == sample_attention(model, ALL, 5, seed=1)
    assert first != sample_attention(model, ALL, 5, seed=2)


def test_an_example_has_the_distant_word_and_the_likeliest_next_words(model: TrainedModel) -> None:
    predict_words(model, {"old": 3.0, "dogs": 2.0, "here": 1.0, "a": 0.5, "dog": 0.25})
    (best, *_) = find_distant_examples(model, ALL, count=3, min_distance=4)
    assert (best.most_attended.word, best.most_attended.distance) == ("key", 4)
    assert (best.sentence, best.predicted.word, best.rank) == (0, "dogs", 2)
    expected = torch.zeros(len(model.corpus.vocabulary), dtype=torch.float64)
    for word, logit in {"old": 3.0, "dogs": 2.0, "here": 1.0, "a": 0.5, "dog": 0.25}.items():
        expected[model.corpus.vocabulary.get_id(word)] = logit
    logarithms = expected.log_softmax(0)
    assert [word.word for word in best.next_words] == ["old", "dogs", "here", "a", "dog"]
    for found in best.next_words:
        exact = float(logarithms[model.corpus.vocabulary.get_id(found.word)])
        assert found.log_probability == pytest.approx(exact)


def test_examples_whose_word_is_not_likely_are_left_out(model: TrainedModel) -> None:
    predict_words(model, {"sees": 3.0})
    assert find_distant_examples(model, ALL, min_distance=4, max_rank=1) == []


def test_pairs_are_grouped_by_distance_with_their_training_counts(model: TrainedModel) -> None:
    """Counts and the most attended words are taken from the sentences by loops over words."""
    expected = Counter[tuple[int, str, str]]()
    for words, step in list_steps(SENTENCES):
        weights = compute_attention(words, step)
        distance = max(sorted(weights, reverse=True), key=lambda distance: weights[distance])
        attended, predicted = words[step + 1 - distance], [*words, "<eos>"][step + 1]
        if distance >= 2 and "<eos>" not in (attended, predicted):
            expected[distance, attended, predicted] += 1
    found = count_attended_pairs(model, ALL, min_distance=2)
    assert Counter({(p.distance, p.attended, p.predicted): p.predictions for p in found.pairs}) == expected
    for pair in found.pairs:
        gaps = Counter(
            second - first
            for words in map(str.split, SENTENCES)
            for first, attended in enumerate(words)
            for second, predicted in enumerate(words)
            if (attended, predicted) == (pair.attended, pair.predicted) and 0 < second - first <= found.window
        )
        assert pair.training_count == gaps.total()
        assert pair.training_count_at_distance == gaps[pair.distance]
    for row in found.by_distance:
        counts = [pair.training_count for pair in found.pairs if pair.distance == row.distance]
        assert (row.pairs, row.mean_training_count) == (len(counts), pytest.approx(sum(counts) / len(counts)))


def test_cooccurrences_are_counted_across_chunks_and_sentences(
    model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, ids = model.corpus["train"], model.corpus.vocabulary.get_id
    pairs = {(ids("the"), ids("key")), (ids("key"), ids("a")), (ids("dog"), ids("the"))}
    whole = {
        across: count_cooccurrences(train, pairs, 6, across_sentences=across) for across in (False, True)
    }
    monkeypatch.setattr("memtune.results.inspection.word_pairs.CHUNK_TOKENS", 3)
    for across, counts in whole.items():
        assert count_cooccurrences(train, pairs, 6, across_sentences=across) == counts
    assert whole[False][ids("dog"), ids("the")] == Counter({2: 1})
    # "key <eos> ..." and "dog <eos> the": the sentence ends between the two words.
    assert whole[True][ids("dog"), ids("the")] == Counter({2: 2})


def test_a_stream_attends_across_sentences(settings: Settings) -> None:
    corpus = make_corpus(settings, ["a b", "c d"])
    flat = make_attention_model(corpus, settings, {}, [0.0] * 4, carries_state=True)
    readings = list(read_attention(flat, ALL))
    words = [corpus.vocabulary.tokens[id] for id in readings[1].find_attended_words()[0]]
    assert words == ["<eos>", "a", "b", "<eos>"]
    assert readings[1].weights_LTn[0, 0].tolist() == pytest.approx([0.25] * 4)


TREE: tuple[tuple[int, ...], tuple[str, ...]] = ((1, 2, -1, 4, 2), ("det", "subj", "root", "det", "obj"))
"""the dog sees a cat: the <- dog, dog <- sees, a <- cat, sees -> cat."""


@pytest.mark.parametrize(
    ("start", "end", "path"),
    [
        (2, 4, ("→obj",)),
        (1, 2, ("subj←",)),
        (1, 4, ("subj←", "→obj")),
        (0, 3, ("det←", "subj←", "→obj", "→det")),
        (2, 3, ("→obj", "→det")),
        (2, 2, ()),
    ],
)
def test_a_path_leads_up_from_the_attended_word_and_down_to_the_predicted_one(
    start: int, end: int, path: tuple[str, ...]
) -> None:
    tree = WordTree(*TREE)
    assert find_path(tree, start, end, 4) == path
    assert find_path(tree, start, end, len(path)) == path
    if path:
        assert find_path(tree, start, end, len(path) - 1) is None


def test_attention_by_relation_is_the_mean_over_the_words_so_related(settings: Settings) -> None:
    corpus = make_corpus(settings, ["the dog sees a key", "a dog sees the key"], [TREE, TREE])
    model = make_attention_model(corpus, settings, WORD_SCORES, POSITION_SCORES)
    weights = [
        {
            (step - distance, step): weight
            for step in range(5)
            for distance, weight in compute_attention(["<eos>", *sentence.split()], step).items()
        }
        for sentence in ("the dog sees a key", "a dog sees the key")
    ]
    found = average_dependencies(model, ALL, min_pairs=1)
    means = {path.path: (path.pairs, path.mean) for path in found.paths}
    for name, (attended, predicted) in {"→obj": (2, 4), "subj←": (1, 2)}.items():
        expected = sum(weight[attended, predicted] for weight in weights) / 2
        assert means[name] == (2, pytest.approx(expected))
    (subject,) = (path for path in found.paths if path.path == "subj←")
    assert [bin.pairs for bin in subject.by_distance] == [2, 0, 0, 0, 0, 0, 0, 0]
    assert subject.by_distance[1].mean is None
    of_words = [weight for by_pair in weights for (attended, _), weight in by_pair.items() if attended >= 0]
    assert found.everything.pairs == len(of_words)
    assert found.everything.mean == pytest.approx(sum(of_words) / len(of_words))
    assert "subj← →obj" in {path.path for path in average_dependencies(model, ALL, 2, 1).paths}


def test_a_text_without_trees_names_the_option(model: TrainedModel) -> None:
    with pytest.raises(CorpusError, match=r'corpus "known" has no dependency trees.*--corpus'):
        average_dependencies(model, ALL)


def test_links_join_each_word_to_the_words_it_attends_to(model: TrainedModel) -> None:
    sentence = find_links(model, ALL, 1)
    assert sentence.words == ("<eos>", "a", "dog", "sees", "the", "key")
    found = {(link.word, link.attended): link.weight for link in sentence.links}
    expected = {
        (step, step + 1 - distance): weight
        for step in range(6)
        for distance, weight in compute_attention(list(sentence.words), step).items()
    }
    assert found == pytest.approx(expected)


def test_links_of_a_deep_lstmn_are_those_of_each_layer(model: TrainedModel, settings: Settings) -> None:
    torch.manual_seed(0)
    network = LSTMNConfig(width=4, layers=3, initial_range=0.8).build(len(model.corpus.vocabulary)).double()
    deep = make_trained_model("deep", network.eval(), model.corpus, settings)
    sentence = find_links(deep, TextChoice(text="the dog sees the key"))
    assert sentence.layers == 3
    assert average_positions(deep, ALL).layer == 3
    words_BT = torch.tensor([[0, *model.corpus.vocabulary.encode(["the", "dog", "sees", "the", "key"])]])
    weights_LBTn = network.trace_attention(words_BT, network.initial_state(1)).weights_LBTn
    for layer, weights_BTn in enumerate(weights_LBTn):
        for link in sentence.select(layer + 1):
            # The last slot is the word before the word read.
            slot = weights_BTn.shape[2] - (link.word - link.attended)
            assert link.weight == pytest.approx(float(weights_BTn[0, link.word, slot]))
    assert {link.word - link.attended for link in sentence.links} == {1, 2, 3, 4, 5}


def test_attention_to_the_first_slot_of_zeros_is_attention_without_a_word(
    model: TrainedModel, settings: Settings
) -> None:
    network: Any = LSTMNConfig(width=4).build(len(model.corpus.vocabulary)).double().eval()
    with torch.no_grad():
        network.layers[0].score.zero_()  # every slot has the same weight
    even = make_trained_model("even", network, model.corpus, settings)
    found = average_positions(even, TextChoice(text="the dog sees"))
    assert found.share_without_word == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert {position.distance: position.mean for position in found.positions} == pytest.approx(
        {2: (1 / 2 + 1 / 3 + 1 / 4) / 3, 3: (1 / 3 + 1 / 4) / 2, 4: 1 / 4}
    )


def test_a_bidirectional_memory_has_positions_after_the_predicted_word(settings: Settings) -> None:
    corpus = make_corpus(settings, ["a b c d"])
    config = RecurrentMemoryConfig(width=2, memory_size=2, bidirectional=True)
    network = config.build(len(corpus.vocabulary)).double().eval()
    both = make_trained_model("both", network, corpus, settings)
    found = average_positions(both, ALL)
    assert [position.distance for position in found.positions] == [2, 1, -1, -2]
    assert [position.predictions for position in found.positions] == [4, 5, 3, 2]


def test_a_classifier_reads_words_without_the_boundary(model: TrainedModel) -> None:
    """Its body attends to the words before the last one read, as it does in a language model."""
    classifier = make_classifier(model)
    sentence = find_links(classifier, ALL, 2)
    assert sentence.words == ("here", "is", "the", "old", "dog")
    found = {(link.word, link.attended): link.weight for link in sentence.links}
    assert found[4, 3] == pytest.approx(compute_attention(list(sentence.words), 4)[2])


def test_attention_by_relation_of_a_model_that_reads_no_boundary(settings: Settings) -> None:
    corpus = make_corpus(settings, ["the dog sees a key"], [TREE])
    reader = make_attention_model(corpus, settings, WORD_SCORES, POSITION_SCORES)
    found = average_dependencies(make_classifier(reader), ALL, min_pairs=1)
    (subject,) = (path for path in found.paths if path.path == "subj←")
    # "sees" is predicted after "dog" is read, one word before it.
    assert subject.mean == pytest.approx(compute_attention(["the", "dog"], 1)[1])


def test_a_family_whose_attention_is_not_inspected_is_refused_with_those_that_are(
    model: TrainedModel, settings: Settings
) -> None:
    network = LSTMConfig(width=2).build(len(model.corpus.vocabulary))
    plain = make_trained_model("STUDY#7", network, model.corpus, settings)
    with pytest.raises(ConfigurationError) as refused:
        average_positions(plain, ALL)
    assert str(refused.value) == (
        'STUDY#7: the inspection of its attention does not cover family "lstm"; it covers attention_lstm, '
        "lstmn, memory_network, recurrent_memory"
    )


def test_a_layer_that_does_not_exist_is_refused(model: TrainedModel) -> None:
    with pytest.raises(ConfigurationError, match="layer must be from 1 to 1, got 2"):
        average_positions(model, ALL, layer=2)


def test_another_corpus_is_read_in_the_words_of_the_model(model: TrainedModel, settings: Settings) -> None:
    make_corpus(settings, ["The Key is OLD"], name="other")
    sentence = find_links(model, TextChoice(corpus="other"))
    assert sentence.words == ("<eos>", "the", "key", "is", "old")
    make_corpus(settings, ["the cow"], name="third")
    with pytest.raises(CorpusError, match='"cow" of corpus "third" is not in the vocabulary'):
        find_links(model, TextChoice(corpus="third"))


def test_values_are_plain_json(model: TrainedModel) -> None:
    found = average_positions(model, ALL)
    assert json.loads(found.model_dump_json())["positions"][-1]["distance"] == 1
