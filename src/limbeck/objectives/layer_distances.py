"""Squared distances of all layers of one model to all layers of another, computed without graph.

They are taken from explicit differences, which keep their digits near the teacher, in pieces of all pairs at once:
a layer is read, and a score computed, once for all its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from limbeck.kernels.precision import autocast_off, sum_accumulator
from limbeck.objectives.arguments import blank
from limbeck.objectives.attention import attention_score_mse

# Differences of all pairs in work at once: on a CPU they stay in cache, elsewhere few launches matter more.
CPU_CHUNK = 1 << 20
CHUNK = 1 << 24
# Tokens for each number of a student's and a teacher's head from which scores are not worth computing: the pairs are
# then compared one by one, in time linear in the length (measured on a CPU).
SHORT = 9


@torch.no_grad()
def hidden_distances(
    student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return Σ (S_i − H_j)² over valid tokens and features for all pairs of layers.

    Args:
        student: M of `[B, L, width]`.
        teacher: N of `[B, L, width]`, as wide.
        mask: Real tokens, bool `[B, L]`; None means all.
        dtype: What is computed in.

    Returns:
        `[M, N]` in `dtype`.
    """
    width = student[0].shape[-1]
    own, other = ([x.reshape(-1, width) for x in layers] for layers in (student, teacher))
    real = None if mask is None else mask.flatten()
    total = sum_accumulator(student[0].device).repeat(len(own), len(other))
    step = max(1, _chunk(total) // max(1, total.numel() * width))
    for start in range(0, len(own[0]), step):
        rows = slice(start, start + step)
        part = None if real is None else real[rows]
        s, t = (torch.stack([blank(x[rows], part, dtype) for x in xs]) for xs in (own, other))
        total += _all_pairs(s, t)
    return total.to(dtype)


@torch.no_grad()
def score_distances(
    student: Sequence[tuple[Tensor, Tensor]],
    teacher: Sequence[tuple[Tensor, Tensor]],
    heads: int,
    mask: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Return Σ (Q_i K_iᵀ/√d − Q'_j K'_jᵀ/√d')² over heads and pairs of valid tokens for all pairs of layers.

    Args:
        student: M pairs (query, key), each `[B, L, width_S]`.
        teacher: N pairs (query, key), each `[B, L, width_T]`.
        heads: Attention heads of both; divides both widths.
        mask: Real tokens, bool `[B, L]`; None means all.
        dtype: What is computed in.

    Returns:
        `[M, N]` in `dtype`.
    """
    first = student[0][0]
    batch, length, width = first.shape
    if length >= SHORT * ((width + teacher[0][0].shape[-1]) // heads):
        rows = [[attention_score_mse(*x, *y, heads=heads, valid=mask).total for y in teacher] for x in student]
        return torch.stack([torch.stack(row) for row in rows]).to(dtype)
    total = sum_accumulator(first.device).repeat(len(student), len(teacher))
    of_a_row = max(1, total.numel() * length)
    row_step = max(1, min(length, _chunk(total) // of_a_row))
    head_step = max(1, _chunk(total) // (of_a_row * row_step))
    with autocast_off(first.device):
        for sample in range(batch):
            real = None if mask is None else mask[sample]
            (q, k), (teacher_q, teacher_k) = (
                _heads(layers, sample, heads, real, dtype) for layers in (student, teacher)
            )
            for head in range(0, heads, head_step):
                some = slice(head, head + head_step)
                columns, teacher_columns = k[:, some].mT, teacher_k[:, some].mT
                for start in range(0, length, row_step):
                    block = slice(start, start + row_step)
                    total += _all_pairs(q[:, some, block] @ columns, teacher_q[:, some, block] @ teacher_columns)
    return total.to(dtype)


def _heads(
    layers: Sequence[tuple[Tensor, Tensor]], sample: int, heads: int, real: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return queries, divided by √d, and keys of all layers for one sample, `[layers, heads, L, d]`.

    Tokens that are not real become zeros, and so do all their scores, in both models.
    """
    q, k = (
        torch.stack([blank(layer[i][sample], real, dtype) for layer in layers])
        .unflatten(-1, (heads, -1))
        .transpose(1, 2)
        for i in (0, 1)
    )
    return q / math.sqrt(q.shape[-1]), k


def _all_pairs(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the squared distances of the rows `[M, …]` and `[N, …]`, `[M, N]`."""
    return (student.flatten(1)[:, None] - teacher.flatten(1)).square_().sum(-1)


def _chunk(like: Tensor) -> int:
    return CPU_CHUNK if like.device.type == "cpu" else CHUNK
