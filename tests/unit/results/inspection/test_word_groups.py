"""Perplexities on groups of words, found again word by word."""

import math
from dataclasses import replace

import pytest
import torch

from memtune.corpora import Corpus
from memtune.corpora.batching.protocols import StreamProtocol
from memtune.errors import ConfigurationError
from memtune.models import LSTMConfig, NeuralLanguageModel, logits
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.results.inspection.word_groups import (
    CONTEXT_WORDS,
    END,
    KNOWN_PAIR,
    NEW,
    NEW_PAIR,
    WORD,
    WordGroups,
    compare_on_groups,
)
from memtune.results.loaded_models import TrainedModel
from memtune.settings import Settings
from tests.unit.results.inspection.known_models import make_corpus, make_trained_model

SENTENCES = ["a dog sees a dog", "the dog", "dog a dog a"] * 10
BY_WORD = {
    # All pairs are in the training text.
    "a dog sees a dog": [
        NEW,
        NEW,
        NEW,
        WORD,
        KNOWN_PAIR,
    ],
    "the dog": [NEW, NEW],
    "dog a dog a": [NEW, NEW, WORD, KNOWN_PAIR],
}


@pytest.fixture
def corpus(settings: Settings) -> Corpus:
    return make_corpus(settings, SENTENCES)


def build(corpus: Corpus, seed: int) -> NeuralLanguageModel:
    torch.manual_seed(seed)
    network = LSTMConfig(width=6).build(len(corpus.vocabulary)).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(5)  # so that words matter
    return network


def make_models(corpus: Corpus, settings: Settings) -> list[TrainedModel]:
    return [make_trained_model(f"m{seed}", build(corpus, seed), corpus, settings) for seed in (0, 1)]


def list_nats(network: NeuralLanguageModel, corpus: Corpus) -> list[tuple[str, str, float]]:
    """For each predicted word: its group by context, itself, and its nats, each prefix read alone."""
    found = []
    for sentence in SENTENCES:
        words = [*sentence.split(), "<eos>"]
        ids = [corpus.vocabulary.get_id(word) for word in ("<eos>", *words)]
        for place, (word, group) in enumerate(zip(words, [*BY_WORD[sentence], END], strict=True)):
            scores = logits(network, torch.tensor([ids[: place + 1]]))[0][0, -1].log_softmax(0)
            found.append((group, word, -scores[ids[place + 1]].item()))
    return found


def get_figures(found: WordGroups, model: int) -> dict[str, float]:
    pairs = zip(found.groups, found.models[model].figures, strict=True)
    return {group.name: figure.perplexity for group, figure in pairs}


def compute_perplexity(nats: list[float]) -> float:
    return math.exp(sum(nats) / len(nats))


def test_groups_are_those_of_what_was_read_before_and_of_training_counts(
    corpus: Corpus, settings: Settings
) -> None:
    models = make_models(corpus, settings)
    found = compare_on_groups(models)
    shares = {group.name: group.predictions for group in found.groups}
    for place, model in enumerate(models):
        nats, figures = list_nats(model.network, corpus), get_figures(found, place)
        assert figures.pop("all words") == pytest.approx(compute_perplexity([own for *_, own in nats]))
        for name in (KNOWN_PAIR, WORD, NEW, END):
            own = [each for group, _, each in nats if group == name]
            assert (shares[name], figures.pop(name)) == (len(own), pytest.approx(compute_perplexity(own)))
        # "sees" and "the" are in the training text 10 times, "a" and "dog" 40 and 50 times.
        own = [each for _, word, each in nats if word in ("sees", "the", "a", "dog")]
        assert figures == {"10 to 99 in training": pytest.approx(compute_perplexity(own))}
        assert shares["10 to 99 in training"] == len(own)


def test_the_change_from_the_first_model_is_that_of_the_perplexity_with_an_interval_around_it(
    corpus: Corpus, settings: Settings
) -> None:
    found = compare_on_groups(make_models(corpus, settings))
    first, second = (model.figures for model in found.models)
    assert {(each.change, each.change_interval) for each in first} == {(None, None)}
    for before, after in zip(first, second, strict=True):
        assert after.change == pytest.approx(100 * (after.perplexity / before.perplexity - 1))
    (group, figure), *_ = zip(found.groups, second, strict=True)
    assert group.name == "all words"
    low, high = figure.change_interval or (0.0, 0.0)
    assert low < (figure.change or 0.0) < high


def test_a_text_that_is_read_on_has_a_context_across_sentences(corpus: Corpus, settings: Settings) -> None:
    """After the first three sentences every word has been read within the last 500."""
    protocol = StreamProtocol(batch_size=1)
    model = make_trained_model("lstm", build(corpus, 0), corpus, settings, protocol)
    shares = {group.name: group.predictions for group in compare_on_groups([model]).groups}
    total = sum(len(sentence.split()) for sentence in SENTENCES)
    assert total < CONTEXT_WORDS
    assert shares[NEW] == len({word for sentence in SENTENCES for word in sentence.split()})
    assert shares[NEW] + shares[WORD] + shares[KNOWN_PAIR] == total


def test_a_pair_that_training_does_not_have_asks_for_recall(settings: Settings) -> None:
    corpus = make_corpus(settings, ["b b a b b", "a"], training=["a b", "b a"])
    model = make_trained_model("lstm", build(corpus, 0), corpus, settings)
    shares = {group.name: group.predictions for group in compare_on_groups([model]).groups}
    # "b", then "b" after "b", "a", "b" after "a", and "b" after "b" again.
    assert (shares[NEW], shares[WORD], shares[NEW_PAIR], shares[END]) == (3, 2, 1, 2)


def test_a_model_that_counts_compares_with_a_network(corpus: Corpus, settings: Settings) -> None:
    """Before it has counted, all words have the same probability."""
    size = len(corpus.vocabulary)
    counting = make_trained_model("counts", KneserNeyConfig(order=2).build(size), corpus, settings)
    found = compare_on_groups([make_models(corpus, settings)[0], counting])
    assert get_figures(found, 1) == {group.name: pytest.approx(size) for group in found.groups}


def test_models_of_other_texts_are_refused(corpus: Corpus, settings: Settings) -> None:
    first, second = make_models(corpus, settings)
    other = replace(second, corpus=make_corpus(settings, ["a cat sees a cat"], name="other"))
    with pytest.raises(
        ConfigurationError, match="m1 predicts other words than m0; name models of one text and protocol"
    ):
        compare_on_groups([first, other])
    stream = second.config.model_copy(update={"protocol": StreamProtocol()})
    with pytest.raises(ConfigurationError, match="m1 predicts other words than m0"):
        compare_on_groups([first, replace(second, config=stream)])
