import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memtune.errors import ConfigurationError
from memtune.models import LSTMConfig, build_model, logits
from memtune.models.outputs.output_config import ClassFactoredConfig
from memtune.models.outputs.word_classes import compute_class_borders, compute_zipf_counts
from tests.oracles.output_layers import assign_word_classes

ROWS, WIDTH, WORDS = 40, 6, 29
CONFIGS = {
    "root of the vocabulary": ClassFactoredConfig(),
    "square roots of counts": ClassFactoredConfig(classes=7, mass="square_root"),
    "one class": ClassFactoredConfig(classes=1),
    "one class per word": ClassFactoredConfig(classes=WORDS),
}
every_config = pytest.mark.parametrize("output", CONFIGS.values(), ids=CONFIGS)
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}  # double precision: only the order of sums may differ


def draw_text(length: int) -> torch.Tensor:
    return torch.randint(WORDS, (3, length + 1), generator=torch.Generator().manual_seed(length))


def make_lstm(output: ClassFactoredConfig, **fields):
    return build_model(LSTMConfig(width=5, initial_range=0.5, output=output, **fields), WORDS, seed=1)


@pytest.fixture
def layer():
    """A layer in double precision, whose classes are those of uneven counts."""
    built = ClassFactoredConfig(classes=5).build(WIDTH, WORDS).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(generator=generator)
    built.set_word_counts([1000, 300, *range(WORDS - 2, 0, -1)])
    return built


def draw_problem(rows: int = ROWS, words: int = WORDS) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    hidden_NH = torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64).requires_grad_()
    return hidden_NH, torch.randint(words, (rows,), generator=generator)


def compute_reference(layer, hidden_NH, targets_N):
    """Nats of each row, from the probabilities of all words."""
    return -layer(hidden_NH).gather(1, targets_N.unsqueeze(1)).squeeze(1)


def test_the_words_probabilities_sum_to_one(layer):
    total = layer(draw_problem()[0]).exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), **EXACT)


def test_rows_are_weighted_and_gradients_are_scaled_by_the_incoming_gradient(layer):
    hidden_NH, targets_N = draw_problem()
    weights_N = torch.rand(ROWS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    loss = layer.negative_log_likelihood(hidden_NH, targets_N, weights_N) / 7
    expected = (compute_reference(layer, hidden_NH, targets_N) * weights_N).sum() / 7
    torch.testing.assert_close(loss, expected, **EXACT)
    leaves = [hidden_NH, *layer.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), **EXACT
    )


def test_nats_by_row_are_in_the_order_of_the_rows(layer):
    hidden_NH, targets_N = draw_problem()
    mask_N = torch.arange(ROWS) < 5
    _, nats_N = layer.negative_log_likelihood_by_row(hidden_NH, targets_N, mask_N)
    torch.testing.assert_close(nats_N, compute_reference(layer, hidden_NH, targets_N).detach(), **EXACT)
    assert not nats_N.requires_grad


@pytest.mark.parametrize("frozen", ["hidden", "words.weight", "words.bias"])
def test_only_leaves_that_require_a_gradient_get_one(layer, frozen):
    hidden_NH, targets_N = draw_problem()
    leaves = {"hidden": hidden_NH, **dict(layer.named_parameters())}
    leaves.pop(frozen).requires_grad_(False)
    wanted = list(leaves.values())
    loss, expected = (
        layer.negative_log_likelihood(hidden_NH, targets_N),
        compute_reference(layer, hidden_NH, targets_N).sum(),
    )
    torch.testing.assert_close(
        torch.autograd.grad(loss, wanted), torch.autograd.grad(expected, wanted), **EXACT
    )


def test_words_of_classes_without_a_target_get_no_gradient(layer):
    hidden_NH, _ = draw_problem()
    first, end = layer.borders[2:4].tolist()
    targets_N = torch.arange(ROWS) % (end - first) + first
    layer.negative_log_likelihood(hidden_NH, targets_N).backward()
    touched = torch.zeros(WORDS, dtype=torch.bool)
    touched[first:end] = True
    assert torch.equal(layer.words.weight.grad.ne(0).any(1), touched)
    assert torch.equal(layer.words.bias.grad.ne(0), touched)


def test_without_gradients_the_loss_is_the_same(layer):
    hidden_NH, targets_N = draw_problem()
    with torch.no_grad():
        loss = layer.negative_log_likelihood(hidden_NH, targets_N)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, compute_reference(layer, hidden_NH, targets_N).sum().detach(), **EXACT)


def test_the_loss_of_no_rows_is_zero(layer):
    hidden_NH, targets_N = draw_problem(rows=0)
    nats, nats_N = layer.negative_log_likelihood_by_row(hidden_NH, targets_N)
    nats.backward()
    assert nats == 0
    assert len(nats_N) == 0


@pytest.mark.parametrize("size", [1e3, 1e5])
def test_extreme_logits_stay_finite_and_exact(layer, size):
    hidden_NH, targets_N = draw_problem()
    loss = layer.negative_log_likelihood(hidden_NH * size, targets_N)
    expected = compute_reference(layer, hidden_NH * size, targets_N).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, [hidden_NH]))


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_autocast_keeps_sums_and_gradients_in_single_precision(layer, narrow):
    hidden_NH, targets_N = draw_problem()
    expected = compute_reference(layer, hidden_NH, targets_N).sum()
    references = torch.autograd.grad(expected, [hidden_NH, *layer.parameters()])
    layer.float()
    single_NH = hidden_NH.detach().float().requires_grad_()
    with torch.autocast("cpu", dtype=narrow):
        loss = layer.negative_log_likelihood(single_NH, targets_N)
    assert loss.dtype == torch.float32
    tolerance = 8 * torch.finfo(narrow).eps  # of two softmaxes over products of 6 terms
    torch.testing.assert_close(loss.double(), expected, rtol=tolerance, atol=0)
    for own, wanted in zip(
        torch.autograd.grad(loss, [single_NH, *layer.parameters()]), references, strict=True
    ):
        assert own.dtype == torch.float32
        assert (own - wanted).norm() <= tolerance * wanted.norm()


class LargestResult(TorchDispatchMode):
    """Records the size of the largest tensor that an operation returns."""

    numbers = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        if isinstance(result, torch.Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


def test_no_tensor_is_as_large_as_the_logits_of_all_words():
    """Logits over all words would be 400,000 numbers; the gradient of the words' rows has 12,000."""
    layer = ClassFactoredConfig().build(WIDTH, 2000)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    hidden_NH, targets_N = draw_problem(rows=200, words=2000)
    with LargestResult() as largest:
        layer.negative_log_likelihood(hidden_NH.float(), targets_N).backward()
    assert largest.numbers < 60_000


def test_more_classes_than_words_are_refused():
    with pytest.raises(ConfigurationError, match=r"classes must be at most the 29 words.*got 30"):
        make_lstm(ClassFactoredConfig(classes=30))


@pytest.mark.parametrize(("words", "classes"), [(1, 1), (2, 2), (25, 5), (26, 6), (10_000, 100)])
def test_the_default_number_of_classes_is_the_root_of_the_vocabulary(words, classes):
    assert ClassFactoredConfig().resolve_class_count(words) == classes


def test_size_by_hand():
    """100 classes and 10,000 words, each with a row and a bias."""
    config = ClassFactoredConfig(classes=100)
    assert config.parameter_count(128, 10_000) == 10_100 * 129
    assert config.parameter_count(128, 10_000, tied=True, bias=False) == 100 * 128


@pytest.mark.parametrize(
    ("counts", "classes", "borders"),
    [
        ([1] * 12, 4, [0, 3, 6, 9, 12]),
        ([6, 1, 1, 1, 1, 1, 1], 3, [0, 1, 4, 7]),  # the first word alone outweighs a third
        ([100, 1, 1, 1], 4, [0, 1, 2, 3, 4]),
        ([5, 4, 3, 2, 1], 1, [0, 5]),
        ([3, 0, 0, 0], 3, [0, 1, 2, 4]),  # words that never occur still need a class
        ([1, 1, 1, 100], 3, [0, 2, 3, 4]),
    ],
)
def test_classes_have_equal_shares_of_the_counts(counts, classes, borders):
    assert compute_class_borders(counts, classes, "frequency") == borders


def test_shares_of_square_roots_make_the_last_classes_smaller():
    counts = [9, 4, 4, 1, 1, 1, 1, 1, 1]  # roots 3, 2, 2, 1, ...: a third is 13 / 3
    assert compute_class_borders(counts, 3, "square_root") == [0, 2, 5, 9]
    assert compute_class_borders(counts, 3, "frequency") == [0, 1, 3, 9]


@pytest.mark.parametrize("mass", ["frequency", "square_root"])
@pytest.mark.parametrize(("words", "classes"), [(29, 6), (300, 18), (300, 150)])
def test_classes_of_a_zipfian_text_are_those_of_the_definition(words, classes, mass):
    borders = compute_class_borders(compute_zipf_counts(words), classes, mass)
    expected = assign_word_classes(compute_zipf_counts(words), classes, mass)
    assert [list(range(first, end)) for first, end in pairwise(borders)] == expected


@pytest.mark.parametrize("mass", ["frequency", "square_root"])
def test_cost_is_the_mean_over_a_zipfian_text(mass):
    config = ClassFactoredConfig(classes=3, mass=mass)
    words_of_class = [len(members) for members in assign_word_classes(compute_zipf_counts(50), 3, mass)]
    counts = iter(compute_zipf_counts(50))
    met = sum(size * sum(next(counts) for _ in range(size)) for size in words_of_class)
    assert config.multiply_adds(7, 50) == 7 * (3 + math.ceil(met / sum(compute_zipf_counts(50))))


def test_word_counts_change_the_classes_but_no_parameter():
    model = make_lstm(ClassFactoredConfig(classes=4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.output.set_word_counts([50, *range(WORDS - 1, 0, -1)])
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"output.borders"}
    assert not torch.equal(
        logits(model, draw_text(5))[0], logits(make_lstm(ClassFactoredConfig(classes=4)), draw_text(5))[0]
    )


def test_uniform_parameters_give_equal_words_of_a_class_equal_probabilities():
    layer = ClassFactoredConfig(classes=2).build(3, 5)
    torch.nn.init.zeros_(layer.classes.weight)
    torch.nn.init.zeros_(layer.classes.bias)
    torch.nn.init.zeros_(layer.words.weight)
    torch.nn.init.zeros_(layer.words.bias)
    layer.set_word_counts([4, 1, 1, 1, 1])
    expected = [math.log(1 / 2), *[math.log(1 / 8)] * 4]
    assert layer(torch.ones(3)).tolist() == pytest.approx(expected, rel=1e-6)
