"""`fast_gelu`: GELU in bfloat16 on a CPU by tables of all values and slopes, compiled where a C compiler is found.

A number in bfloat16 is one of 65,536, and of activations nearly all are among some 3,000, whose values stay in the
nearest cache. So each is read from a table that PyTorch's own GELU made, instead of computed: the result and the
gradient are PyTorch's bit for bit, but for subnormal numbers (below 1.2e-38), which may become 0.
"""

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.compiling import compile_kernel
from limbeck.kernels.workers import Scratch, TeamKernel, as_pairs

SOURCE = Path(__file__).with_suffix(".c")
SHORTEST = 1 << 14
"""Numbers from which starting the kernel pays."""
_PLAIN = (Tensor, torch.nn.Parameter)
# Numbers that a thread takes at once.
_PIECE = 1 << 15
_SCRATCH = Scratch()


class _Lookup(ctypes.Structure):
    """`lookup` of the source."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("x", "table", "upstream", "out"))


@lru_cache(maxsize=1)
def kernel() -> TeamKernel | str:
    """Compile the kernel, or find it in the cache; or return why there is none, which is no error."""
    return compile_kernel(SOURCE, _read, _is_right)


def _read(library: ctypes.CDLL) -> TeamKernel:
    return TeamKernel.read(library, "look_up")


def _is_right(made: TeamKernel) -> bool:
    """Whether the kernel finds PyTorch's values and slopes, by a few numbers."""
    x, upstream = torch.arange(37).sub(18).mul(0.37).bfloat16(), torch.arange(37).sin().bfloat16()
    values, slopes = _tables("none")
    gradient = torch.ops.aten.gelu_backward(upstream, x)
    return torch.equal(_look_up(made, x, values), F.gelu(x)) and torch.equal(
        _look_up(made, x, slopes, upstream), gradient
    )


@lru_cache
def _tables(approximate: str) -> tuple[Tensor, Tensor]:
    """Make the tables of values and of slopes, float32 `[65536]`, by the bits of a number."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    with torch.no_grad():
        slopes = torch.ops.aten.gelu_backward(torch.ones(1 << 16), x.float(), approximate=approximate)
        return F.gelu(x, approximate=approximate).float(), slopes


def _look_up(made: TeamKernel, x: Tensor, table: Tensor, upstream: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x)
    given = _Lookup(x.data_ptr(), table.data_ptr(), None if upstream is None else upstream.data_ptr(), out.data_ptr())
    made.run(given, _divide(x.numel()), 0, _SCRATCH)
    return out


@lru_cache(maxsize=64)
def _divide(numbers: int) -> Tensor:
    return as_pairs([(first, min(first + _PIECE, numbers)) for first in range(0, numbers, _PIECE)])


def fast_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Compute GELU, x · Φ(x), as `torch.nn.functional.gelu` does.

    Args:
        x: Any shape. PyTorch's own runs where it is not in bfloat16, dense and on a CPU, or is short.
        approximate: "none", or "tanh" for the approximation of that name.
    """
    if x.dtype == torch.bfloat16 and x.device.type == "cpu" and _is_plain(x) and isinstance(kernel(), TeamKernel):
        found: Tensor = _Gelu.apply(x, approximate)
        return found
    return F.gelu(x, approximate=approximate)


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor is memory that a kernel can read, and long enough for it."""
    transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return x.numel() >= SHORTEST and not transformed and type(x) in _PLAIN and x.is_contiguous()


class _Gelu(torch.autograd.Function):
    """Keeps what GELU was given, as PyTorch's does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, approximate: str) -> Tensor:
        made = kernel()
        assert isinstance(made, TeamKernel)
        ctx.save_for_backward(x)
        ctx.made, ctx.approximate = made, approximate
        return _look_up(made, x, _tables(approximate)[0])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        # PyTorch's has a gradient of its own, and takes any tensor.
        if torch.is_grad_enabled() or not _is_plain(upstream):
            gradient: Tensor = torch.ops.aten.gelu_backward(upstream, x, approximate=ctx.approximate)
            return gradient, None
        return _look_up(ctx.made, x, _tables(ctx.approximate)[1], upstream), None
