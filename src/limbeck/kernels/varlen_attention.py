"""Attention over packed samples on a GPU, by PyTorch's own kernels for samples of many lengths: no padding, no waiting.

FlashAttention in 16 bits on GPUs from Ampere on, memory-efficient attention in float32 and on older ones. They are the
kernels of `torch.nn.attention.varlen` and of nested tensors, called directly: the former has no dropout, and the latter
take many times as long on the host.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.packed_attention import HALVES

FORMATS = (torch.float32, *HALVES)
"""Formats that the kernels compute in."""
# Heads of FlashAttention have at most so many numbers, and those of both kernels a multiple of so many.
_LARGEST, _MULTIPLE = 256, 8
_AMPERE = (8, 0)


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, *, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attend within each sample of a packed row: softmax(Q Kᵀ · scale) V per head, dropout on the probabilities.

    Args:
        query: `[A, T, D]`, T tokens of all samples one after the other; in one of `FORMATS`.
        key: Like `query`.
        value: Like `query`.
        offsets: Where each sample begins, and where the last one ends, int32 `[samples + 1]`.
        longest: Tokens of the longest sample.
        scale: Factor of the scores.
        dropout: Probability that a probability is set to 0; what is left is scaled.

    Returns:
        `[T, A, D]`: what `scaled_dot_product_attention` gives sample by sample.
    """
    size = query.shape[-1]
    query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    if size % _MULTIPLE:  # Zeros change no score, and what they add to the result is cut off.
        query, key, value = (F.pad(x, (0, -size % _MULTIPLE)) for x in (query, key, value))
    attend = _efficient
    if query.dtype in HALVES and size <= _LARGEST and _is_recent(query.device):
        attend = _flash
    return attend(query, key, value, offsets, longest, dropout, scale)[..., :size]


def _flash(
    query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, dropout: float, scale: float
) -> Tensor:
    context: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, offsets, offsets, longest, longest, dropout, False, False, scale=scale
    )[0]
    return context


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, dropout: float, scale: float
) -> Tensor:
    row = [x.unsqueeze(0) for x in (query, key, value)]
    context: Tensor = torch.ops.aten._efficient_attention_forward(
        *row, None, offsets, offsets, longest, longest, dropout, 0, torch.is_grad_enabled(), scale=scale
    )[0]
    return context[0]


@cache
def _is_recent(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= _AMPERE
