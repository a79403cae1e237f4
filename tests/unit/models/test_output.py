import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from memtune.models.outputs.output_layer import SoftmaxOutput, compute_chunked_loss
from tests.presence import require

ROWS, WIDTH, WORDS = 11, 6, 29
Problem = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Operations(TorchDispatchMode):
    """Records the names of operations, and the size of the largest result."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        self.names.append(function.overloadpacket.__name__)
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel())
        return result


@pytest.fixture
def problem() -> Problem:
    """Hidden rows, weight, bias (float64, with gradients) and targets."""
    generator = torch.Generator().manual_seed(3)
    shapes = (ROWS, WIDTH), (WORDS, WIDTH), (WORDS,)
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    hidden, weight, bias = (leaf.requires_grad_() for leaf in leaves)
    return hidden, weight, bias, torch.randint(WORDS, (ROWS,), generator=generator)


def compute_reference(hidden, weight, bias, targets, weights=1.0):
    logits = functional.linear(hidden, weight, bias)
    return (functional.cross_entropy(logits, targets, reduction="none") * weights).sum()


def compute_gradients(loss, problem):
    return torch.autograd.grad(loss, problem[:3])


@pytest.mark.parametrize("rows", [1, 4, 10, 11, 100])
def test_loss_and_gradients_are_those_of_cross_entropy_for_any_chunk(problem: Problem, rows):
    loss = compute_chunked_loss(*problem, rows=rows)[0]
    torch.testing.assert_close(loss, compute_reference(*problem), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        compute_gradients(loss, problem),
        compute_gradients(compute_reference(*problem), problem),
        rtol=1e-9,
        atol=1e-12,
    )


def test_rows_are_weighted(problem: Problem):
    weights = torch.rand(ROWS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss = compute_chunked_loss(*problem, weights, rows=4)[0]
    expected = compute_reference(*problem, weights)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        compute_gradients(loss, problem), compute_gradients(expected, problem), rtol=1e-9, atol=1e-12
    )


def test_masked_rows_have_no_loss_and_no_gradient(problem: Problem):
    mask = torch.arange(ROWS) < 7
    loss = compute_chunked_loss(*problem, mask, rows=4)[0]
    torch.testing.assert_close(loss, compute_reference(*problem, mask), rtol=1e-12, atol=0)
    assert compute_gradients(loss, problem)[0][7:].eq(0).all()


def test_gradients_are_scaled_by_the_incoming_gradient(problem: Problem):
    loss = compute_chunked_loss(*problem)[0] / 7
    torch.testing.assert_close(
        compute_gradients(loss, problem),
        compute_gradients(compute_reference(*problem) / 7, problem),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("size", [1e3, 1e5])
def test_extreme_logits_stay_finite_and_exact(problem: Problem, size):
    hidden, weight, bias, targets = problem
    loss = compute_chunked_loss(hidden * size, weight, bias, targets)[0]
    torch.testing.assert_close(
        loss, compute_reference(hidden * size, weight, bias, targets), rtol=1e-12, atol=0
    )
    assert all(gradient.isfinite().all() for gradient in compute_gradients(loss, problem))


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_only_leaves_that_require_a_gradient_get_one(problem: Problem, frozen):
    hidden, weight, bias, targets = (leaf.detach() if i == frozen else leaf for i, leaf in enumerate(problem))
    wanted = [leaf for leaf in (hidden, weight, bias) if leaf.requires_grad]
    loss = compute_chunked_loss(hidden, weight, bias, targets)[0]
    expected = torch.autograd.grad(compute_reference(hidden, weight, bias, targets), wanted)
    torch.testing.assert_close(torch.autograd.grad(loss, wanted), expected, rtol=1e-9, atol=1e-12)


def test_no_tensor_is_as_large_as_the_logits_of_all_rows():
    hidden = torch.randn(64, WIDTH, requires_grad=True)
    layer = SoftmaxOutput(WIDTH, WORDS)
    torch.nn.init.normal_(layer.weight)
    torch.nn.init.normal_(layer.bias)
    targets = torch.randint(WORDS, (64,))
    with Operations() as operations:
        compute_chunked_loss(hidden, layer.weight, layer.bias, targets, rows=8)[0].backward()
    assert operations.largest == max(8 * WORDS, hidden.numel())


def test_without_gradients_only_the_logits_are_computed(problem: Problem):
    with torch.no_grad(), Operations() as operations:
        loss = compute_chunked_loss(*problem, rows=4)[0]
    torch.testing.assert_close(loss, compute_reference(*problem).detach(), rtol=1e-12, atol=0)
    assert not loss.requires_grad
    assert operations.names.count("addmm") == 3
    assert not {"mm", "mv", "addmm_"} & set(operations.names)


def test_a_second_backward_is_refused(problem: Problem):
    loss = compute_chunked_loss(*problem)[0]
    loss.backward(retain_graph=True)
    with pytest.raises(AssertionError, match="once per forward"):
        loss.backward()


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_autocast_keeps_sums_and_gradients_in_single_precision(problem: Problem, narrow):
    hidden, weight, bias = leaves = [leaf.detach().float().requires_grad_() for leaf in problem[:3]]
    with torch.autocast("cpu", dtype=narrow):
        loss = compute_chunked_loss(hidden, weight, bias, problem[3], rows=4)[0]
    assert loss.dtype == torch.float32
    tolerance = 4 * torch.finfo(narrow).eps  # of products of 6 terms
    torch.testing.assert_close(loss.double(), compute_reference(*problem), rtol=tolerance, atol=0)
    for own, expected in zip(
        torch.autograd.grad(loss, leaves),
        compute_gradients(compute_reference(*problem), problem),
        strict=True,
    ):
        assert own.dtype == torch.float32
        assert (own - expected).norm() <= tolerance * expected.norm()


def test_half_precision_is_finite_with_a_vocabulary_beyond_its_range():
    """Even logits over 70,000 words: their exponentials sum to more than float16 can hold."""
    hidden = torch.zeros(3, 2, requires_grad=True)
    weight, bias = torch.ones(70_000, 2), torch.zeros(70_000, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = compute_chunked_loss(hidden, weight, bias, torch.tensor([0, 1, 2]))[0]
    loss.backward()
    assert loss.item() == pytest.approx(3 * torch.tensor(70_000.0).log().item(), rel=1e-5)
    assert require(bias.grad)[:3] == pytest.approx([-1.0] * 3, abs=1e-3)
    assert require(hidden.grad).isfinite().all()


def test_a_tied_embedding_gets_the_gradients_of_both_uses():
    embedding = torch.nn.Embedding(WORDS, WIDTH)
    layer = SoftmaxOutput(WIDTH, WORDS, tied_to=embedding)
    assert layer.weight is embedding.weight
