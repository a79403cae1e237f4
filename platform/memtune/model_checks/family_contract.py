"""What holds for every network: one function per sentence, over one configuration.

Each function raises AssertionError, or the model's own exception, where the sentence does not hold.

Shapes: B batch, T time, H hidden width, V vocabulary, Q positions of questions, C candidates.
"""

import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from memtune.errors import ConfigurationError
from memtune.models import (
    NeuralLanguageModel,
    NeuralLanguageModelConfig,
    build_model,
    logits,
    negative_log_likelihood,
)
from memtune.number_format import format_count
from memtune.training.weight_files import load_model, save_model

WORDS = 31
"""Size of the vocabulary."""
LONG_TEXT = 90
"""Words after which every bounded memory of the examples is full."""
MEAN_SENTENCE = 21
"""Words after which a state that grows with the text has its size by formula."""
CUTS = ((1,), (2,), (9,), (24,), (3, 4), (5, 10, 15, 20))
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ
FINITE_STEP = 1e-6
"""Relative errors of a central difference in float64: 1e-12 from the step, 1e-10 from rounding."""
FINITE_TOLERANCE = 1e-5
FLOAT32_TOLERANCE = 1e-4
"""A thousand times the rounding error of float32, which accumulates along a text; a wrong type gives 1e-3."""
TRACES = {"attention": "trace_attention", "stack": "measure_stack_use"}


def make_model(config: NeuralLanguageModelConfig) -> NeuralLanguageModel:
    """A model in float64 and in evaluation; parameters that start at zero get random values."""
    model = build_model(config, WORDS, seed=7).double().eval()
    generator = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.uniform_(parameter, -0.5, 0.5, generator)
    return model


def draw_text(rows: int, steps: int, seed: int = 0) -> Tensor:
    """words_BT."""
    return torch.randint(WORDS, (rows, steps), generator=torch.Generator().manual_seed(seed))


def _compute_loss_and_gradients(
    model: NeuralLanguageModel, inputs_BT: Tensor, targets_BT: Tensor, mask_BT: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    loss, _ = negative_log_likelihood(model, inputs_BT, targets_BT, mask_BT)
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for name, gradient in zip(names, gradients, strict=True):
        assert gradient is not None, f"the loss does not depend on {name}"
    return loss.detach(), gradients


def check_reading(config: NeuralLanguageModelConfig) -> None:
    """`encode` gives hidden vectors (texts, words, `hidden_width`) and the state, tensors by name."""
    model = make_model(config)
    found = model.encode(draw_text(2, 3), model.initial_state(2))
    assert isinstance(found, tuple), f"encode gives a {type(found).__name__}, not (hidden vectors, state)"
    assert len(found) == 2, f"encode gives {len(found)} values, not (hidden vectors, state)"
    shape, expected = tuple(found[0].shape), (2, 3, config.hidden_width)
    assert shape == expected, f"the hidden vectors of 2 texts of 3 words have shape {shape}, not {expected}"
    for state in (model.initial_state(2), found[1]):
        is_named = isinstance(state, dict) and all(isinstance(each, Tensor) for each in state.values())
        assert is_named, f"a state is {type(state).__name__}, not a dict of tensors by name"


def check_gradients(config: NeuralLanguageModelConfig) -> None:
    """Every parameter has a finite gradient that is not zero."""
    model, words_BT = make_model(config), draw_text(3, 13)
    _, gradients = _compute_loss_and_gradients(model, words_BT[:, :-1], words_BT[:, 1:])
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert gradient.isfinite().all(), f"the gradient of {name} is not finite"
        assert gradient.ne(0).any(), f"the gradient of {name} is zero"


def check_finite_differences(config: NeuralLanguageModelConfig) -> None:
    """The gradient along a random direction is the difference quotient of the loss."""
    if not config.has_exact_gradients:
        return
    model, words_BT = make_model(config), draw_text(2, 9)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    _, gradients = _compute_loss_and_gradients(model, inputs_BT, targets_BT)
    generator = torch.Generator().manual_seed(3)
    parameters = list(model.parameters())
    directions = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]

    def compute_loss_at(step: float) -> float:
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(direction, alpha=step)
            loss = negative_log_likelihood(model, inputs_BT, targets_BT)[0].item()
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.sub_(direction, alpha=step)
        return loss

    quotient = (compute_loss_at(FINITE_STEP) - compute_loss_at(-FINITE_STEP)) / (2 * FINITE_STEP)
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    assert abs(quotient - slope) <= FINITE_TOLERANCE * max(abs(slope), 1.0), (
        f"the gradient gives {slope:.8g}, the difference quotient {quotient:.8g}"
    )


def check_causality(config: NeuralLanguageModelConfig) -> None:
    """Changing later words changes no earlier logit, and the logits after them."""
    model, words_BT = make_model(config), draw_text(3, LONG_TEXT)
    changed_BT = words_BT.clone()
    changed_BT[:, 70:] = (changed_BT[:, 70:] + 1) % WORDS
    before_BTV, after_BTV = logits(model, words_BT)[0], logits(model, changed_BT)[0]
    torch.testing.assert_close(before_BTV[:, :70], after_BTV[:, :70], **EXACT)
    assert not torch.allclose(before_BTV[:, 70:], after_BTV[:, 70:]), "the logits do not depend on the words"


def check_carried_state(config: NeuralLanguageModelConfig) -> None:
    """Reading a text in pieces gives the logits of reading it in one."""
    model, words_BT = make_model(config), draw_text(3, 25)
    whole_BTV = logits(model, words_BT)[0]
    for cuts in CUTS:
        pieces, state = [], None
        for first, last in pairwise([0, *cuts, words_BT.shape[1]]):
            piece_BTV, state = logits(model, words_BT[:, first:last], state)
            pieces.append(piece_BTV)
        torch.testing.assert_close(torch.cat(pieces, dim=1), whole_BTV, **EXACT)


def check_rows_of_the_state(config: NeuralLanguageModelConfig) -> None:
    """The state has a row of every tensor for each text: swapped rows belong to swapped texts."""
    model, words_BT = make_model(config), draw_text(3, 9)
    state = logits(model, words_BT)[1]
    for each in (model.initial_state(3), state):
        assert each, "the state is empty; a network without a state carries its last words"
        assert {len(value) for value in each.values()} == {3}, "a tensor of the state has no row per text"
    swapped = {name: value.flip(0) for name, value in state.items()}
    logits_BTV, swapped_BTV = logits(model, words_BT, state)[0], logits(model, words_BT.flip(0), swapped)[0]
    torch.testing.assert_close(swapped_BTV.flip(0), logits_BTV, **EXACT)


def check_padding(config: NeuralLanguageModelConfig) -> None:
    """Padding on the right changes neither the loss nor a gradient."""
    model, words_BT = make_model(config), draw_text(3, 13)
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    padded_BT = functional.pad(inputs_BT, (0, 6), value=5), functional.pad(targets_BT, (0, 6), value=9)
    mask_BT = (torch.arange(18) < 12).expand(3, 18)
    torch.testing.assert_close(
        _compute_loss_and_gradients(model, *padded_BT, mask_BT),
        _compute_loss_and_gradients(model, inputs_BT, targets_BT),
        **EXACT,
    )


def check_unequal_rows(config: NeuralLanguageModelConfig) -> None:
    """Rows of unequal length have the loss and the gradients of single rows."""
    model, words_BT, lengths = make_model(config), draw_text(3, 13), [12, 5, 1]
    inputs_BT, targets_BT = words_BT[:, :-1], words_BT[:, 1:]
    mask_BT = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    together = _compute_loss_and_gradients(model, inputs_BT, targets_BT, mask_BT)
    alone = [
        _compute_loss_and_gradients(
            model, inputs_BT[row : row + 1, :length], targets_BT[row : row + 1, :length]
        )
        for row, length in enumerate(lengths)
    ]
    expected = [torch.stack(parts).sum(0) for parts in zip(*(grads for _, grads in alone), strict=True)]
    torch.testing.assert_close(together[0], torch.stack([loss for loss, _ in alone]).sum(), **EXACT)
    torch.testing.assert_close(list(together[1]), expected, **EXACT)


def check_batch_independence(config: NeuralLanguageModelConfig) -> None:
    """The other texts of a batch change no logit."""
    model, words_BT = make_model(config), draw_text(4, 12)
    alone_BTV = logits(model, words_BT[1:2])[0]
    torch.testing.assert_close(logits(model, words_BT)[0][1:2], alone_BTV, **EXACT)


def check_loss(config: NeuralLanguageModelConfig) -> None:
    """The loss is the cross-entropy of the logits of the predicted words."""
    model, words_BT = make_model(config), draw_text(3, 13)
    mask_BT = draw_text(3, 12, seed=1) % 2 == 0
    loss, state = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    logits_BTV, expected_state = logits(model, words_BT[:, :-1])
    expected = functional.cross_entropy(logits_BTV[mask_BT], words_BT[:, 1:][mask_BT], reduction="sum")
    torch.testing.assert_close(loss, expected, **EXACT)
    torch.testing.assert_close(state, expected_state, **EXACT)


def check_device(config: NeuralLanguageModelConfig) -> None:
    """Every tensor that a pass makes is made on the device of its inputs."""
    model, words_BT = make_model(config), draw_text(3, 13)
    with torch.device("meta"):  # where a tensor whose device is not named is made, and joins no other
        loss, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:])
        torch.autograd.grad(loss, list(model.parameters()))


def check_masked_context(config: NeuralLanguageModelConfig) -> None:
    """Words that are not predicted are still context."""
    model, words_BT = make_model(config), draw_text(3, 12)
    mask_BT = torch.zeros(3, 11, dtype=torch.bool)
    mask_BT[:, -2:] = True
    nats, _ = negative_log_likelihood(model, words_BT[:, :-1], words_BT[:, 1:], mask_BT)
    log_BTV = logits(model, words_BT[:, :-1])[0].log_softmax(2)
    expected_BT = -log_BTV.gather(2, words_BT[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(nats, expected_BT[mask_BT].sum())


def check_candidates(config: NeuralLanguageModelConfig) -> None:
    """Candidates of a question have the nats of the logits."""
    model, words_BT = make_model(config), draw_text(3, 12)
    asked_BT = draw_text(3, 12, seed=1) % 3 == 0
    candidates_QC = draw_text(int(asked_BT.sum()), 2, seed=2)
    nats_QC, state = model.candidate_nats(words_BT, asked_BT, candidates_QC, model.initial_state(3))
    logits_BTV, expected_state = logits(model, words_BT)
    expected_QC = -logits_BTV.log_softmax(2)[asked_BT].gather(1, candidates_QC)
    torch.testing.assert_close(nats_QC, expected_QC, **EXACT)
    torch.testing.assert_close(state, expected_state, **EXACT)


def check_parameter_formula(config: NeuralLanguageModelConfig) -> None:
    """`parameter_count` is the number of the built model's parameters; a shared table counts once."""
    for words in (WORDS, 100):
        built = sum(parameter.numel() for parameter in build_model(config, words, seed=0).parameters())
        formula = config.parameter_count(words)
        count = format_count(built, "parameter")
        assert formula == built, f"{count} over {words} words, the formula gives {formula:,}"


def check_cost_formula(config: NeuralLanguageModelConfig) -> None:
    """`multiply_adds` of the body is positive and does not depend on the vocabulary."""
    model = make_model(config)
    hidden_BTH, _ = model.encode(draw_text(1, 1), model.initial_state(1))
    width = hidden_BTH.shape[2]
    body, other = (
        config.multiply_adds(words) - config.output.multiply_adds(width, words) for words in (WORDS, 100)
    )
    assert body == other > 0, f"multiply-adds of the body: {body} over {WORDS} words, {other} over 100"


def check_state_formula(config: NeuralLanguageModelConfig) -> None:
    """`state_size` is what the model carries once its memory is full."""
    words_BT = draw_text(1, MEAN_SENTENCE if config.state_grows else LONG_TEXT)
    model, formula = make_model(config), config.state_size()
    state, carried, is_filling = model.initial_state(1), 0, True
    while is_filling:  # a window may have more words than the text
        _, state = model.encode(words_BT, state)
        before, carried = carried, sum(tensor.numel() for tensor in state.values())
        is_filling = before < carried < formula and not config.state_grows
    count = format_count(carried, "number")
    assert formula == carried, f"{count}, the formula gives {formula}"


def check_reload(config: NeuralLanguageModelConfig) -> None:
    """A saved model reloads to the same configuration and the same logits."""
    model, words_BT = build_model(config, WORDS, seed=7).eval(), draw_text(3, 12)
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder))
        again: Any = load_model(Path(folder)).eval()
    assert again.config == config, "the reloaded configuration is another one"
    assert torch.equal(logits(again, words_BT)[0], logits(model, words_BT)[0]), "the logits are others"


def check_seeds(config: NeuralLanguageModelConfig) -> None:
    """Equal seeds give equal models, other seeds others."""
    models = [build_model(config, WORDS, seed).state_dict() for seed in (7, 7, 8)]
    torch.testing.assert_close(models[0], models[1], rtol=0, atol=0)
    assert any(not torch.equal(models[0][name], models[2][name]) for name in models[0]), (
        "the seed has no effect"
    )


def check_random_generator(config: NeuralLanguageModelConfig) -> None:
    """Building a model leaves torch's random generator as it was."""
    before = torch.get_rng_state()
    build_model(config, WORDS, seed=7)
    assert torch.equal(torch.get_rng_state(), before)


def check_determinism(config: NeuralLanguageModelConfig) -> None:
    """Evaluation is deterministic; dropout applies in training."""
    model, words_BT = make_model(config), draw_text(3, 12)
    assert torch.equal(logits(model, words_BT)[0], logits(model, words_BT)[0]), "evaluation is not repeatable"
    model.train()
    again = torch.equal(logits(model, words_BT)[0], logits(model, words_BT)[0])
    options = [name for name in type(config).model_fields if "drop" in name or "zoneout" in name]
    has_dropout = any(isinstance(rate := getattr(config, name), float) and rate > 0 for name in options)
    assert again != has_dropout, "dropout is configured and has no effect, or the reverse"


def check_single_precision(config: NeuralLanguageModelConfig) -> None:
    """float32 gives the logits of float64 up to rounding."""
    exact, words_BT = make_model(config), draw_text(3, 25)
    single = build_model(config, WORDS, seed=7).eval()
    single.load_state_dict(exact.state_dict())
    expected_BTV, single_BTV = logits(exact, words_BT)[0].detach(), logits(single, words_BT)[0].detach()
    assert single_BTV.dtype == torch.float32, f"the logits of float32 weights are {single_BTV.dtype}"
    distance = float((single_BTV.double() - expected_BTV).norm() / expected_BTV.norm())
    assert distance <= FLOAT32_TOLERANCE, f"{distance:.1e} off"


def check_traces(config: NeuralLanguageModelConfig) -> None:
    """A family has the traces that its configuration lists, and no others."""
    model = make_model(config)
    for trace, method in TRACES.items():
        reading = draw_text(1, 3), model.initial_state(1)
        if trace in config.memory_traces:
            assert getattr(model, method)(*reading)
            continue
        try:
            getattr(model, method)(*reading)
        except ConfigurationError:
            continue
        raise AssertionError(f"{method} works, and memory_traces does not list {trace}")


def check_description(config: NeuralLanguageModelConfig) -> None:
    """The configuration describes itself, and every field has a description."""
    assert config.describe(), "describe() is empty"
    assert all(isinstance(value, str | int | float) for value in config.describe().values())
    for name, field in type(config).model_fields.items():
        assert name == "family" or field.description, f"the field {name} has no description"


CHECKS: dict[str, Callable[[NeuralLanguageModelConfig], None]] = {
    name.removeprefix("check_").replace("_", " "): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}
"""What holds, in the docstring of each function, by its topic: the words of the function's name."""
