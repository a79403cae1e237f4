"""The contract of every family that learns by counting. A new family adds its examples to EXAMPLES."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol
from memtune.errors import ConfigurationError
from memtune.models import (
    MODELS,
    CountingConfig,
    LanguageModel,
    build_model,
    list_families,
    negative_log_likelihood,
)
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.tasks import LanguageModelling
from memtune.training import load_model, save_model
from tests.golden.tiny_corpus import make_tiny_corpus

WORDS = 31
EXAMPLES: list[CountingConfig] = [KneserNeyConfig(order=order) for order in (1, 2, 4)]
every_example = pytest.mark.parametrize("config", EXAMPLES, ids=str)


def draw_text(rows: int, steps: int, seed: int = 0) -> torch.Tensor:
    """Words of unequal frequency; every row begins with the boundary."""
    random = torch.rand(rows, steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    words_BT = (random**2 * WORDS).long()
    words_BT[:, 0] = 0
    return words_BT


def fit_model(config: CountingConfig) -> LanguageModel:
    words_BT = draw_text(40, 12, seed=1)[:, 1:]
    return config.fit(words_BT.flatten().numpy(), np.arange(0, words_BT.numel(), 11), WORDS)


def compute_nats(model: LanguageModel, words_BT: torch.Tensor, mask_BT: torch.Tensor | None = None) -> float:
    return negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)[0].item()


def test_every_counting_family_has_an_example():
    assert set(list_families(trained_by_gradient=False)) == {example.family for example in EXAMPLES}


@every_example
@pytest.mark.parametrize("length", [1, 2, 7])
def test_every_next_word_has_a_positive_probability_and_they_sum_to_one(config, length):
    model, context_BT = fit_model(config), draw_text(1, length)
    every_B1 = torch.arange(WORDS).unsqueeze(1)
    mask_BT = torch.arange(length) == length - 1
    probabilities = [
        math.exp(
            -compute_nats(model, torch.cat([context_BT, word_1.unsqueeze(0)], dim=1), mask_BT.unsqueeze(0))
        )
        for word_1 in every_B1
    ]
    assert min(probabilities) > 0
    assert sum(probabilities) == pytest.approx(1.0, rel=1e-12)


@every_example
def test_the_scores_of_the_next_word_are_its_log_probabilities(config):
    model, words_BT = fit_model(config), draw_text(1, 7)
    scores_BV, _ = model.score_next_word(words_BT, model.initial_state(1))
    last_BT = torch.arange(7).unsqueeze(0) == 6
    for word, score in enumerate(scores_BV[0].tolist()):
        longer_BT = torch.cat([words_BT, torch.tensor([[word]])], dim=1)
        assert score == pytest.approx(-compute_nats(model, longer_BT, last_BT), rel=1e-12)


@every_example
def test_fitting_lowers_the_nats_of_the_training_text(config):
    words_BT = draw_text(40, 12, seed=1)
    assert compute_nats(fit_model(config), words_BT) < compute_nats(config.build(WORDS), words_BT)


@every_example
@pytest.mark.parametrize("cuts", [[1], [2], [9], [3, 4], [5, 10, 15, 20]], ids=str)
def test_state_carries_the_past(config, cuts):
    """Reading a text in pieces gives the nats of reading it in one."""
    model, words_BT = fit_model(config), draw_text(3, 26)
    total, state = torch.zeros((), dtype=torch.float64), None
    for first, last in zip([0, *cuts], [*cuts, 25], strict=True):
        inputs_BT, targets_BT = words_BT[:, first:last], words_BT[:, first + 1 : last + 1]
        summed, state = negative_log_likelihood(model, inputs_BT, targets_BT, state=state)
        assert {len(value) for value in state.values()} == {3}
        total += summed
    assert total.item() == pytest.approx(compute_nats(model, words_BT), rel=1e-12)


@every_example
def test_rows_of_unequal_length_have_the_nats_of_single_rows(config):
    model, words_BT, lengths = fit_model(config), draw_text(3, 13), [12, 5, 1]
    mask_BT = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    alone = [compute_nats(model, words_BT[row : row + 1, : length + 1]) for row, length in enumerate(lengths)]
    assert compute_nats(model, words_BT, mask_BT) == pytest.approx(sum(alone), rel=1e-12)
    padded_BT = functional.pad(words_BT, (0, 6), value=5)
    padded_mask_BT = functional.pad(mask_BT, (0, 6), value=False)
    assert compute_nats(model, padded_BT, padded_mask_BT) == pytest.approx(sum(alone), rel=1e-12)


@every_example
def test_checkpoint_reloads_to_the_same_nats(config, tmp_path):
    model, words_BT = fit_model(config), draw_text(3, 12)
    save_model(model, tmp_path)
    assert not list(tmp_path.glob("*.p*"))
    again: Any = load_model(tmp_path)
    assert again.config == config
    assert compute_nats(again, words_BT) == compute_nats(model, words_BT)


@every_example
@pytest.mark.parametrize("protocol", [SentenceProtocol, StreamProtocol])
def test_perplexity_does_not_depend_on_the_batch_size_or_the_batches_of_an_evaluation(
    config, protocol, tmp_path
):
    corpus = make_tiny_corpus(tmp_path)
    train = corpus["train"]
    model = config.fit(train.read_tokens(0, train.token_count), train.starts, len(corpus.vocabulary))
    losses = [
        LanguageModelling(corpus, protocol(batch_size=size)).evaluate(model, "valid").loss for size in (1, 20)
    ]
    assert losses[0] == losses[1]
    task = LanguageModelling(corpus, protocol())
    for batch_tokens in (1, 7, 5000):
        plan, state, total = protocol().evaluation_plan(corpus["valid"], batch_tokens), None, 0.0
        for index in range(len(plan)):
            summed, state = task.loss(model, plan.batch(index), state)
            total += summed.item()
        assert total / plan.token_count == pytest.approx(losses[0], rel=1e-12)


@every_example
def test_building_has_no_parameters_and_draws_no_random_number(config):
    before = torch.get_rng_state()
    assert not list(build_model(config, WORDS, seed=7).parameters())
    assert torch.equal(torch.get_rng_state(), before)
    assert config.parameter_count(WORDS) == config.multiply_adds(WORDS) == 0


@every_example
def test_the_state_by_formula_is_what_the_model_carries(config):
    words_BT = draw_text(1, 20)
    _, state = negative_log_likelihood(fit_model(config), words_BT[:, :-1], words_BT[:, 1:])
    assert sum(tensor.numel() for tensor in state.values()) == config.state_size()


@every_example
def test_a_counting_family_is_not_trained_by_gradient_and_has_no_network(config):
    assert not config.is_trained_by_gradient
    assert config.describe_output() == {}
    with pytest.raises(ConfigurationError, match='this test needs a network, and family = "'):
        config.require_network("this test")


@every_example
def test_a_configuration_names_its_family_and_describes_itself(config):
    assert MODELS[config.family] is type(config)
    assert config.describe()
    for name, field in type(config).model_fields.items():
        assert name == "family" or field.description, name
