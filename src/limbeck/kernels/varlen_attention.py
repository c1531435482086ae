"""Attention over packed samples on a GPU, by PyTorch's own kernels for samples of many lengths.

Packed samples have no padding, and the host never waits for the device. FlashAttention computes 16-bit numbers on GPUs
from Ampere on, memory-efficient attention all others. PyTorch offers these kernels by `torch.nn.attention.varlen`,
which has no dropout, and by nested tensors, which take many times as long on the host. So they are called directly.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.packed_attention import HALVES

FORMATS = (torch.float32, *HALVES)
"""Formats that the kernels compute in."""
_LARGEST_HEAD = 256
"""Most numbers of a head in FlashAttention."""
_MULTIPLE = 8
"""A head's numbers are a multiple of this in both kernels."""
_AMPERE = (8, 0)
"""The compute capability of the first GPUs with FlashAttention."""


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
    head_size = query.shape[-1]
    attend = _efficient
    if query.dtype in HALVES and head_size <= _LARGEST_HEAD and _is_ampere_or_later(query.device):
        attend = _flash
    context = attend(_pad_by_token(query), _pad_by_token(key), _pad_by_token(value), offsets, longest, dropout, scale)
    # Cut off the zeros that `_pad_by_token` added.
    return context[..., :head_size]


def _pad_by_token(operand: Tensor) -> Tensor:
    """Return `[A, T, D]` as `[T, A, D]`, with zeros behind D up to a multiple that the kernels take.

    Zeros of queries and keys change no score; those of values give further zeros.
    """
    by_token = operand.transpose(0, 1)
    missing = -operand.shape[-1] % _MULTIPLE
    if missing == 0:
        return by_token
    return F.pad(by_token, (0, missing))


def _flash(
    query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, dropout: float, scale: float
) -> Tensor:
    """Attend by FlashAttention; arguments as of `varlen_attention`, operands `[T, A, D]`."""
    is_causal = False
    returns_mask = False
    context: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, offsets, offsets, longest, longest, dropout, is_causal, returns_mask, scale=scale
    )[0]
    return context


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, longest: int, dropout: float, scale: float
) -> Tensor:
    """Attend by memory-efficient attention; arguments as of `varlen_attention`, operands `[T, A, D]`."""
    # The kernel takes a batch of one row, [1, T, A, D].
    row = [x.unsqueeze(0) for x in (query, key, value)]
    bias = None
    mask_type = 0  # No causal mask.
    keeps_log_sums = torch.is_grad_enabled()  # The backward pass reads them.
    context: Tensor = torch.ops.aten._efficient_attention_forward(
        *row, bias, offsets, offsets, longest, longest, dropout, mask_type, keeps_log_sums, scale=scale
    )[0]
    return context[0]


@cache
def _is_ampere_or_later(device: torch.device) -> bool:
    """Whether a GPU is of the generation Ampere or later."""
    return torch.cuda.get_device_capability(device) >= _AMPERE
