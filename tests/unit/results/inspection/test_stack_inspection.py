"""The figures of stacks, on stacks whose actions are set by hand."""

from typing import Any

import pytest
import torch

from memtune.errors import ConfigurationError, CorpusError
from memtune.models import logits
from memtune.results.inspection.sentence_readings import TextChoice
from memtune.results.inspection.stack_use import count_stack_actions, describe_stack_use
from memtune.results.loaded_models import TrainedModel
from memtune.settings import Settings
from tests.unit.results.inspection.known_models import make_attention_model, make_corpus, make_stack_model

SENTENCES = ["the old key is here", "a key sees the dog"]
PUSHED = ["the", "a"]


@pytest.fixture(params=["multipop", "continuous", "discrete"])
def model(request: pytest.FixtureRequest, settings: Settings) -> TrainedModel:
    """A stack that pushes after an article and stays after every other word."""
    return make_stack_model(make_corpus(settings, SENTENCES), settings, PUSHED, variant=request.param)


def test_the_likeliest_action_at_each_word_is_the_one_that_was_set(model: TrainedModel) -> None:
    first, second = (describe_stack_use(model, TextChoice(), number) for number in (0, 1))
    for use, sentence in ((first, SENTENCES[0]), (second, SENTENCES[1])):
        words = ["<eos>", *sentence.split()]
        assert [step.word for step in use.steps] == words
        assert [step.next_word for step in use.steps] == [*words[1:], "<eos>"]
        assert [step.likeliest.is_push for step in use.steps] == [word in PUSHED for word in words]
        assert all((step.likeliest.pops, step.likeliest.probability) == (0, 1.0) for step in use.steps)


def test_a_stack_that_copies_contributes_the_norm_of_what_it_copied(model: TrainedModel) -> None:
    """After a push the top is the state of that word, until the next push; before the first it is zero."""
    use = describe_stack_use(model, TextChoice(), 1)
    network: Any = model.network
    words = [step.word for step in use.steps]
    words_BT = torch.tensor([[model.corpus.vocabulary.get_id(word) for word in words]])
    hidden_BTH = network.lstm(network.embedding(words_BT), network.initial_state(1))[0]
    top_H = torch.zeros(3, dtype=torch.float64)
    for step, word in enumerate(words):
        top_H = hidden_BTH[0, step] if word in PUSHED else top_H
        expected = (network.combination.memory.weight @ top_H).norm().item()
        assert use.steps[step].contribution == pytest.approx(expected)
    assert use.steps[0].contribution == 0 < use.steps[1].contribution


def test_the_entropy_is_that_of_the_next_word(model: TrainedModel) -> None:
    use = describe_stack_use(model, TextChoice(text="the dog"))
    words_BT = torch.tensor([[model.corpus.vocabulary.get_id(word) for word in ("<eos>", "the", "dog")]])
    expected = torch.distributions.Categorical(logits=logits(model.network, words_BT)[0][0]).entropy()
    assert [step.entropy for step in use.steps] == pytest.approx(expected.tolist())


def test_actions_are_counted_over_the_text(model: TrainedModel) -> None:
    found = count_stack_actions(model, TextChoice())
    counts = {(action.pops, action.is_push): action.words for action in found.actions}
    # Two boundaries and ten words are read, three of them articles.
    assert (found.words, counts[0, True], counts[0, False]) == (12, 3, 9)
    assert sum(counts.values()) == 12
    assert found.mean_peak == 1
    assert [peak.words for peak in found.peaks] == [0] * 19 + [12]
    uses = [describe_stack_use(model, TextChoice(), number) for number in (0, 1)]
    contributions = [step.contribution for use in uses for step in use.steps]
    assert found.mean_contribution == pytest.approx(sum(contributions) / 12)


def test_an_undecided_stack_is_not_peaked(settings: Settings) -> None:
    model = make_stack_model(make_corpus(settings, SENTENCES), settings, [], variant="continuous")
    network: Any = model.network
    with torch.no_grad():
        network.stack.policy.decision.weight.zero_()
    found = count_stack_actions(model, TextChoice())
    assert found.mean_peak == pytest.approx(1 / 3)
    assert [peak.words for peak in found.peaks if peak.low < 1 / 3 < peak.high] == [12]
    assert [action.mean_probability for action in found.actions] == pytest.approx([1 / 3] * 3)


def test_a_sentence_that_does_not_exist_is_refused(model: TrainedModel) -> None:
    with pytest.raises(CorpusError, match="no sentence 2"):
        describe_stack_use(model, TextChoice(), 2)


def test_a_model_without_a_stack_names_the_family_that_has_one(settings: Settings) -> None:
    corpus = make_corpus(settings, SENTENCES)
    attending = make_attention_model(corpus, settings, {}, [0.0])
    with pytest.raises(ConfigurationError, match=r"of its stack does not cover .*; it covers stack_lstm"):
        count_stack_actions(attending, TextChoice())
