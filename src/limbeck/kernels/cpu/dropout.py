"""Dropout by a kernel in C that draws a stream's bits and scales by them in one pass."""

import ctypes
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from limbeck.kernels.cpu.compiling import compile_kernel, read_function
from limbeck.kernels.keep_factors import dropped_share, kept_from, scale_by_factors, stream

SOURCE = Path(__file__).with_suffix(".c")


class _Draw(ctypes.Structure):
    """`draw` of the source."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "counter")),
        ("kept_from", ctypes.c_int32),
        ("scale", ctypes.c_float),
    )


Kernel = Mapping[torch.dtype, Callable[..., None]]
"""The functions of the kernel by the format of elements."""


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
    return all(torch.equal(drop(made, x, 0.3, 5), scale_by_factors(x, 0.3, 5)) for x in rows)


def drop(made: Kernel, x: Tensor, p: float, seed: int) -> Tensor:
    """Drop and scale by the kernel, as `scale_by_factors` does; `x` is contiguous, in one of the kernel's formats."""
    out = torch.empty_like(x)
    scale = torch.tensor(1 / (1 - dropped_share(p)), dtype=x.dtype, device="cpu").item()
    state = [int(word) for word in stream(seed).state["state"]["state"]]
    made[x.dtype](_Draw(*state, kept_from(p), scale), x.data_ptr(), out.data_ptr(), x.numel())
    return out
