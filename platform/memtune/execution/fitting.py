"""The share of a GPU that a trial asks for, from the memory it is estimated to take.

Ray places trials by their shares and keeps none from taking more: what shares a GPU must fit it together. So
a share is one of n equal parts, n being how often the trial's needs go into the GPU's memory, and the worker
holds itself to its part.
"""

__all__ = ["CONTEXT_BYTES", "needed_bytes", "share_of", "tensors_fraction"]

CONTEXT_BYTES = 700 * 2**20
"""What a process takes of a GPU before its first tensor: CUDA's context and the libraries' workspaces."""
MARGIN = 1.25
"""Times the estimate: the allocator's rounding and gaps, and what a kernel needs for a moment."""
MOST_PER_GPU = 16
"""Processes on one GPU; with more they mostly wait for each other."""
PRECISION = 10_000
"""Ray counts resources in ten-thousandths."""


def needed_bytes(estimated: int) -> int:
    """Bytes of a GPU for a trial that is estimated to hold so many in tensors."""
    return int(estimated * MARGIN) + CONTEXT_BYTES


def share_of(estimated: int, gpu_bytes: int) -> float | None:
    """The share of a GPU for a trial estimated at so many bytes; None when it does not fit a whole one."""
    together = min(gpu_bytes // needed_bytes(estimated), MOST_PER_GPU)
    return (PRECISION // together) / PRECISION if together else None


def tensors_fraction(share: float, gpu_bytes: int) -> float:
    """The fraction of a GPU's memory that the tensors of a trial with this share may take."""
    return max(0.0, share - CONTEXT_BYTES / gpu_bytes)
