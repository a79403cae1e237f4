from itertools import product
from typing import Any

import pytest
import torch

from memtune.model_checks.oracles import assert_near
from memtune.models import build_model, logits, negative_log_likelihood
from memtune.models.families.stack_lstm import StackLSTMConfig
from tests.low_precision import autocast_to_bfloat16
from tests.oracles.stack_lstm import compute_stack_lstm_actions, compute_stack_lstm_contributions

WORDS = 23
READINGS = [*product(["multipop"], ["renormalise", "stay"], ["word", "hidden"])]
READINGS += [*product(["continuous"], ["renormalise"], ["word", "hidden"])]
every_reading_and_discrete = pytest.mark.parametrize(
    ("variant", "last_pop", "policy_reads"),
    [*READINGS, *product(["discrete"], ["renormalise"], ["word", "hidden"])],
)
every_reading = pytest.mark.parametrize(("variant", "last_pop", "policy_reads"), READINGS)
STAY, PUSH, POP = range(3)


def make_config(**fields) -> StackLSTMConfig:
    """Wide initial values make the policy uneven, so that reading a wrong cell changes the result."""
    return StackLSTMConfig(**{"width": 5, "stack_size": 4, "policy_width": 3, "initial_range": 0.8, **fields})


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: StackLSTMConfig):
    return build_model(config, WORDS, seed=1).double().eval()


def make_model_with_one_action(action: int, **fields):
    """A model whose policy always takes one action."""
    model = make_model(make_config(**fields))
    with torch.no_grad():
        model.stack.policy.decision.weight.zero_()
        model.stack.policy.decision.bias.copy_(torch.full((3,), -1e3))
        model.stack.policy.decision.bias[action] = 1e3
    return model


def compute_hidden_states(model, words_BT: torch.Tensor) -> torch.Tensor:
    return model.lstm(model.embedding(words_BT), model.initial_state(len(words_BT)))[0]


@every_reading
@pytest.mark.parametrize("length", [1, 9, 70])
def test_actions_and_contribution_agree_with_the_equations(variant, last_pop, policy_reads, length):
    config = make_config(variant=variant, last_pop=last_pop, policy_reads=policy_reads)
    model, words_BT = make_model(config), draw_text(length)[:, 1:]
    use = model.measure_stack_use(words_BT, model.initial_state(2))
    parameters = dict(model.named_parameters())
    for name, oracle in [
        ("actions_BTA", compute_stack_lstm_actions),
        ("contribution_BT", compute_stack_lstm_contributions),
    ]:
        expected = torch.stack([torch.stack(row) for row in oracle(config, parameters, words_BT)])
        assert_near(getattr(use, name), expected, 1e-12, name)


def test_actions_after_a_carried_state_are_those_of_the_whole_text():
    model, words_BT = make_model(make_config()), draw_text(12)
    whole = model.measure_stack_use(words_BT, model.initial_state(2))
    _, state = logits(model, words_BT[:, :5])
    rest = model.measure_stack_use(words_BT[:, 5:], state)
    assert_near(rest.actions_BTA, whole.actions_BTA[:, 5:], 1e-12, "actions")
    assert_near(rest.contribution_BT, whole.contribution_BT[:, 5:], 1e-12, "contribution")


@every_reading_and_discrete
def test_probabilities_of_the_named_actions_sum_to_one(variant, last_pop, policy_reads):
    model = make_model(make_config(variant=variant, last_pop=last_pop, policy_reads=policy_reads))
    use = model.measure_stack_use(draw_text(9), model.initial_state(2))
    assert use.actions_BTA.shape[2] == len(use.actions)
    torch.testing.assert_close(use.actions_BTA.sum(2), torch.ones(2, 10).double())


def test_actions_are_named_by_their_pops():
    multipop: Any = build_model(make_config(stack_size=2), WORDS, seed=1)
    use = multipop.measure_stack_use(draw_text(3), multipop.initial_state(2))
    names = [action.name for action in use.actions]
    assert names == ["stay_0", "push_0", "stay_1", "push_1", "stay_2", "push_2"]
    assert [(action.pops, action.is_push) for action in use.actions[2:4]] == [(1, False), (1, True)]
    continuous: Any = build_model(make_config(variant="continuous"), WORDS, seed=1)
    assert [tuple(action) for action in continuous.stack.actions()] == [
        ("stay", 0, False),
        ("push", 0, True),
        ("pop", 1, False),
    ]


def test_measuring_the_use_of_the_stack_changes_no_logit():
    model, words_BT = make_model(make_config()), draw_text(9)
    before_BTV = logits(model, words_BT)[0]
    model.measure_stack_use(words_BT, model.initial_state(2))
    assert torch.equal(logits(model, words_BT)[0], before_BTV)


@pytest.mark.parametrize("variant", ["multipop", "continuous", "discrete"])
def test_always_pushing_stores_the_last_states_with_the_newest_on_top(variant):
    model, words_BT = make_model_with_one_action(PUSH, variant=variant), draw_text(8)
    hidden_BTH = compute_hidden_states(model, words_BT)
    combined_BTH, state = model.encode(words_BT, model.initial_state(2))
    torch.testing.assert_close(state["stack"], hidden_BTH[:, -4:].flip(1))
    torch.testing.assert_close(combined_BTH, model.combination(hidden_BTH, hidden_BTH))


@pytest.mark.parametrize("variant", ["multipop", "continuous", "discrete"])
def test_always_staying_does_not_change_the_stack(variant):
    model, words_BT = make_model_with_one_action(STAY, variant=variant), draw_text(8)
    cells_BKH = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)).double()
    _, state = model.encode(words_BT, {**model.initial_state(2), "stack": cells_BKH})
    torch.testing.assert_close(state["stack"], cells_BKH)


@pytest.mark.parametrize("variant", ["continuous", "discrete"])
def test_one_pop_a_step_moves_the_cells_up_and_fills_with_zeros(variant):
    model, words_BT = make_model_with_one_action(POP, variant=variant), draw_text(1)
    cells_BKH = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)).double()
    _, state = model.encode(words_BT, {**model.initial_state(2), "stack": cells_BKH})
    torch.testing.assert_close(state["stack"][:, :2], cells_BKH[:, 2:])
    assert state["stack"][:, 2:].eq(0).all()


@pytest.mark.parametrize(("last_pop", "ends"), [("stay", [1.0, 0.0]), ("renormalise", [0.5, 0.5])])
def test_always_popping_empties_the_stack_and_ends_by_the_rule(last_pop, ends):
    model, words_BT = make_model_with_one_action(POP, last_pop=last_pop), draw_text(3)
    cells_BKH = torch.ones(2, 4, 5).double()
    use = model.measure_stack_use(words_BT, {**model.initial_state(2), "stack": cells_BKH})
    torch.testing.assert_close(use.actions_BTA[0, 0], torch.tensor([0.0] * 8 + ends).double())
    _, state = model.encode(words_BT, {**model.initial_state(2), "stack": cells_BKH})
    assert state["stack"][:, 1:].eq(0).all()


def test_mixed_precision_keeps_the_stack_in_the_type_of_its_parameters():
    model: Any = build_model(make_config(width=16, initial_range=0.3), WORDS, seed=1)
    words_BT = draw_text(12)
    exact, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
    with autocast_to_bfloat16():
        use = model.measure_stack_use(words_BT, model.initial_state(2))
        mixed, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
    mixed.backward()
    assert use.actions_BTA.dtype == torch.float32
    assert mixed.item() == pytest.approx(exact.item(), rel=0.01)  # bfloat16 has 8 bits
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_dropout_applies_to_the_embedding_and_the_input_of_the_output_layer():
    model: Any = build_model(StackLSTMConfig(width=64, dropout=0.5), WORDS, seed=1)
    dropped = []
    model.lstm.register_forward_pre_hook(lambda _, arguments: dropped.append(arguments[0]))
    combined_BTH, _ = model.encode(draw_text(30), model.initial_state(2))
    for values in (dropped[0], combined_BTH):
        share = values.eq(0).double().mean().item()
        assert share == pytest.approx(0.5, abs=0.05)  # 3,968 draws: a standard deviation of 0.008


@pytest.mark.parametrize(("vocabulary", "millions"), [(10_000, 11), (33_278, 26)])
@pytest.mark.parametrize("variant", ["multipop", "continuous", "discrete"])
def test_sizes_of_the_papers_models(variant, vocabulary, millions):
    size = StackLSTMConfig(variant=variant).parameter_count(vocabulary)
    assert round(size / 1e6) == millions


def test_310_policy_units_have_the_printed_size_and_320_exceed_it():
    sizes = [StackLSTMConfig(policy_width=units).parameter_count(33_278) for units in (310, 320)]
    assert [round(size / 1e6) for size in sizes] == [26, 27]


def test_size_by_hand():
    """Tied table, LSTM, a policy of three projections and a decision, two combining matrices, the bias."""
    d, P, V = 100, 7, 1_000
    config = StackLSTMConfig(width=d, policy_width=P)
    policy = 3 * d * P + P + 3 * P + 3
    expected = V * d + 8 * d * d + 8 * d + policy + 2 * d * d + V
    assert config.parameter_count(V) == expected
    baseline = d + 1
    discrete = StackLSTMConfig(width=d, policy_width=P, variant="discrete")
    assert discrete.parameter_count(V) == expected + baseline


@pytest.mark.parametrize(
    ("variant", "decisions", "sources"), [("multipop", 11, 11), ("continuous", 1, 3), ("discrete", 1, 0)]
)
def test_cost_per_word_by_hand(variant, decisions, sources):
    """8 d^2 the LSTM, 2 d^2 the combination, three projections and decisions, K d a source, the output."""
    d, K, P, V = 650, 10, 64, 10_000
    config = StackLSTMConfig(variant=variant)
    stack = 3 * P * d + 3 * P * decisions + K * d * sources
    assert config.multiply_adds(V) == 10 * d * d + stack + d * V
