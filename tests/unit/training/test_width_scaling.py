"""muP: initial values and learning rates of other widths (Yang et al. 2021)."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from memtune.errors import ConfigurationError
from memtune.models import MODELS, NeuralLanguageModelConfig
from memtune.models.mixers.mixer_registry import PRESETS
from memtune.training import TrialConfig
from memtune.training.gradient_trainer import build_trial_model
from memtune.training.optimisation.update_step import ModelUpdater
from memtune.values import parse

WORDS, ROWS, TIME = 50, 8, 12
BASE_WIDTH, WIDE = 32, 8 * 32
NETWORKS = [family for family, config in MODELS.items() if issubclass(config, NeuralLanguageModelConfig)]


def make_config(
    family: str, width: int, base_width: int | None, rate: float = 0.01, mixer: str | None = None
) -> TrialConfig:
    training = {
        "tokens": 1,
        "base_width": base_width,
        "clip_norm": None,
        "optimiser": {"kind": "adam", "learning_rate": rate},
    }
    untied = {"tie_output": False} if "tie_output" in MODELS[family].model_fields else {}
    mixed = {} if mixer is None else {"mixer": mixer}
    model = {"family": family, "width": width, **untied, **mixed}
    return parse(TrialConfig, {"model": model, "training": training}, "trial")


def draw_batches(count: int) -> Tensor:
    """Tokens (count, B, T + 1) of a text in which each word determines the next one nine times out of ten."""
    generator = torch.Generator().manual_seed(0)
    tokens_NBT = torch.randint(WORDS, (count, ROWS, TIME + 1), generator=generator)
    for position in range(1, TIME + 1):
        next_NB = (tokens_NBT[:, :, position - 1] * 7 + 3) % WORDS
        is_random_NB = torch.rand(count, ROWS, generator=generator) < 0.1
        tokens_NBT[:, :, position] = torch.where(is_random_NB, tokens_NBT[:, :, position], next_NB)
    return tokens_NBT


def compute_logits(model, tokens_BT: Tensor) -> Tensor:
    hidden_BTH, _ = model.encode(tokens_BT[:, :-1], model.initial_state(ROWS))
    return model.output(hidden_BTH)


def train(config: TrialConfig, steps: int) -> tuple[float, float]:
    """(mean change of a logit of the first batch, mean loss of the last fifth of the steps)."""
    model, rate_scales = build_trial_model(config, WORDS)
    model.eval()  # without dropout
    updater = ModelUpdater(config.gradient_training, model, torch.device("cpu"), rate_scales)
    batches_NBT, losses = draw_batches(steps), []
    with torch.no_grad():
        before_BTV = compute_logits(model, batches_NBT[0])
    for tokens_BT in batches_NBT:
        loss = functional.cross_entropy(
            compute_logits(model, tokens_BT).flatten(0, 1), tokens_BT[:, 1:].flatten()
        )
        updater.step([loss], config.gradient_training.optimiser.learning_rate)
        losses.append(loss.item())
    with torch.no_grad():
        change = (compute_logits(model, batches_NBT[0]) - before_BTV).abs().mean().item()
    last = losses[-max(1, steps // 5) :]
    return change, sum(last) / len(last)


@pytest.mark.parametrize(
    ("family", "mixer"),
    [*((family, None) for family in NETWORKS), *(("mixer_blocks", preset) for preset in PRESETS)],
    ids=[*NETWORKS, *PRESETS],
)
def test_steps_change_the_output_equally_at_all_widths(family: str, mixer: str | None) -> None:
    """The coordinate check of Yang et al. (2021), appendix D.1.

    The bound leaves room for the attention's scores, which keep their scale.
    """
    widths = (BASE_WIDTH, WIDE)
    changes = [train(make_config(family, width, BASE_WIDTH, mixer=mixer), 6)[0] for width in widths]
    assert 0.5 < changes[1] / changes[0] < 1.5


def test_without_a_base_width_steps_change_the_output_of_wide_models_more() -> None:
    narrow, wide = (train(make_config("rnn", width, None), 6)[0] for width in (BASE_WIDTH, WIDE))
    assert wide > 4 * narrow


def find_best_rate(width: int, base_width: int | None) -> float:
    """The binary logarithm of the learning rate with the lowest loss among powers of two."""
    exponents = range(-11, -2)
    losses = {each: train(make_config("rnn", width, base_width, 2.0**each), 50)[1] for each in exponents}
    return min(exponents, key=lambda each: losses[each] if math.isfinite(losses[each]) else math.inf)


def test_the_best_learning_rate_of_a_narrow_model_is_that_of_a_wide_one() -> None:
    narrow = find_best_rate(16, None)
    assert abs(find_best_rate(256, 16) - narrow) <= 1
    assert find_best_rate(256, None) <= narrow - 2


def test_the_base_width_changes_nothing_at_that_width() -> None:
    plain, _ = build_trial_model(make_config("lstm", BASE_WIDTH, None), WORDS)
    scaled, rate_scales = build_trial_model(make_config("lstm", BASE_WIDTH, BASE_WIDTH), WORDS)
    assert all(map(torch.equal, plain.parameters(), scaled.parameters()))
    assert set(rate_scales.values()) == {1.0}


def test_matrices_have_the_deviations_and_rates_of_table_3() -> None:
    model, rate_scales = build_trial_model(make_config("rnn", 4 * BASE_WIDTH, BASE_WIDTH), WORDS)
    base, _ = build_trial_model(make_config("rnn", BASE_WIDTH, None), WORDS)
    ratios = {
        name: (parameter / 1).std().item() / base.get_parameter(name).std().item()
        for name, parameter in model.named_parameters()
    }
    expected = dict.fromkeys(ratios, (1.0, 1.0))
    expected |= {
        name: (0.5, 0.25)
        for name, parameter in model.named_parameters()
        if parameter.shape[0] == 4 * BASE_WIDTH and parameter.dim() == 2
    }
    expected["output.weight"] = (0.25, 0.25)
    for name, (deviation, rate) in expected.items():
        assert rate_scales[name] == rate, name
        assert ratios[name] == pytest.approx(deviation, rel=0.35 if deviation == 1 else 1e-4), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"optimiser": {"kind": "sgd"}}}, 'rates of "adam" and "adamw", not of "sgd"'),
        ({"model": {"tie_output": True}}, "not a tied output layer; set tie_output = false"),
        (
            {"model": {"family": "lstmn", "layers": 2, "embedding_width": 32}},
            "wide as the layers at one width alone; change embedding_width",
        ),
        ({"model": {"output": {"kind": "adaptive"}}}, 'not output.kind = "adaptive"; use "softmax"'),
    ],
)
def test_what_cannot_be_scaled_is_refused(changes: dict[str, dict[str, object]], message: str) -> None:
    model = {"family": "lstm", "width": 64} | changes.get("model", {})
    training = {"tokens": 1, "base_width": 32, "optimiser": {"kind": "adam"}} | changes.get("training", {})
    with pytest.raises(ConfigurationError, match=message):
        parse(TrialConfig, {"model": model, "training": training}, "trial")


def test_the_state_of_scaled_rates_continues_bit_for_bit() -> None:
    config, device, batches_NBT = make_config("rnn", 64, BASE_WIDTH), torch.device("cpu"), draw_batches(4)

    def take_steps(updater: ModelUpdater, model, batches_NBT: Tensor) -> None:
        for tokens_BT in batches_NBT:
            logits_NV = compute_logits(model, tokens_BT).flatten(0, 1)
            updater.step([functional.cross_entropy(logits_NV, tokens_BT[:, 1:].flatten())], 0.01)

    model, rate_scales = build_trial_model(config, WORDS)
    updater = ModelUpdater(config.gradient_training, model, device, rate_scales)
    take_steps(updater, model, batches_NBT[:2])
    resumed, _ = build_trial_model(config, WORDS)
    resumed.load_state_dict(model.state_dict())
    resumed_updater = ModelUpdater(config.gradient_training, resumed, device, rate_scales)
    resumed_updater.load_state_dict({name: each.clone() for name, each in updater.state_dict().items()})
    for each, other in ((updater, model), (resumed_updater, resumed)):
        take_steps(each, other, batches_NBT[2:])
    assert all(map(torch.equal, model.parameters(), resumed.parameters()))
