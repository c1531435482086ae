"""Linear maps with int8 products on a CPU: activations are quantised by token in every call, weights by channel once.

    codes = round(127 row / max|row|),  scale = max|row| / 127,  y = scale_x · scale_w · (codes_x · codes_w) + bias

Rows are the tokens of activations, and the output channels of a weight. Sums of products are exact, in int32; codes of
activations are symmetric, from -127 to 127. The products are those of oneDNN that PyTorch has for quantised models.
"""

from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.kernels.workers import run_tasks

LARGEST = 127
"""Code of the largest number of a row."""
LEAST = 64
"""Tokens that are worth a thread."""
# oneDNN has fast products of unsigned activations only: signed ones take seconds.
_ZERO = 128
# Magnitudes are ordered as their bits, whose largest is found in a quarter of the time.
_MAGNITUDES = {2: (torch.int16, 0x7FFF), 4: (torch.int32, 0x7FFFFFFF)}


class QuantisedWeight(NamedTuple):
    """A weight that is laid out for products.

    Attributes:
        codes: `[out, in]`, in a layout of oneDNN's own.
        scales: Of the output channels, float32.
        zeros: The codes of zero, which are 0.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor


def quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise each row by its largest number.

    Args:
        rows: `[..., K]`, bfloat16, float16 or float32; computed in float32.

    Returns:
        The codes, int8 like `rows`, and the scales, float32 `[..., 1]`. A row of zeros has codes of 0.
    """
    bits, mask = _MAGNITUDES[rows.dtype.itemsize]
    largest = (rows.contiguous().view(bits) & mask).amax(-1, keepdim=True).view(rows.dtype)
    largest = largest.float().clamp_min(torch.finfo(torch.float32).tiny)
    # In this order half of the largest number, which is common in bfloat16, gives 63.5 exactly.
    codes = rows.to(torch.float32, copy=True).mul_(LARGEST).div_(largest).round_().to(torch.int8)
    return codes, largest / LARGEST


def pack(codes: Tensor, scales: Tensor) -> QuantisedWeight:
    """Lay a quantised weight out for products.

    Args:
        codes: `[out, in]`, int8.
        scales: Of its rows, as `quantise` returns them.
    """
    return QuantisedWeight(
        torch.ops.onednn.qlinear_prepack(codes, None), scales.flatten(), torch.zeros(len(codes), dtype=torch.int32)
    )


def multiply(codes: Tensor, weight: QuantisedWeight) -> Tensor:
    """Multiply codes `[T, in]` by a weight: float32 `[T, out]`, times the scales of the weight's channels."""
    unsigned = codes.view(torch.uint8) ^ _ZERO
    found: Tensor = torch.ops.onednn.qlinear_pointwise(
        unsigned, 1.0, _ZERO, *weight, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return found


def int8_linear(x: Tensor, weight: QuantisedWeight, bias: Tensor | None) -> Tensor:
    """Map `[..., in]` to `[..., out]`, in the dtype of `x`; without gradient. Tokens are divided among threads once.

    Args:
        x: Activations.
        weight: As `pack` returns it.
        bias: `[out]`, float32, or None.
    """
    tokens = x.reshape(-1, x.shape[-1])
    found = tokens.new_empty(len(tokens), len(weight.scales))
    size = max(LEAST, -(-len(tokens) // torch.get_num_threads()))
    parts = (slice(top, top + size) for top in range(0, len(tokens), size))
    run_tasks([partial(_map, tokens[part], weight, bias, found[part]) for part in parts])
    return found.view(*x.shape[:-1], found.shape[1])


def _map(tokens: Tensor, weight: QuantisedWeight, bias: Tensor | None, found: Tensor) -> None:
    codes, scales = quantise(tokens)
    mapped = multiply(codes, weight).mul_(scales)
    found.copy_(mapped if bias is None else mapped.add_(bias))


@lru_cache(maxsize=1)
def int8_problem() -> str | None:
    """Return why this machine has no int8 products that are fast and exact, or None if it has.

    Without VNNI sums of pairs saturate at 16 bits; so the largest codes are tried.
    """
    if not getattr(torch.cpu, "_is_vnni_supported", bool)():
        return "this CPU has no int8 products (AVX512-VNNI)"
    codes = torch.full((2, 64), LARGEST, dtype=torch.int8)
    codes[1, ::3] = -LARGEST
    try:
        found = multiply(codes, pack(codes, torch.ones(2, 1)))
    except (AttributeError, RuntimeError):
        return f"PyTorch {torch.__version__} has no int8 products for this CPU"
    wanted = codes.float() @ codes.float().T
    return None if torch.equal(found, wanted) else f"the int8 products of PyTorch {torch.__version__} are wrong here"
