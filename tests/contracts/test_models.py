"""The contract of every family of networks in MODELS.

A new family lists its examples in tests/oracles/<family>.py; this file does not change.
"""

from typing import Any

import pytest
import torch
from torch.nn import functional

from memtune.errors import ConfigurationError
from memtune.models import (
    MODELS,
    LanguageModelConfig,
    NeuralLanguageModelConfig,
    build_model,
    logits,
    negative_log_likelihood,
)
from memtune.training.weight_files import load_model, save_model
from memtune.values import parse
from tests.oracles.cases import EXAMPLE_SIZE
from tests.oracles.table import FAMILIES, list_examples

WORDS, WIDTH = 31, EXAMPLE_SIZE["width"]
EXAMPLES = list_examples()
every_example = pytest.mark.parametrize(
    "config", EXAMPLES, ids=[f"{i}-{example.family}" for i, example in enumerate(EXAMPLES)]
)
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ


def make_model(config: NeuralLanguageModelConfig):
    """A model in float64 and in evaluation; parameters that start at zero get random values."""
    model = build_model(config, WORDS, seed=7).double().eval()
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.uniform_(parameter, -0.5, 0.5, generator)
    return model


def draw_text(rows: int, steps: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(WORDS, (rows, steps), generator=torch.Generator().manual_seed(seed))


def compute_loss_and_gradients(model, inputs_BT, targets_BT, mask_BT=None):
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT, mask_BT)
    return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_an_example(family):
    assert any(example.family == family for example in EXAMPLES)


@every_example
def test_later_words_change_no_earlier_logit(config):
    model, words_BT = make_model(config), draw_text(3, 90)
    changed_BT = words_BT.clone()
    changed_BT[:, 70:] = (changed_BT[:, 70:] + 1) % WORDS
    before_BTV, after_BTV = logits(model, words_BT)[0], logits(model, changed_BT)[0]
    torch.testing.assert_close(before_BTV[:, :70], after_BTV[:, :70], **EXACT)
    assert not torch.allclose(before_BTV[:, 70:], after_BTV[:, 70:])


@every_example
@pytest.mark.parametrize("cuts", [[1], [2], [9], [24], [3, 4], [5, 10, 15, 20]], ids=str)
def test_state_carries_the_past(config, cuts):
    """Reading a text in pieces gives the logits of reading it in one."""
    model, words_BT = make_model(config), draw_text(3, 25)
    pieces, state = [], None
    for first, last in zip([0, *cuts], [*cuts, 25], strict=True):
        piece_BTV, state = logits(model, words_BT[:, first:last], state)
        pieces.append(piece_BTV)
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits(model, words_BT)[0], **EXACT)


@every_example
def test_state_holds_a_row_of_every_tensor_for_each_text(config):
    model, words_BT = make_model(config), draw_text(3, 9)
    for state in (model.initial_state(3), logits(model, words_BT)[1]):
        assert state
        assert {len(value) for value in state.values()} == {3}
    swapped = {name: value.flip(0) for name, value in state.items()}
    logits_BTV, swapped_BTV = logits(model, words_BT, state)[0], logits(model, words_BT.flip(0), swapped)[0]
    torch.testing.assert_close(swapped_BTV.flip(0), logits_BTV, **EXACT)


@every_example
def test_padding_on_the_right_changes_neither_loss_nor_gradients(config):
    model, words_BT = make_model(config), draw_text(3, 13)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    padded_BT = functional.pad(inputs_BT, (0, 6), value=5), functional.pad(targets_BT, (0, 6), value=9)
    mask_BT = (torch.arange(18) < 12).expand(3, 18)
    torch.testing.assert_close(
        compute_loss_and_gradients(model, *padded_BT, mask_BT),
        compute_loss_and_gradients(model, inputs_BT, targets_BT),
        **EXACT,
    )


@every_example
def test_rows_of_unequal_length_have_the_loss_and_gradients_of_single_rows(config):
    model, words_BT, lengths = make_model(config), draw_text(3, 13), [12, 5, 1]
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    mask_BT = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    together = compute_loss_and_gradients(model, inputs_BT, targets_BT, mask_BT)
    alone = [
        compute_loss_and_gradients(
            model, inputs_BT[row : row + 1, :length], targets_BT[row : row + 1, :length]
        )
        for row, length in enumerate(lengths)
    ]
    expected = [sum(parts) for parts in zip(*(gradients for _, gradients in alone), strict=True)]
    torch.testing.assert_close(together[0], sum(loss for loss, _ in alone), **EXACT)
    torch.testing.assert_close(list(together[1]), expected, **EXACT)


@every_example
def test_the_other_texts_of_a_batch_change_no_logit(config):
    model, words_BT = make_model(config), draw_text(4, 12)
    alone_BTV = logits(model, words_BT[1:2])[0]
    torch.testing.assert_close(logits(model, words_BT)[0][1:2], alone_BTV, **EXACT)


@every_example
def test_loss_is_the_cross_entropy_of_the_logits(config):
    model, words_BT = make_model(config), draw_text(3, 13)
    mask_BT = draw_text(3, 12, seed=1) % 2 == 0
    loss, state = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    logits_BTV, expected_state = logits(model, words_BT[:, :-1])
    expected = functional.cross_entropy(logits_BTV[mask_BT], words_BT[:, 1:][mask_BT], reduction="sum")
    torch.testing.assert_close(loss, expected, **EXACT)
    torch.testing.assert_close(state, expected_state, **EXACT)


@every_example
def test_masked_words_are_still_context(config):
    model = make_model(config).eval()
    words_BT = draw_text(3, 12)
    mask_BT = torch.zeros(3, 11, dtype=torch.bool)
    mask_BT[:, -2:] = True
    nats, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    log_BTV = logits(model, words_BT[:, :-1])[0].log_softmax(2)
    expected_BT = -log_BTV.gather(2, words_BT[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(nats, expected_BT[mask_BT].sum())


@every_example
def test_candidates_have_the_nats_of_the_logits(config):
    model, words_BT = make_model(config), draw_text(3, 12)
    asked_BT = draw_text(3, 12, seed=1) % 3 == 0
    candidates_QC = draw_text(int(asked_BT.sum()), 2, seed=2)
    nats_QC, state = model.candidate_nats(words_BT, asked_BT, candidates_QC, model.initial_state(3))
    logits_BTV, expected_state = logits(model, words_BT)
    torch.testing.assert_close(
        nats_QC, -logits_BTV.log_softmax(2)[asked_BT].gather(1, candidates_QC), **EXACT
    )
    torch.testing.assert_close(state, expected_state, **EXACT)


@every_example
def test_every_parameter_has_a_gradient(config):
    model, words_BT = make_model(config), draw_text(3, 13)
    _, gradients = compute_loss_and_gradients(model, words_BT[:, :-1], words_BT[:, 1:])
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert gradient.isfinite().all(), name
        assert gradient.ne(0).any(), name


@every_example
def test_checkpoint_reloads_to_the_same_logits(config, tmp_path):
    model, words_BT = build_model(config, WORDS, seed=7).eval(), draw_text(3, 12)
    save_model(model, tmp_path)
    again: Any = load_model(tmp_path).eval()
    assert again.config == config
    assert torch.equal(logits(again, words_BT)[0], logits(model, words_BT)[0])


@every_example
def test_parameter_formula_counts_the_built_model(config):
    """Each parameter once: a shared table is one object."""
    for words in (WORDS, 100):
        built = sum(parameter.numel() for parameter in build_model(config, words, seed=0).parameters())
        assert config.parameter_count(words) == built


@every_example
def test_the_cost_of_the_body_does_not_depend_on_the_vocabulary(config):
    hidden_BTH, _ = make_model(config).encode(draw_text(1, 1), make_model(config).initial_state(1))
    width = hidden_BTH.shape[2]
    body, other = (
        config.multiply_adds(words) - config.output.multiply_adds(width, words) for words in (WORDS, 100)
    )
    assert body == other > 0


@every_example
def test_the_state_formula_counts_what_a_model_carries_once_its_memory_is_full(config):
    # A tape without a limit is as long as the text: 21 words, and the slot before the first one.
    steps = 21 if getattr(config, "tape_size", 1) is None else 90
    model = make_model(config)
    _, state = model.encode(draw_text(1, steps), model.initial_state(1))
    assert config.state_size() == sum(tensor.numel() for tensor in state.values())


@every_example
def test_equal_seeds_give_equal_models_and_others_do_not(config):
    models = [build_model(config, WORDS, seed).state_dict() for seed in (7, 7, 8)]
    torch.testing.assert_close(models[0], models[1], rtol=0, atol=0)
    assert any(not torch.equal(models[0][name], models[2][name]) for name in models[0])


@every_example
def test_building_does_not_change_the_random_generator(config):
    before = torch.get_rng_state()
    build_model(config, WORDS, seed=7)
    assert torch.equal(torch.get_rng_state(), before)


@every_example
def test_dropout_applies_in_training_and_not_in_evaluation(config):
    model, words_BT = make_model(config), draw_text(3, 12)
    assert torch.equal(logits(model, words_BT)[0], logits(model, words_BT)[0])
    model.train()
    again = torch.equal(logits(model, words_BT)[0], logits(model, words_BT)[0])
    assert again == (not has_dropout(config))


def has_dropout(config: NeuralLanguageModelConfig) -> bool:
    """Whether a probability of dropout or zoneout is above 0."""
    options = [name for name in type(config).model_fields if "drop" in name or "zoneout" in name]
    return any(isinstance(getattr(config, name), float) and getattr(config, name) > 0 for name in options)


ATTENDING = [config for config in EXAMPLES if "attention" in config.memory_traces]
TRACES = {"attention": "trace_attention", "stack": "measure_stack_use"}


@pytest.mark.parametrize("config", ATTENDING, ids=str)
def test_computing_attention_changes_no_logit(config):
    model, words_BT = make_model(config), draw_text(3, 12)
    before_BTV = logits(model, words_BT)[0]
    weights_LBTn, offsets = model.trace_attention(words_BT, model.initial_state(3))
    assert torch.equal(logits(model, words_BT)[0], before_BTV)
    assert weights_LBTn.shape[1:] == (3, 12, len(offsets))
    torch.testing.assert_close(weights_LBTn.sum(3), torch.ones_like(weights_LBTn[..., 0]), **EXACT)
    assert torch.equal(weights_LBTn[-1], model.attention(words_BT, model.initial_state(3)))


@pytest.mark.parametrize("config", ATTENDING, ids=str)
def test_offsets_ascend_and_leave_out_the_word_to_predict(config):
    _, offsets = make_model(config).trace_attention(draw_text(1, 4), make_model(config).initial_state(1))
    assert list(offsets) == sorted(set(offsets) - {1})
    assert config.reads_ahead or max(offsets) <= 0


@every_example
def test_a_family_has_the_traces_of_its_configuration_and_no_others(config):
    model = make_model(config)
    for trace, method in TRACES.items():
        reading = draw_text(1, 3), model.initial_state(1)
        if trace in config.memory_traces:
            assert getattr(model, method)(*reading)
        else:
            with pytest.raises(ConfigurationError, match=f"has no {trace}"):
                getattr(model, method)(*reading)


TIES = [(family, tie) for family in MODELS for tie in MODELS[family].model_fields if tie.startswith("tie_")]


@pytest.mark.parametrize(("family", "tie"), TIES)
def test_tied_tables_are_one_table(family, tie):
    widths = {name: WIDTH for name in MODELS[family].model_fields if name == "embedding_width"}
    apart, tied = (MODELS[family](**EXAMPLE_SIZE, **widths, **{tie: value}) for value in (False, True))
    assert apart.parameter_count(WORDS) - tied.parameter_count(WORDS) == WORDS * WIDTH
    tables = [table for table in list_named_tensors(tied) if table.shape == (WORDS, WIDTH)]
    storages = {table.untyped_storage().data_ptr() for table in tables}
    assert len(storages) == len(tables) - 1


NARROW = [
    family
    for family in FAMILIES
    if {"tie_output", "embedding_width"} <= set(MODELS[family].model_fields)
    and MODELS[family].model_fields["embedding_width"].default is None
]


@pytest.mark.parametrize("family", NARROW)
def test_tying_tables_of_two_widths_is_refused(family):
    """A family whose embeddings are as wide as its layers unless `embedding_width` says otherwise."""
    with pytest.raises(ConfigurationError, match="leave embedding_width out"):
        parse(MODELS[family], {"tie_output": True, "width": 8, "embedding_width": 4}, "test")


@every_example
def test_a_network_is_trained_by_gradient(config):
    assert config.is_trained_by_gradient
    assert config.require_network("this test") is config


@every_example
def test_hidden_width_is_the_width_of_the_hidden_vectors(config):
    model = make_model(config)
    hidden_BTH, _ = model.encode(draw_text(1, 1), model.initial_state(1))
    assert config.hidden_width == hidden_BTH.shape[2]


def list_named_tensors(config: LanguageModelConfig) -> list[torch.Tensor]:
    """Every named tensor; a shared tensor appears under each of its names."""
    return list(build_model(config, WORDS, seed=0).state_dict().values())


@every_example
def test_a_configuration_names_its_family_and_describes_itself(config):
    assert MODELS[config.family] is type(config)
    assert config.describe()
    assert all(isinstance(value, str | int | float) for value in config.describe().values())


@every_example
def test_every_field_of_a_configuration_is_documented(config):
    for name, field in type(config).model_fields.items():
        assert name == "family" or field.description, name
