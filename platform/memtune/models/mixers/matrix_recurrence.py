"""The recurrence of a matrix memory, word by word and in chunks.

Per head, the state S of K x V numbers goes through M steps at each word:

    S <- diag(exp(g)) S + k (u - S' r)'        S is the state before the step, r reads what is erased

After the last step of a word the memory is read, o = S' q. A rule that reads the decayed state, such as the
delta rule, has exp(g) in its r. This is "diagonal plus low rank": a step that erases elsewhere than it writes
is two steps. Only the first step of a word has a decay.

In chunks (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", and
its gated forms): with G the sum of the g of a chunk up to a step, what step t erases is

    p_t = S_0' (exp(G_t - g_t) * r_t) + sum_{j<t} A_tj (u_j - p_j),   A_tj = sum_c r_tc k_jc exp(G_tc - g_tc
    - G_jc)

so that u - p is the solution of a unit lower triangular system with the matrix A, which is solved for all
chunks at once; only S goes from chunk to chunk. Every exponent is a difference that is at most 0, or both of
its parts are small.

Shapes: B batch, H heads, T words, M steps of a word, N = T * M, C chunks, L steps of a chunk, W words of a
chunk, K keys, V values.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

STEPS = 32
"""Steps of a chunk. On a CPU, at 70 and 256 words of width 256, half as many take 1.06 to 1.5 times the time,
and twice as many 0.82 times (GLA) to 1.15 times (Gated DeltaNet)."""
STEPS_BY_DIFFERENCE = 8
"""Steps of a chunk with a decay per channel where the differences are a tensor of L * L * K numbers: twice as
many take 1.25 to 1.9 times the time, and half as many about the same."""
MOST_FACTORED_DECAY = 20.0
"""Logarithm of the decay over a chunk up to which factors are used: their relative error grows with it."""


class MemorySteps(NamedTuple):
    """The steps of a text; None stands for zeros."""

    keys: Tensor
    """k, (B, H, N, K)."""
    values: Tensor
    """u, (B, H, N, V)."""
    queries: Tensor
    """q, (B, H, T, K)."""
    log_decays: Tensor | None
    """g, (B, H, N, K), or (B, H, N, 1) for all channels alike; at most 0."""
    erased: Tensor | None
    """r, (B, H, N, K)."""


def run_memory(steps: MemorySteps, memory_BHKV: Tensor) -> tuple[Tensor, Tensor]:
    """o (B, H, T, V) after each word, and the memory after the last; a single word is one step."""
    if steps.queries.shape[2] == 1:
        return run_words(steps, memory_BHKV)
    return run_chunks(steps, memory_BHKV)


def run_words(steps: MemorySteps, memory_BHKV: Tensor) -> tuple[Tensor, Tensor]:
    """The results of `run_memory` word by word: constant memory for generation."""
    steps_per_word = steps.keys.shape[2] // steps.queries.shape[2]
    outputs = []
    for n in range(steps.keys.shape[2]):
        values_BHV = steps.values[:, :, n]
        if steps.erased is not None:
            values_BHV = values_BHV - (steps.erased[:, :, n, None] @ memory_BHKV).squeeze(2)
        if steps.log_decays is not None:
            memory_BHKV = steps.log_decays[:, :, n, :, None].exp() * memory_BHKV
        memory_BHKV = memory_BHKV + steps.keys[:, :, n, :, None] * values_BHV[:, :, None]
        if (n + 1) % steps_per_word == 0:
            query_BH1K = steps.queries[:, :, n // steps_per_word, None]
            outputs.append((query_BH1K @ memory_BHKV).squeeze(2))
    return torch.stack(outputs, dim=2), memory_BHKV


def run_chunks(
    steps: MemorySteps, memory_BHKV: Tensor, words_per_chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """The results of `run_memory` chunk by chunk, in matrix products."""
    words = steps.queries.shape[2]
    chunks, is_factored = _plan_chunks(steps, words_per_chunk)
    keys, values, queries = (_cut_into_chunks(each, words, chunks) for each in steps[:3])
    log_decays, erased = (
        None if each is None else _cut_into_chunks(each, words, chunks) for each in steps[3:]
    )
    steps_per_word = keys.shape[3] // queries.shape[3]
    last_W = torch.arange(queries.shape[3], device=keys.device) * steps_per_word + steps_per_word - 1

    sums = before = sums_at_words = None
    from_queries, from_memory, later_keys = queries, erased, keys
    if log_decays is not None:
        sums = log_decays.cumsum(3)
        before, sums_at_words = sums - log_decays, sums[:, :, :, last_W]
        from_queries = queries * sums_at_words.exp()
        from_memory = None if erased is None else erased * before.exp()
        later_keys = keys * (sums[:, :, :, -1:] - sums).exp()
    step_L = torch.arange(keys.shape[3], device=keys.device)
    are_read_WL, are_before_LL = step_L <= last_W[:, None], step_L < step_L[:, None]
    system_BHCLL = None
    if is_factored and sums is not None:
        grown_keys = keys * (-sums).exp()
        read_BHCWL = _multiply(from_queries, grown_keys, None, None, are_read_WL)
        if from_memory is not None:
            system_BHCLL = _multiply(from_memory, grown_keys, None, None, are_before_LL)
    else:
        read_BHCWL = _multiply(queries, keys, sums_at_words, sums, are_read_WL)
        if erased is not None:
            system_BHCLL = _multiply(erased, keys, before, sums, are_before_LL)
    if system_BHCLL is not None and from_memory is not None:
        solved_BHCLX = torch.linalg.solve_triangular(
            system_BHCLL, torch.cat([values, from_memory], dim=4), upper=False, unitriangular=True
        )
        values, from_memory = torch.split(solved_BHCLX, [values.shape[4], keys.shape[4]], dim=4)
    outputs = []
    for chunk in range(chunks):
        written_BHLV = values[:, :, chunk]
        if from_memory is not None:
            written_BHLV = written_BHLV - from_memory[:, :, chunk] @ memory_BHKV
        outputs.append(from_queries[:, :, chunk] @ memory_BHKV + read_BHCWL[:, :, chunk] @ written_BHLV)
        if sums is not None:
            memory_BHKV = sums[:, :, chunk, -1, :, None].exp() * memory_BHKV
        memory_BHKV = memory_BHKV + later_keys[:, :, chunk].transpose(2, 3) @ written_BHLV
    return torch.cat(outputs, dim=2)[:, :, :words], memory_BHKV


def _plan_chunks(steps: MemorySteps, words_per_chunk: int | None) -> tuple[int, bool]:
    """The number of chunks, and whether exp(G_t - G_j) of channels may be computed as exp(G_t) exp(-G_j).

    That takes about half of the time, and is as exact where neither factor comes near the ends of the
    numbers. To look stops a GPU and breaks a compiled function, so these do not.
    """
    words, decays = steps.queries.shape[2], steps.log_decays
    if decays is None or decays.shape[3] == 1:
        return _count_chunks(steps, words_per_chunk, STEPS), False
    if decays.device.type == "cpu" and not torch.compiler.is_compiling():
        limit = min(MOST_FACTORED_DECAY, math.log(torch.finfo(decays.dtype).max) / 2)
        for length in (STEPS, STEPS // 2, STEPS // 4):
            chunks = _count_chunks(steps, words_per_chunk, length)
            if -_cut_into_chunks(decays.detach(), words, chunks).sum(3).min() < limit:
                return chunks, True
    return _count_chunks(steps, words_per_chunk, STEPS_BY_DIFFERENCE), False


def _count_chunks(steps: MemorySteps, words_per_chunk: int | None, most_steps: int) -> int:
    words = steps.queries.shape[2]
    return -(-words // (words_per_chunk or max(1, most_steps * words // steps.keys.shape[2])))


def _cut_into_chunks(values_BHNX: Tensor, words: int, chunks: int) -> Tensor:
    """(B, H, C, L, X); steps of zeros after the last change nothing."""
    steps_per_word = values_BHNX.shape[2] // words
    length = -(-words // chunks)
    missing = (chunks * length - words) * steps_per_word
    padded = functional.pad(values_BHNX, (0, 0, 0, missing)) if missing else values_BHNX
    return padded.reshape(*padded.shape[:2], chunks, length * steps_per_word, -1)


def _multiply(
    left: Tensor, right: Tensor, left_sums: Tensor | None, right_sums: Tensor | None, kept_XY: Tensor
) -> Tensor:
    """sum_c left_xc right_yc exp(left_sums_xc - right_sums_yc) where kept, else 0, of (B, H, C, X or Y,
    K).
    """
    if left_sums is None or right_sums is None:
        return (left @ right.transpose(3, 4)).masked_fill(~kept_XY, 0.0)
    # The mask comes before the exponential: the differences that it drops are positive and may overflow.
    if left_sums.shape[4] == 1:
        factors = (left_sums - right_sums.transpose(3, 4)).masked_fill(~kept_XY, -torch.inf).exp()
        return factors * (left @ right.transpose(3, 4))
    differences = left_sums.unsqueeze(4) - right_sums.unsqueeze(3)
    factors_BHCXYK = differences.masked_fill(~kept_XY.unsqueeze(2), -torch.inf).exp()
    return torch.einsum("bhcxk,bhcyk,bhcxyk->bhcxy", left, right, factors_BHCXYK)
