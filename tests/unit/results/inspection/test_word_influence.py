"""The influence of words, computed again prefix by prefix where every replacement is the same word."""

import math
import statistics
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from scipy.special import stdtrit

from memtune.corpora import Corpus
from memtune.corpora.batching.protocols import StreamProtocol, TreeProtocol
from memtune.errors import ConfigurationError
from memtune.models import LSTMConfig, NeuralLanguageModel, logits
from memtune.models.classifiers import ClassifierConfig, SentenceClassifier
from memtune.models.families.feed_forward import FeedForwardConfig
from memtune.results.inspection.sentence_readings import TextChoice
from memtune.results.inspection.word_influence import PASSAGE_WORDS, WordInfluence, average_influence
from memtune.settings import Settings
from tests.unit.results.inspection.known_models import make_corpus, make_trained_model

SENTENCES = ["the old dog sees a key", "a key is here the dog", "here the dogs see a dog"] * 8
REPLACEMENT = "x"
ALL = TextChoice()


@pytest.fixture
def corpus(settings: Settings) -> Corpus:
    """Almost every word of its training text is the same."""
    return make_corpus(settings, SENTENCES, training=[" ".join([REPLACEMENT] * 40_000), *SENTENCES[:3]])


def build(config: LSTMConfig | FeedForwardConfig, corpus: Corpus) -> NeuralLanguageModel:
    torch.manual_seed(0)
    network = config.build(len(corpus.vocabulary)).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(5)  # so that words matter
    return network


def compute_influence(network: NeuralLanguageModel, corpus: Corpus) -> list[dict[int, list[float]]]:
    """For each sentence, the divergences by distance, each from two prefixes read alone."""
    get_id, found = corpus.vocabulary.get_id, list[dict[int, list[float]]]()
    for sentence in SENTENCES:
        read = [get_id("<eos>"), *(get_id(word) for word in sentence.split())]
        by_distance = defaultdict[int, list[float]](list)
        for place in range(1, len(read)):
            changed = [*read[:place], get_id(REPLACEMENT), *read[place + 1 :]]
            for step in range(place, len(read)):
                p, q = (
                    logits(network, torch.tensor([text[: step + 1]]))[0][0, -1].softmax(0).tolist()
                    for text in (read, changed)
                )
                divergence = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
                by_distance[step + 1 - place].append(divergence)
        found.append(by_distance)
    return found


def get_means(found: WordInfluence) -> dict[int, float]:
    return {own.distance: own.mean for own in found.distances}


def test_influence_is_the_mean_divergence_of_predictions_by_distance(
    corpus: Corpus, settings: Settings
) -> None:
    network = build(LSTMConfig(width=6), corpus)
    found = average_influence(make_trained_model("lstm", network, corpus, settings), ALL)
    by_sentence = compute_influence(network, corpus)
    assert found.predictions == sum(1 + len(sentence.split()) for sentence in SENTENCES)
    assert [own.distance for own in found.distances] == [1, 2, 3, 4, 5, 6]
    for own in found.distances:
        divergences = [each for sentence in by_sentence for each in sentence[own.distance]]
        means = [statistics.mean(sentence[own.distance]) for sentence in by_sentence]
        assert own.predictions == len(divergences)
        assert own.mean == pytest.approx(statistics.mean(divergences), rel=1e-9)
        # Sentences of equal length weigh equally.
        half = stdtrit(len(means) - 1, 0.975) * statistics.stdev(means) / math.sqrt(len(means))
        assert own.interval == pytest.approx((own.mean - half, own.mean + half), rel=1e-9)


def test_a_network_of_a_window_depends_on_no_word_before_it(corpus: Corpus, settings: Settings) -> None:
    network = build(FeedForwardConfig(width=6, order=3), corpus)
    means = get_means(average_influence(make_trained_model("window", network, corpus, settings), ALL))
    assert min(means[1], means[2]) > 1e-5
    assert max(abs(means[distance]) for distance in (3, 4, 5, 6)) < 1e-12


def test_a_text_that_is_read_on_is_read_in_passages(corpus: Corpus, settings: Settings) -> None:
    protocol = StreamProtocol(batch_size=1)
    network = build(LSTMConfig(width=6), corpus)
    model = make_trained_model("lstm", network, corpus, settings, protocol)
    found = average_influence(model, TextChoice(text="the dog sees " * PASSAGE_WORDS), words=PASSAGE_WORDS)
    assert found.predictions == PASSAGE_WORDS
    assert max(own.distance for own in found.distances) == PASSAGE_WORDS - 1
    assert {own.interval for own in found.distances} == {None}


def test_the_seed_draws_the_replacements(settings: Settings) -> None:
    corpus = make_corpus(settings, SENTENCES)
    model = make_trained_model("lstm", build(LSTMConfig(width=6), corpus), corpus, settings)
    first = average_influence(model, ALL, seed=1)
    assert first == average_influence(model, ALL, seed=1)
    assert first != average_influence(model, ALL, seed=2)


def test_models_without_a_next_word_or_an_order_are_refused(corpus: Corpus, settings: Settings) -> None:
    model = make_trained_model("lstm", build(LSTMConfig(width=6), corpus), corpus, settings)
    trees = replace(model, config=model.config.model_copy(update={"protocol": TreeProtocol()}))
    with pytest.raises(ConfigurationError, match="needs a text in its order"):
        average_influence(trees, ALL)
    classifier = SentenceClassifier(LSTMConfig(width=6), len(corpus.vocabulary), ClassifierConfig(classes=2))
    with pytest.raises(ConfigurationError, match="needs a language model, and this one is a classifier"):
        average_influence(replace(model, model=classifier), ALL)
