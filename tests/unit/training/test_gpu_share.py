"""A trial's share of a GPU: packed trials fit together, and no share is larger than necessary."""

from hypothesis import given
from hypothesis import strategies as st

from memtune.training.memory_footprint import (
    CUDA_CONTEXT_BYTES,
    compute_gpu_bytes,
    compute_gpu_share,
    compute_tensor_fraction,
)

GIB = 2**30
estimates = st.integers(min_value=2**20, max_value=200 * GIB)
memories = st.integers(min_value=4 * GIB, max_value=144 * GIB)


@given(estimates, memories)
def test_as_many_trials_as_share_a_gpu_fit_it_together(estimated: int, gpu_bytes: int) -> None:
    share = compute_gpu_share(estimated, gpu_bytes)
    if share is None:
        assert compute_gpu_bytes(estimated) > gpu_bytes
    else:
        together = int(1 / share)
        assert together * share <= 1
        assert together * compute_gpu_bytes(estimated) <= gpu_bytes


@given(estimates, memories)
def test_a_trial_within_its_share_has_what_it_was_estimated_to_take(estimated: int, gpu_bytes: int) -> None:
    share = compute_gpu_share(estimated, gpu_bytes)
    if share is not None:
        rounding = gpu_bytes / 10_000
        assert compute_tensor_fraction(share, gpu_bytes) * gpu_bytes >= estimated - rounding


def test_small_trials_share_and_large_ones_do_not() -> None:
    assert compute_gpu_share(100 * 2**20, 24 * 10**9) == 1 / 16
    assert compute_gpu_share(6 * GIB, 24 * 10**9) == 1 / 2
    assert compute_gpu_share(12 * GIB, 24 * 10**9) == 1
    assert compute_gpu_share(24 * GIB, 24 * 10**9) is None


def test_the_tensors_of_a_trial_have_its_share_without_the_context_of_cuda() -> None:
    gpu_bytes = 16 * CUDA_CONTEXT_BYTES
    assert compute_tensor_fraction(1 / 4, gpu_bytes) == 3 / 16
    assert compute_tensor_fraction(1 / 32, gpu_bytes) == 0.0
