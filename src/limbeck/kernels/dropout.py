"""`fast_dropout`: dropout that draws fewer random bits and saves no mask, for training on a CPU.

A backward pass draws its factors again from their seed, see `keep_factors.py`, so that no mask is saved. Where a C
compiler is found, a kernel draws the same bits and scales by them in one pass.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.cpu import dropout as cpu_dropout
from limbeck.kernels.keep_factors import draw_seed, dropped_share, scale_by_factors


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
        ctx.p, ctx.seed = p, seed
        return _scaled(x, p, seed)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # It is differentiated again.
            return _Dropout.apply(upstream, ctx.p, ctx.seed), None, None
        return _scaled(upstream, ctx.p, ctx.seed), None, None


def _scaled(x: Tensor, p: float, seed: int) -> Tensor:
    made = cpu_dropout.kernel()
    if isinstance(made, str) or x.dtype not in made or type(x) is not Tensor or not x.is_contiguous():
        return scale_by_factors(x, p, seed)
    return cpu_dropout.drop(made, x, p, seed)
