"""A step equals torch's clipping and optimiser, for dense gradients and gradients of rows."""

from typing import Any

import pytest
import torch
from torch import nn

from memtune.model_checks.oracles import assert_near
from memtune.models import (
    MODELS,
    LanguageModel,
    NeuralLanguageModelConfig,
    build_model,
    negative_log_likelihood,
)
from memtune.training import TrainingConfig
from memtune.training.optimisation import update_step
from memtune.training.optimisation.optimisers import (
    AdamConfig,
    AdamWConfig,
    MuonConfig,
    RMSpropConfig,
    SGDConfig,
)
from memtune.training.optimisation.update_step import ModelUpdater
from memtune.training.weight_files import copy_weights
from tests.presence import require

WORDS, STEPS, RATE = 60, 3, 0.7
TIED = {"tie_memory_input": True, "tie_memory_output": True}
COMPARED_MODELS = [
    *(
        {"family": family}
        for family, config in MODELS.items()
        if issubclass(config, NeuralLanguageModelConfig)
    ),
    {"family": "lstm", "tie_output": True},
    {"family": "recurrent_memory", **TIED},
    {"family": "recurrent_memory", **TIED, "tie_output": True},
]
# Float32: clipping shortens the step in place of the gradient, and batch norm magnifies rounding errors.
SINGLE = 1e-5


def _make_model(family: str = "lstm", **fields: object) -> LanguageModel:
    config = MODELS[family].model_validate({"width": 8, "initial_range": 0.5, **fields})
    return build_model(config, WORDS, seed=1)


def _iterate_losses(model: LanguageModel):
    """Losses of a few batches, each under the weights of its step."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        inputs_BT, targets_BT = torch.randint(WORDS, (2, 3, 7), generator=generator)
        torch.manual_seed(5)
        yield negative_log_likelihood(model, inputs_BT, targets_BT)[0]


def _train(model: LanguageModel, optimiser: SGDConfig | AdamConfig, clip_norm: float | None) -> list[float]:
    training = TrainingConfig(optimiser=optimiser, clip_norm=clip_norm, epochs=1)
    updates = ModelUpdater(training, model, torch.device("cpu"))
    return [updates.step([loss], RATE).item() for loss in _iterate_losses(model)]


def _train_by_torch(model: LanguageModel, optimiser: SGDConfig | AdamConfig, clip_norm: float) -> list[float]:
    stepper, norms = optimiser.build(model.parameters()), []
    for group in stepper.param_groups:
        group["lr"] = RATE
    for loss in _iterate_losses(model):
        stepper.zero_grad()
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip_norm).item())
        stepper.step()
    return norms


def _assert_same(model: LanguageModel, reference: LanguageModel) -> None:
    for (name, value), expected in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert_near(value, expected, SINGLE, name)


@pytest.mark.parametrize("fields", COMPARED_MODELS, ids=lambda fields: "-".join(map(str, fields.values())))
@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
def test_sgd_with_gradients_of_rows_equals_dense_sgd(fields, clip_norm):
    rows, dense = _make_model(**fields), _make_model(**fields)
    norms = _train(rows, SGDConfig(), clip_norm)
    assert norms == pytest.approx(_train_by_torch(dense, SGDConfig(), clip_norm), rel=1e-5)
    assert min(norms) > 0.5  # so that the first limit clips every step
    _assert_same(rows, dense)


def test_without_a_limit_nothing_is_clipped():
    free, limited = _make_model(), _make_model()
    assert _train(free, SGDConfig(), None) == _train(limited, SGDConfig(), 1e6)
    _assert_same(free, limited)


@pytest.mark.parametrize(
    "optimiser", [SGDConfig(momentum=0.9), SGDConfig(weight_decay=0.01), AdamConfig()], ids=str
)
def test_an_optimiser_that_moves_unread_rows_moves_them(optimiser):
    ours, reference = _make_model(), _make_model()
    _train(ours, optimiser, 0.5)
    _train_by_torch(reference, optimiser, 0.5)
    _assert_same(ours, reference)


@pytest.mark.parametrize(
    ("fields", "sparse"),
    [
        ({"family": "lstm"}, {"embedding.weight"}),
        ({"family": "lstm", "tie_output": True}, set()),
        ({"family": "scrn"}, {"hidden_embedding.weight", "context_embedding.weight"}),
        ({"family": "memory_network"}, {"input_table.weight", "output_table.weight"}),
        (
            {"family": "recurrent_memory"},
            {"embedding.weight", "memory.input_table.weight", "memory.output_table.weight"},
        ),
        ({"family": "recurrent_memory", **TIED}, {"embedding.weight"}),
        (
            {"family": "recurrent_memory", "tie_memory_input": True, "tie_output": True},
            {"memory.output_table.weight"},
        ),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_tables_apart_from_the_output_layer_get_gradients_of_the_rows_read(fields, sparse):
    model = _make_model(**fields)
    _train(model, SGDConfig(), 0.5)
    found = {name for name, parameter in model.named_parameters() if require(parameter.grad).is_sparse}
    assert found == sparse


def test_rows_are_summed_in_the_same_order_each_time():
    first, second = _make_model(family="recurrent_memory"), _make_model(family="recurrent_memory")
    assert _train(first, SGDConfig(), 0.5) == _train(second, SGDConfig(), 0.5)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


BLOCKS: dict[str, Any] = {"family": "mixer_blocks", "layers": 1, "mixer": "min_gru"}


def _update_without_gradient(optimiser: AdamWConfig | MuonConfig) -> dict[str, bool]:
    """Which parameters a step changes when their gradients are zero: those that decay."""
    model = _make_model(**BLOCKS)
    before = {name: value.clone() for name, value in model.named_parameters()}
    updater = ModelUpdater(TrainingConfig(optimiser=optimiser, epochs=1), model, torch.device("cpu"))
    updater.step([(value * 0).sum() for value in model.parameters()], RATE)
    return {name: not torch.equal(value, before[name]) for name, value in model.named_parameters()}


@pytest.mark.parametrize("optimiser", [AdamWConfig(weight_decay=0.1, decayed="matrices"), MuonConfig()])
def test_weight_decay_of_matrices_leaves_norms_and_biases_out(optimiser):
    changed = _update_without_gradient(optimiser)
    assert {name for name, is_changed in changed.items() if not is_changed} == {
        "norm.weight",
        "output.bias",
        "blocks.0.norm.weight",
        "blocks.0.channel_norm.weight",
        "blocks.0.head_weight_X",
        "blocks.0.mixer.maps.gate.bias",
        "blocks.0.mixer.maps.candidate.bias",
    }


def test_muon_steps_hidden_matrices_along_orthogonal_directions():
    """All singular values of a step are of one size, and those of AdamW's parameters are not Muon's."""
    model = _make_model(**BLOCKS)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    training = TrainingConfig(optimiser=MuonConfig(weight_decay=0), clip_norm=None, epochs=1)
    ModelUpdater(training, model, torch.device("cpu")).step([next(_iterate_losses(model))], RATE)
    steps = {name: value.detach() - before[name] for name, value in model.named_parameters()}
    values = torch.linalg.svdvals(steps["blocks.0.project.weight"])
    # Five steps of Newton and Schulz bring singular values between 0.7 and 1.2.
    assert values.min() > 0.4 * values.max()
    # The first step of Adam has the size of the rate wherever there is a gradient.
    assert steps["embedding.weight"].abs().max() == pytest.approx(RATE, rel=1e-3)


def test_muon_steps_matrices_and_those_of_each_head_of_slstm_as_torch_does(monkeypatch):
    """On a processor with instructions for bfloat16, which torch's Muon assumes."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    model = _make_model(**BLOCKS | {"mixer": "slstm"})
    named = dict(model.named_parameters())
    # The matrix of each head, and a tall and a wide one.
    names = ("mixer.vectors.recurrent", "channel_in.weight", "channel_out.weight")
    stacks = [named[f"blocks.0.{name}"] for name in names]
    matrices = [[nn.Parameter(each.detach().clone()) for each in _list_matrices(stack)] for stack in stacks]
    listed = [matrix for own in matrices for matrix in own]
    alone = torch.optim.Muon(listed, RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    training = TrainingConfig(optimiser=MuonConfig(), clip_norm=None, epochs=1)
    updater = ModelUpdater(training, model, torch.device("cpu"))
    for _ in range(2):
        updater.step([next(_iterate_losses(model))], RATE)
        for stack, own in zip(stacks, matrices, strict=True):
            for matrix, gradient in zip(own, _list_matrices(require(stack.grad)), strict=True):
                matrix.grad = gradient.clone()
        alone.step()
    for stack, own in zip(stacks, matrices, strict=True):
        assert torch.equal(stack.view(-1, stack.shape[-1]), torch.cat([*own]))


def _list_matrices(stack: torch.Tensor) -> list[torch.Tensor]:
    return list(stack) if stack.ndim == 3 else [stack]


@pytest.mark.parametrize("shape", [(24, 8), (8, 24)])
def test_muon_orthogonalises_in_float32_where_bfloat16_would_be_emulated(shape, monkeypatch):
    """The polynomial of Newton and Schulz acts on the singular values alone."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, "amx_bf16": False})
    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    matrix = nn.Parameter(torch.zeros(shape))
    optimiser = MuonConfig(weight_decay=0).build([{"params": [matrix], "role": "hidden"}])
    matrix.grad = gradient
    optimiser.step()
    left, values, right = torch.linalg.svd(gradient.double(), full_matrices=False)
    values = values / gradient.double().norm()
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    rate = 1e-3 * 0.2 * 24**0.5
    torch.testing.assert_close(
        matrix.detach().double(), -rate * left @ values.diag() @ right, rtol=0, atol=1e-5 * rate
    )


def test_muon_continues_from_its_state():
    """Two steps, and one step, its state loaded into another updater, and a second step."""
    training = TrainingConfig(optimiser=MuonConfig(), epochs=1)
    whole, parts = _make_model(**BLOCKS), _make_model(**BLOCKS)
    updater = ModelUpdater(training, whole, torch.device("cpu"))
    for _ in range(2):
        updater.step([next(_iterate_losses(whole))], RATE)
    first = ModelUpdater(training, parts, torch.device("cpu"))
    first.step([next(_iterate_losses(parts))], RATE)
    second = ModelUpdater(training, parts, torch.device("cpu"))
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    second.step([next(_iterate_losses(parts))], RATE)
    for name, value in whole.named_parameters():
        assert torch.equal(value, dict(parts.named_parameters())[name]), name


@pytest.mark.parametrize("optimiser", [AdamConfig(), RMSpropConfig(), MuonConfig()], ids=lambda own: own.kind)
def test_a_step_that_the_loss_scaler_skips_is_not_averaged(optimiser, monkeypatch):
    monkeypatch.setattr(update_step, "check_device", lambda config, device: None)  # float16 trains on GPUs
    training = TrainingConfig(optimiser=optimiser, precision="float16", ema_decay=0.9, epochs=1)
    model = _make_model()
    updates, losses = ModelUpdater(training, model, torch.device("cpu")), _iterate_losses(model)
    start = copy_weights(model)
    updates.step([next(losses) * 1e38], RATE)
    assert all(torch.equal(start[name], weights) for name, weights in copy_weights(model).items())
    updates.step([next(losses)], RATE)
    stepped = copy_weights(model)
    assert not torch.equal(stepped["output.weight"], start["output.weight"])
    with updates.use_evaluation_weights():
        assert all(torch.equal(stepped[name], weights) for name, weights in copy_weights(model).items())
