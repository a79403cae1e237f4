from typing import Any

import pytest
import torch

from memtune.models import build_model
from memtune.models.families.scrn import SCRNConfig

WORDS = 23


def make_config(**fields) -> SCRNConfig:
    return SCRNConfig(**{"width": 6, "context_width": 4, "alpha": 0.8, "initial_range": 0.8, **fields})


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


def make_model(config: SCRNConfig) -> Any:
    """In double precision, and with unlike alphas where they are learned."""
    model: Any = build_model(config, WORDS, seed=1).double()
    if config.learn_alpha:
        model.filter.logit_C.data += torch.linspace(-2, 2, config.context_width)
    return model


def test_context_is_a_running_mean_of_the_words():
    """alpha = 3/4 keeps three quarters of a constant context at each other word, by hand."""
    model = make_model(make_config(alpha=0.75, context_width=1))
    model.context_embedding.weight.data[:] = 0.0
    model.context_embedding.weight.data[5] = 16.0
    hidden_BTF, state = model.encode(torch.tensor([[5, 2, 5, 3]]), model.initial_state(1))
    assert hidden_BTF[0, :, -1].tolist() == pytest.approx([4.0, 3.0, 6.25, 4.6875], rel=1e-12)
    assert state["context"].item() == pytest.approx(4.6875, rel=1e-12)


def test_previous_context_hides_the_current_word_from_the_hidden_units():
    model = make_model(make_config(hidden_reads="previous"))
    model.hidden_embedding.weight.data[:] = 0.0
    words_BT, other_BT = torch.tensor([[5, 2]]), torch.tensor([[5, 3]])
    first, second = (model.encode(words, model.initial_state(1))[0] for words in (words_BT, other_BT))
    assert torch.equal(first[..., :6], second[..., :6])
    assert not torch.allclose(first[:, -1, 6:], second[:, -1, 6:])


def test_learned_alphas_start_at_the_configured_alpha():
    model: Any = build_model(make_config(learn_alpha=True, alpha=0.9), WORDS, seed=1)
    assert model.filter.logit_C.sigmoid().tolist() == pytest.approx([0.9] * 4)


@pytest.mark.parametrize("logit", [-30.0, 30.0])
def test_gradients_are_finite_for_alphas_near_0_and_1(logit):
    model: Any = build_model(make_config(learn_alpha=True), WORDS, seed=1)
    model.filter.logit_C.data.fill_(logit)
    hidden_BTF, _ = model.encode(draw_text(63), model.initial_state(3))
    hidden_BTF.sum().backward()
    for name, parameter in model.named_parameters():
        assert name.startswith("output") or parameter.grad.isfinite().all(), name


def test_size_of_the_papers_model_on_penn_treebank():
    """Published as 2.8M: two 10,000 x 140 tables, P (100 x 40) and R (100 x 100)."""
    assert SCRNConfig().parameter_count(10_000) == 2 * 1_400_000 + 4_000 + 10_000
    learned = SCRNConfig(learn_alpha=True).parameter_count(10_000)
    assert learned == SCRNConfig().parameter_count(10_000) + 40


def test_the_output_layer_has_no_bias():
    model = build_model(make_config(), WORDS, seed=1)
    assert model.output(torch.zeros(10)).eq(0).all()


def test_cost_per_word_by_hand():
    """m p + m^2 for P and R, and (m + p) V for the output."""
    assert SCRNConfig().multiply_adds(10_000) == 4_000 + 10_000 + 140 * 10_000
