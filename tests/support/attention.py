"""Attention by samples of a packed row in plain PyTorch, in place of kernels that need a GPU."""

from itertools import pairwise

import torch
from torch.nn import functional as F


def bounds_of(lengths):
    """Where samples of these lengths begin in a packed row, and where the last one ends."""
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


def attend_samples(query, key, value, offsets, longest, dropout, scale):
    """Operands and result `[T, A, D]`, sample by sample."""
    bounds = offsets.tolist()
    assert offsets.dtype == torch.int32
    assert longest == max(end - begin for begin, end in pairwise(bounds))
    rows = [
        F.scaled_dot_product_attention(
            *(x[begin:end].transpose(0, 1) for x in (query, key, value)), None, dropout, scale=scale
        )
        for begin, end in pairwise(bounds)
    ]
    return torch.cat([row.transpose(0, 1) for row in rows])
