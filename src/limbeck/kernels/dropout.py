"""`fast_dropout`: dropout that draws fewer random bits and saves no mask, for training on a CPU.

PyTorch's Bernoulli on a CPU takes 64 bits of a Mersenne twister for every element, one after the other. Here each
element takes 16 bits of an SFC64 random stream, which is several times faster. The seed of a stream is drawn from
PyTorch's own generator: the same `torch.manual_seed` gives the same factors, and so does a restored generator state. A
stream can be started again from its seed, so a backward pass needs no saved mask.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

# An element is kept or dropped by 16 bits, read as a signed number.
_LEVELS = 1 << 16
_LOWEST = -(1 << 15)
_ELEMENTS_OF_A_WORD = 4
"""Elements that 64 random bits decide."""


def draw_seed() -> int:
    """Draw the seed of a stream from PyTorch's default generator, 0 to 2^62."""
    return int(torch.randint(1 << 62, ()))


def dropped_share(p: float) -> float:
    """Return the share of elements that are dropped: `p` in steps of 2^-16.

    Survivors are scaled by 1 / (1 - this), so that dropout keeps the mean exactly.
    """
    return round(p * _LEVELS) / _LEVELS


class KeepFactors:
    """A stream of factors that are 0 with probability `dropped_share(p)` and else 1.

    Args:
        p: Dropout probability, 0 to 1.
        seed: Seed of the stream, see `draw_seed`.
        part: Number of the stream; streams of one seed are independent.
    """

    def __init__(self, p: float, seed: int, part: int = 0) -> None:
        self._bits = np.random.Generator(np.random.SFC64([seed, part]))
        self._lowest_kept = _LOWEST + round(p * _LEVELS)

    def fill(self, out: Tensor) -> Tensor:
        """Write the next factors of the stream.

        Args:
            out: Floating point, on the CPU and contiguous, of any shape.

        Returns:
            `out`.
        """
        count = out.numel()
        word_count = math.ceil(count / _ELEMENTS_OF_A_WORD)
        words = self._bits.integers(0, (1 << 64) - 1, size=word_count, dtype=np.uint64, endpoint=True)
        # Each element gets 16 random bits, read as a whole number with a sign.
        numbers = torch.from_numpy(words.view(np.int16))[:count].view(out.shape)
        # The factor is 1 for numbers from `_lowest_kept` on, and 0 below: number − (lowest − 1), cut to 0 … 1. The
        # numbers are exact in float32, and PyTorch vectorises this arithmetic, but not a comparison.
        if out.dtype in (torch.float32, torch.float64):
            return out.copy_(numbers).sub_(self._lowest_kept - 1).clamp_(0, 1)
        factors = torch.empty(out.shape)
        factors.copy_(numbers).sub_(self._lowest_kept - 1).clamp_(0, 1)
        return out.copy_(factors)


def fast_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Set elements to 0 with probability p and scale the others by 1 / (1 - p), as `torch.nn.functional.dropout` does.

    On a CPU p is rounded to steps of 2^-16, in the scale as well; elsewhere PyTorch's own dropout runs.

    Args:
        x: Any shape, floating point.
        p: Probability, 0 to 1.
        training: False returns `x`.
    """
    if not training or dropped_share(p) == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling() or dropped_share(p) == 1:
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p, draw_seed())
    return dropped


class _Dropout(torch.autograd.Function):
    """Draws its factors again in the backward pass, from their seed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p = p
        ctx.seed = seed
        return _drop(x, p, seed)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # The backward pass is to be differentiated again.
            return _Dropout.apply(upstream, ctx.p, ctx.seed), None, None
        return _drop(upstream, ctx.p, ctx.seed), None, None


def _drop(x: Tensor, p: float, seed: int) -> Tensor:
    """Drop elements by the stream of a seed, and scale the others."""
    factors = KeepFactors(p, seed).fill(torch.empty(x.shape, dtype=x.dtype))
    return factors.mul_(1 / (1 - dropped_share(p))).mul_(x)
