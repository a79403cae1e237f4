"""What holds for every family of networks in MODELS. A new family adds its examples here and nothing else."""

import pytest
import torch
from torch.nn import functional

from memtune.models import (
    MODELS,
    AdaptiveConfig,
    Architecture,
    AttentionLSTMConfig,
    Attentive,
    AWDLSTMConfig,
    ClassFactoredConfig,
    DependencyRNNConfig,
    DepthGatedLSTMConfig,
    FeedForwardConfig,
    GatedFeedbackLSTMConfig,
    LSTMConfig,
    LSTMNConfig,
    MaximumEntropyConfig,
    MemoryNetworkConfig,
    RecurrentMemoryConfig,
    ResidualMemoryConfig,
    RNNConfig,
    SCRNConfig,
    StackLSTMConfig,
    build_model,
    logits,
    negative_log_likelihood,
)
from memtune.training.weights import load_model, save_model

WORDS = 31
WIDE = {"width": 8, "initial_range": 0.5}
EXAMPLES: list[Architecture] = [
    LSTMConfig(**WIDE),
    LSTMConfig(**WIDE, layers=3, tie_output=True, dropout=0.4),
    LSTMConfig(**WIDE, zoneout_cell=0.3, variational_dropout=0.4),
    RecurrentMemoryConfig(**WIDE, memory_size=4),
    RecurrentMemoryConfig(**WIDE, memory_size=2, composition="sum", temporal="none"),
    RecurrentMemoryConfig(
        **WIDE,
        layers_above=2,
        memory_size=5,
        temporal="both",
        temporal_alignment="left",
        composition="gate_biased",
        dropout=0.4,
        dropout_placement="after",
    ),
    RecurrentMemoryConfig(
        **WIDE,
        memory_size=3,
        composition="projected_sum",
        tie_memory_input=True,
        tie_memory_output=True,
        tie_output=True,
    ),
    RNNConfig(**WIDE),
    RNNConfig(**WIDE, layers=2, activation="sigmoid", tie_output=True, dropout=0.4),
    RNNConfig(**WIDE, zoneout=0.3, recurrent_dropout=0.2),
    SCRNConfig(**WIDE, context_width=3),
    SCRNConfig(**WIDE, context_width=3, learn_alpha=True, hidden_reads="previous"),
    AttentionLSTMConfig(**WIDE, memory_size=3, layers=2, recurrent_dropout=0.2),
    AttentionLSTMConfig(**WIDE, memory_size=4, score="bilinear", tie_output=False),
    AttentionLSTMConfig(**WIDE, memory_size=4, score="printed", split="key_value_predict"),
    LSTMNConfig(**WIDE),
    LSTMNConfig(**WIDE, layers=3, embedding_width=6, dropout=0.4),
    LSTMNConfig(**WIDE, layers=2, tape_size=3, handed_up="hidden", previous_attention=False, tie_output=True),
    ResidualMemoryConfig(**WIDE, layers=4, phi=2),
    ResidualMemoryConfig(**WIDE, layers=3, past="shared", residual_interval=2, batch_norm=False),
    FeedForwardConfig(**WIDE, embedding_width=5, order=4),
    FeedForwardConfig(**WIDE, embedding_width=3, order=2, direct=True),
    MemoryNetworkConfig(**WIDE, memory_size=4),
    MemoryNetworkConfig(**WIDE, memory_size=3, hops=3, temporal_encoding=False, rectify_half=True),
    StackLSTMConfig(**WIDE, stack_size=3, policy_width=5, recurrent_dropout=0.2),
    StackLSTMConfig(
        **WIDE, stack_size=4, policy_width=3, policy_reads="hidden", last_pop="stay", dropout=0.4
    ),
    StackLSTMConfig(**WIDE, variant="continuous", stack_size=2, policy_width=3, layers=2, tie_output=False),
    StackLSTMConfig(**WIDE, variant="discrete", stack_size=3, policy_width=7, dropout=0.4),
    DepthGatedLSTMConfig(**WIDE, dropout=0.4),
    DepthGatedLSTMConfig(**WIDE, layers=2, gate_weights="full", link_input=True, tie_output=True),
    GatedFeedbackLSTMConfig(**WIDE, dropout=0.4),
    GatedFeedbackLSTMConfig(**WIDE, layers=2, tie_output=True),
    AWDLSTMConfig(**WIDE, embedding_width=5),
    AWDLSTMConfig(**WIDE, embedding_width=6, layers=1, tie_output=False),
    DependencyRNNConfig(**WIDE),
    DependencyRNNConfig(
        **WIDE,
        initial_state="ones",
        output=ClassFactoredConfig(classes=4, mass="square_root"),
        maximum_entropy=MaximumEntropyConfig(order=4, size=500),
    ),
    LSTMConfig(**WIDE, tie_output=True, output=ClassFactoredConfig()),
    MemoryNetworkConfig(**WIDE, memory_size=3, output=ClassFactoredConfig(classes=4, mass="square_root")),
    StackLSTMConfig(
        **WIDE,
        variant="discrete",
        stack_size=2,
        policy_width=3,
        dropout=0.4,
        output=ClassFactoredConfig(),
    ),
    SCRNConfig(**WIDE, context_width=3, output=AdaptiveConfig()),
    ResidualMemoryConfig(**WIDE, layers=2, output=AdaptiveConfig(cutoffs=(3, 9, 20), factor=2)),
    LSTMConfig(**WIDE, maximum_entropy=MaximumEntropyConfig(order=4, size=500)),
    RNNConfig(
        **WIDE, maximum_entropy=MaximumEntropyConfig(order=3, size=500), output=ClassFactoredConfig(classes=4)
    ),
]
every_example = pytest.mark.parametrize(
    "config", EXAMPLES, ids=[f"{i}-{example.family}" for i, example in enumerate(EXAMPLES)]
)
EXACT = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ


def model_of(config: Architecture):
    """Parameters that start at zero, as hashed weights do, are given values too, so that they count."""
    model = build_model(config, WORDS, seed=7).double().eval()
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.uniform_(parameter, -0.5, 0.5, generator)
    return model


def text(rows: int, steps: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(WORDS, (rows, steps), generator=torch.Generator().manual_seed(seed))


def loss_and_gradients(model, inputs_BT, targets_BT, mask_BT=None):
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT, mask_BT)
    return loss.detach(), torch.autograd.grad(loss, list(model.parameters()))


NETWORKS = [family for family, config in MODELS.items() if issubclass(config, Architecture)]


@pytest.mark.parametrize("family", NETWORKS)
def test_every_family_has_an_example(family):
    assert any(example.family == family for example in EXAMPLES)


@every_example
def test_later_words_change_no_earlier_logit(config):
    model, words_BT = model_of(config), text(3, 90)
    changed_BT = words_BT.clone()
    changed_BT[:, 70:] = (changed_BT[:, 70:] + 1) % WORDS
    before_BTV, after_BTV = logits(model, words_BT)[0], logits(model, changed_BT)[0]
    torch.testing.assert_close(before_BTV[:, :70], after_BTV[:, :70], **EXACT)
    assert not torch.allclose(before_BTV[:, 70:], after_BTV[:, 70:])


@every_example
@pytest.mark.parametrize("cuts", [[1], [2], [9], [24], [3, 4], [5, 10, 15, 20]], ids=str)
def test_state_carries_the_past(config, cuts):
    """Reading a text in pieces gives the logits of reading it in one."""
    model, words_BT = model_of(config), text(3, 25)
    pieces, state = [], None
    for first, last in zip([0, *cuts], [*cuts, 25], strict=True):
        piece_BTV, state = logits(model, words_BT[:, first:last], state)
        pieces.append(piece_BTV)
    torch.testing.assert_close(torch.cat(pieces, dim=1), logits(model, words_BT)[0], **EXACT)


@every_example
def test_state_holds_a_row_of_every_tensor_for_each_text(config):
    model, words_BT = model_of(config), text(3, 9)
    for state in (model.initial_state(3), logits(model, words_BT)[1]):
        assert state
        assert {len(value) for value in state.values()} == {3}
    swapped = {name: value.flip(0) for name, value in state.items()}
    there_BTV, back_BTV = logits(model, words_BT, state)[0], logits(model, words_BT.flip(0), swapped)[0]
    torch.testing.assert_close(back_BTV.flip(0), there_BTV, **EXACT)


@every_example
def test_padding_on_the_right_changes_neither_loss_nor_gradients(config):
    model, words_BT = model_of(config), text(3, 13)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    padded_BT = functional.pad(inputs_BT, (0, 6), value=5), functional.pad(targets_BT, (0, 6), value=9)
    mask_BT = (torch.arange(18) < 12).expand(3, 18)
    torch.testing.assert_close(
        loss_and_gradients(model, *padded_BT, mask_BT),
        loss_and_gradients(model, inputs_BT, targets_BT),
        **EXACT,
    )


@every_example
def test_rows_of_unequal_length_count_as_if_each_were_alone(config):
    model, words_BT, lengths = model_of(config), text(3, 13), [12, 5, 1]
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    mask_BT = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    together = loss_and_gradients(model, inputs_BT, targets_BT, mask_BT)
    alone = [
        loss_and_gradients(model, inputs_BT[row : row + 1, :length], targets_BT[row : row + 1, :length])
        for row, length in enumerate(lengths)
    ]
    expected = [sum(parts) for parts in zip(*(gradients for _, gradients in alone), strict=True)]
    torch.testing.assert_close(together[0], sum(loss for loss, _ in alone), **EXACT)
    torch.testing.assert_close(list(together[1]), expected, **EXACT)


@every_example
def test_batch_mates_change_no_logit(config):
    model, words_BT = model_of(config), text(4, 12)
    alone_BTV = logits(model, words_BT[1:2])[0]
    torch.testing.assert_close(logits(model, words_BT)[0][1:2], alone_BTV, **EXACT)


@every_example
def test_loss_is_the_cross_entropy_of_the_logits(config):
    model, words_BT = model_of(config), text(3, 13)
    mask_BT = text(3, 12, seed=1) % 2 == 0
    loss, state = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    logits_BTV, expected_state = logits(model, words_BT[:, :-1])
    expected = functional.cross_entropy(logits_BTV[mask_BT], words_BT[:, 1:][mask_BT], reduction="sum")
    torch.testing.assert_close(loss, expected, **EXACT)
    torch.testing.assert_close(state, expected_state, **EXACT)


@every_example
def test_words_that_do_not_count_are_context_all_the_same(config):
    model = model_of(config).eval()
    words_BT = text(3, 12)
    mask_BT = torch.zeros(3, 11, dtype=torch.bool)
    mask_BT[:, -2:] = True
    nats, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    log_BTV = logits(model, words_BT[:, :-1])[0].log_softmax(2)
    expected_BT = -log_BTV.gather(2, words_BT[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(nats, expected_BT[mask_BT].sum())


@every_example
def test_candidates_have_the_nats_of_the_logits(config):
    model, words_BT = model_of(config), text(3, 12)
    asked_BT = text(3, 12, seed=1) % 3 == 0
    candidates_QC = text(int(asked_BT.sum()), 2, seed=2)
    nats_QC, state = model.candidate_nats(words_BT, asked_BT, candidates_QC, model.initial_state(3))
    logits_BTV, expected_state = logits(model, words_BT)
    torch.testing.assert_close(
        nats_QC, -logits_BTV.log_softmax(2)[asked_BT].gather(1, candidates_QC), **EXACT
    )
    torch.testing.assert_close(state, expected_state, **EXACT)


@every_example
def test_every_parameter_learns(config):
    model, words_BT = model_of(config), text(3, 13)
    _, gradients = loss_and_gradients(model, words_BT[:, :-1], words_BT[:, 1:])
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert gradient.isfinite().all(), name
        assert gradient.ne(0).any(), name


@every_example
def test_checkpoint_reloads_to_the_same_logits(config, tmp_path):
    model, words_BT = build_model(config, WORDS, seed=7).eval(), text(3, 12)
    save_model(model, tmp_path)
    again = load_model(tmp_path).eval()
    assert again.config == config
    assert torch.equal(logits(again, words_BT)[0], logits(model, words_BT)[0])


@every_example
def test_parameter_formula_counts_the_built_model(config):
    """Each parameter once: a shared table is one object."""
    for words in (WORDS, 100):
        built = sum(parameter.numel() for parameter in build_model(config, words, seed=0).parameters())
        assert config.parameter_count(words) == built


@every_example
def test_what_the_body_costs_does_not_depend_on_the_vocabulary(config):
    hidden_BTH, _ = model_of(config).encode(text(1, 1), model_of(config).initial_state(1))
    width = hidden_BTH.shape[2]
    body, other = (
        config.multiply_adds(words) - config.output.multiply_adds(width, words) for words in (WORDS, 100)
    )
    assert body == other > 0


@every_example
def test_equal_seeds_give_equal_models_and_others_do_not(config):
    models = [build_model(config, WORDS, seed).state_dict() for seed in (7, 7, 8)]
    torch.testing.assert_close(models[0], models[1], rtol=0, atol=0)
    assert any(not torch.equal(models[0][name], models[2][name]) for name in models[0])


@every_example
def test_building_leaves_the_random_generator_alone(config):
    before = torch.get_rng_state()
    build_model(config, WORDS, seed=7)
    assert torch.equal(torch.get_rng_state(), before)


@every_example
def test_evaluation_draws_nothing_and_training_drops_out_where_asked(config):
    model, words_BT = model_of(config), text(3, 12)
    assert torch.equal(logits(model, words_BT)[0], logits(model, words_BT)[0])
    model.train()
    again = torch.equal(logits(model, words_BT)[0], logits(model, words_BT)[0])
    assert again == (not drops(config))


def drops(config: Architecture) -> bool:
    """Whether a probability of dropping something, or of keeping it as it was, is not 0."""
    options = [name for name in type(config).model_fields if "drop" in name or "zoneout" in name]
    return any(isinstance(getattr(config, name), float) and getattr(config, name) > 0 for name in options)


@pytest.mark.parametrize(
    "config", [config for config in EXAMPLES if isinstance(config.build(WORDS), Attentive)], ids=str
)
def test_asking_for_attention_changes_no_logit(config):
    model, words_BT = model_of(config), text(3, 12)
    before_BTV = logits(model, words_BT)[0]
    weights_BTn = model.attention(words_BT, model.initial_state(3))
    assert torch.equal(logits(model, words_BT)[0], before_BTV)
    assert weights_BTn.shape[:2] == (3, 12)
    torch.testing.assert_close(weights_BTn.sum(2), torch.ones(3, 12, dtype=torch.float64), **EXACT)


TIES = [(family, tie) for family in MODELS for tie in MODELS[family].model_fields if tie.startswith("tie_")]


@pytest.mark.parametrize(("family", "tie"), TIES)
def test_tied_tables_are_one_table(family, tie):
    widths = {name: WIDE["width"] for name in MODELS[family].model_fields if name == "embedding_width"}
    apart, tied = (MODELS[family](**WIDE, **widths, **{tie: value}) for value in (False, True))
    assert apart.parameter_count(WORDS) - tied.parameter_count(WORDS) == WORDS * WIDE["width"]
    tables = [table for table in state_tables(tied) if table.shape == (WORDS, WIDE["width"])]
    storages = {table.untyped_storage().data_ptr() for table in tables}
    assert len(storages) == len(tables) - 1


def state_tables(config: Architecture) -> list[torch.Tensor]:
    """Every named tensor, a shared one under each of its names."""
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
