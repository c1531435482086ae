"""`fast_dropout`: dropout that draws fewer random bits and saves no mask, for training on a CPU.

PyTorch's Bernoulli on a CPU takes 64 serial bits of a Mersenne twister for every element. Here each element takes 16
bits of an SFC64 stream, several times faster. The stream is seeded from PyTorch's own generator: the same
`torch.manual_seed` gives the same factors, and a restored generator state goes on with them. It can be started again
from its seed, so a backward pass needs no saved mask. Where a C compiler is found, a kernel draws the same bits and
scales by them in one pass.
"""

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.kernels.compiling import compile_kernel, read_function

SOURCE = Path(__file__).with_suffix(".c")
_LEVELS = 1 << 16
_LOWEST = -(1 << 15)


def draw_seed() -> int:
    """Draw the seed of a stream from PyTorch's default generator, 0 to 2^62."""
    return int(torch.randint(1 << 62, ()))


def dropped_share(p: float) -> float:
    """The share that a keep factor is 0 for: `p` in steps of 2^-16.

    Survivors are scaled by 1 / (1 - this), so that dropout keeps the mean exactly.
    """
    return round(p * _LEVELS) / _LEVELS


def _stream(seed: int, part: int = 0) -> np.random.SFC64:
    return np.random.SFC64([seed, part])


def _kept_from(p: float) -> int:
    """The number below which bits, read as a signed number, drop an element."""
    return _LOWEST + round(p * _LEVELS)


class KeepFactors:
    """A stream of factors that are 0 with probability `dropped_share(p)` and else 1.

    Args:
        p: Dropout probability, 0 to 1.
        seed: Of the stream, see `draw_seed`.
        part: Number of the stream; streams of one seed are independent.
    """

    def __init__(self, p: float, seed: int, part: int = 0) -> None:
        self._bits = np.random.Generator(_stream(seed, part))
        self._kept_from = _kept_from(p)

    def fill(self, out: Tensor) -> Tensor:
        """Write the next factors of the stream.

        Args:
            out: Floating point, on the CPU and contiguous, of any shape.

        Returns:
            `out`.
        """
        words = self._bits.integers(0, (1 << 64) - 1, size=-(-out.numel() // 4), dtype=np.uint64, endpoint=True)
        bits = torch.from_numpy(words.view(np.int16))[: out.numel()].view(out.shape)
        # Arithmetic on whole numbers, exact in float32, vectorises where a comparison does not.
        wide = out if out.dtype in (torch.float32, torch.float64) else torch.empty(out.shape)
        wide.copy_(bits).sub_(self._kept_from - 1).clamp_(0, 1)
        return out if wide is out else out.copy_(wide)


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
    made = kernel()
    if isinstance(made, str) or x.dtype not in made or type(x) is not Tensor or not x.is_contiguous():
        return _scale_by_pytorch(x, p, seed)
    return _scale(made, x, p, seed)


def _scale_by_pytorch(x: Tensor, p: float, seed: int) -> Tensor:
    factors = KeepFactors(p, seed).fill(torch.empty(x.shape, dtype=x.dtype))
    return factors.mul_(1 / (1 - dropped_share(p))).mul_(x)


class _Draw(ctypes.Structure):
    """`draw` of the source."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "counter")),
        ("kept_from", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


Kernel = Mapping[torch.dtype, Callable[..., None]]
"""The kernel's functions by the format of elements."""


@lru_cache(maxsize=1)
def kernel() -> Kernel | str:
    """Compile the kernel, or find it in the cache; or return why there is none, which is no error."""
    return compile_kernel(SOURCE, _read, _is_right)


def _read(library: ctypes.CDLL) -> Kernel:
    arguments = (ctypes.POINTER(_Draw), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    names = {torch.float32: "drop_float", torch.bfloat16: "drop_half"}
    return {dtype: read_function(library, name, *arguments) for dtype, name in names.items()}


def _is_right(made: Kernel) -> bool:
    """Whether the kernel drops and scales as PyTorch does by the same stream, by some hundred numbers."""
    rows = [torch.arange(1, 300, device="cpu").mul(0.37).to(dtype) for dtype in made]
    return all(torch.equal(_scale(made, x, 0.3, 5), _scale_by_pytorch(x, 0.3, 5)) for x in rows)


def _scale(made: Kernel, x: Tensor, p: float, seed: int) -> Tensor:
    out = torch.empty_like(x)
    scale = torch.tensor(1 / (1 - dropped_share(p)), dtype=x.dtype, device="cpu").item()
    state = [int(word) for word in _stream(seed).state["state"]["state"]]
    made[x.dtype](_Draw(*state, _kept_from(p), scale), x.data_ptr(), out.data_ptr(), x.numel())
    return out
