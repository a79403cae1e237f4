"""The share of a GPU that a trial requests, from its estimated memory.

Ray places trials by their shares and does not limit their memory, so trials that share a GPU must fit it
together. A share is 1/n, where n is how many times the trial's memory fits the GPU, and the worker limits
itself to its share.
"""

CUDA_CONTEXT_BYTES = 700 * 2**20
"""GPU memory of a process before its first tensor: CUDA's context and the libraries' workspaces."""
MEMORY_MARGIN_FACTOR = 1.25
"""Factor on the estimate, for fragmentation in the allocator and temporary buffers of kernels."""
MAX_TRIALS_PER_GPU = 16
"""Processes on one GPU; more of them mostly wait for each other."""
RAY_RESOURCE_STEPS = 10_000
"""Ray counts resources in ten-thousandths."""


def compute_gpu_bytes(estimated_bytes: int) -> int:
    """GPU memory of a trial whose tensors are estimated at `estimated_bytes`."""
    return int(estimated_bytes * MEMORY_MARGIN_FACTOR) + CUDA_CONTEXT_BYTES


def compute_gpu_share(estimated_bytes: int, gpu_bytes: int) -> float | None:
    """The share of a GPU for a trial; None when the trial does not fit a whole GPU."""
    together = min(gpu_bytes // compute_gpu_bytes(estimated_bytes), MAX_TRIALS_PER_GPU)
    return (RAY_RESOURCE_STEPS // together) / RAY_RESOURCE_STEPS if together else None


def compute_tensor_fraction(share: float, gpu_bytes: int) -> float:
    """The fraction of a GPU's memory that the tensors of a trial with this share may take."""
    return max(0.0, share - CUDA_CONTEXT_BYTES / gpu_bytes)
