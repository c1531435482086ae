"""Linear maps in bfloat16 by a CPU's matrix unit (Intel's AMX), frozen or trained: y = x Wᵀ + b, summed in float32.

oneDNN's product of PyTorch is no faster on two threads than on one for a weight of 768 outputs, and the gradient of a
weight is rounded to bfloat16. Here each thread takes some panels of 32 tokens through all outputs, a weight is laid out
as the unit reads it, and its gradient stays in float32. All else is PyTorch's: other formats, and sizes that are no
multiples of 32.
"""

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from limbeck.kernels.compiling import compile_kernel
from limbeck.kernels.precision import is_batched
from limbeck.kernels.workers import Scratch, TeamKernel, divide_work

SOURCE = Path(__file__).with_suffix(".c")
PANEL = 32
"""Rows of a panel and columns of a block; inputs and outputs are multiples of it."""
CACHED = 1 << 20
"""Bytes of a left operand that a thread keeps in its core's cache."""
TASKS = 4
"""Parts for each thread, so that a slow or interrupted one holds up less; each part reads the whole right operand."""
_BLOCKS = 2 * PANEL * PANEL
_PAIR = 2
# One for all calls: its pages would take a tenth of a product to map.
_SCRATCH = Scratch()


class Kernel(NamedTuple):
    """The functions of the source."""

    lay_rows: TeamKernel
    lay_columns: TeamKernel
    multiply_panels: TeamKernel


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "columns", "row", "wide")),
    )

    @classmethod
    def of(cls, tensor: Tensor) -> "_Matrix":
        """Describe `[rows, columns]`, float32 or bfloat16, whose memory the caller keeps."""
        return cls(tensor.data_ptr(), *tensor.shape, tensor.stride(0), tensor.dtype == torch.float32)


class _Product(ctypes.Structure):
    _fields_ = (
        ("left", _Matrix),
        *((name, ctypes.c_void_p) for name in ("right", "bias", "out")),
        *((name, ctypes.c_int64) for name in ("outputs", "turned")),
    )


class _Layout(ctypes.Structure):
    _fields_ = (("matrix", _Matrix), ("to", ctypes.c_void_p))


@lru_cache(maxsize=1)
def kernel() -> Kernel | str:
    """Compile the kernel, or find it in the cache; or return why there is none, which is no error."""
    if not torch.cpu._is_amx_tile_supported():
        return "this CPU has no matrix unit (AMX)"
    return compile_kernel(SOURCE, _read, lambda made: isinstance(made, str) or _is_right(made))


def _read(library: ctypes.CDLL) -> Kernel | str:
    if not library.multiplies_tiles():  # Asking lets the process use them, too.
        return "the compiler or the system does not know this CPU's matrix unit (AMX)"
    return Kernel(*(TeamKernel.read(library, name) for name in Kernel._fields))


def _is_right(made: Kernel) -> bool:
    """Whether the kernel maps, and gives the gradients, as PyTorch does, by a few tokens."""
    x, weight, upstream = (
        torch.arange(rows * columns, device="cpu").view(rows, columns).mul(0.37).sin().bfloat16()
        for rows, columns in ((35, 64), (32, 64), (35, 32))
    )
    bias = weight[0, :PANEL].contiguous()
    mapped, of_x, of_weight = (x.new_full(size, torch.nan) for size in ((35, 32), (35, 64), (32, 64)))
    found = (
        _map(made, x, _lay_rows(made, weight), bias, mapped),
        _map(made, upstream, _lay_columns(made, weight), None, of_x),
        _gather(made, upstream, x, of_weight.float()),
    )
    wide, rows, over = x.float(), weight.float(), upstream.float()
    wanted = (F.linear(wide, rows, bias.float()), over @ rows, over.T @ wide)
    return all(bool((a.float() - b).abs().max() < 0.01 * b.abs().max()) for a, b in zip(found, wanted, strict=True))


def can_map(weight: Tensor) -> bool:
    """Whether the kernel is there and takes a frozen weight `[out, in]`."""
    return weight.dtype == torch.bfloat16 and _fits(weight) and not isinstance(kernel(), str)


def lay_out(weight: Tensor) -> Tensor:
    """Lay a weight that `can_map` takes out as the unit reads it, `[out / 32, in / 2, 32, 2]`: pairs of inputs."""
    return _lay_rows(_kernel(), weight)


def plain_weight(laid_out: Tensor) -> Tensor:
    """Make the weight `[out, in]` again that `lay_out` was given."""
    blocks, pairs = laid_out.shape[:2]
    return laid_out.transpose(1, 2).reshape(blocks * PANEL, _PAIR * pairs)


def can_read(x: Tensor, weight: Tensor) -> bool:
    """Whether `tile_linear`, which checks nothing, takes activations `[..., in]` for a weight laid out."""
    return x.dtype == torch.bfloat16 and x.shape[-1] == _PAIR * weight.shape[1] and _is_plain(x)


def tile_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map `[..., in]` to `[..., out]` by a frozen weight; without gradient.

    Args:
        x: Activations that `can_read` takes.
        weight: As `lay_out` returns it.
        bias: `[out]`, bfloat16 and dense, or None.
    """
    return _map(_kernel(), _rows(x), weight, bias).view(*x.shape[:-1], weight.shape[0] * PANEL)


def trained_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map `[..., in]` to `[..., out]` as `torch.nn.functional.linear`, with gradients.

    The kernel computes where bfloat16 is asked for, by autocast or by both operands, and its gradient of a float32
    weight is not rounded to bfloat16; elsewhere, and where gradients are differentiated again, PyTorch computes.

    Args:
        x: Activations.
        weight: `[out, in]`.
        bias: `[out]`, or None.
    """
    autocast = torch.is_autocast_enabled("cpu")
    formats = {torch.get_autocast_dtype("cpu")} if autocast else {x.dtype, weight.dtype}
    if formats != {torch.bfloat16} or not _takes(x, weight, bias):
        return F.linear(x, weight, bias)
    mapped: Tensor = _TileLinear.apply(x.bfloat16(), weight, None if bias is None else bias.bfloat16().contiguous())
    return mapped


def _takes(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    formats = (torch.float32, torch.bfloat16)
    if x.dtype not in formats or weight.dtype not in formats or type(weight) not in (Tensor, nn.Parameter):
        return False
    fits = x.numel() > 0 and x.shape[-1] == weight.shape[-1] and _fits(weight)
    given = [x, weight, *([] if bias is None else [bias])]
    if not fits or any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in given):
        return False
    return _is_plain(x) and (bias is None or (bias.shape == weight.shape[:1] and bias.device.type == "cpu"))


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor has memory on the CPU that a kernel can read, and there is one."""
    if torch.compiler.is_compiling() or type(x) is not Tensor or x.device.type != "cpu" or is_batched(x):
        return False
    return not isinstance(kernel(), str)


def _fits(weight: Tensor) -> bool:
    return weight.dim() == 2 and weight.device.type == "cpu" and not any(size % PANEL for size in weight.shape)


class _TileLinear(torch.autograd.Function):
    """Lays the weight out in each direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        # Of a view autograd would forbid operations in place.
        found = x.new_empty(*x.shape[:-1], weight.shape[0])
        _map(_kernel(), _rows(x), _lay_rows(_kernel(), weight), bias, found.view(-1, weight.shape[0]))
        return found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled() or is_batched(upstream):  # It is differentiated again, or many times at once.
            return _differentiate(x, weight, upstream, wanted)
        made, rows = _kernel(), _rows(upstream)
        of_x = _map(made, rows, _lay_columns(made, weight), None).view(x.shape) if wanted[0] else None
        of_weight = _gather(made, rows, _rows(x)).to(weight.dtype) if wanted[1] else None
        return of_x, of_weight, rows.sum(0) if wanted[2] else None


def _differentiate(
    x: Tensor, weight: Tensor, upstream: Tensor, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients by PyTorch's own operations."""
    rows = upstream.reshape(-1, upstream.shape[-1])
    return (
        upstream @ weight.to(upstream.dtype) if wanted[0] else None,
        (rows.transpose(0, 1) @ x.reshape(-1, x.shape[-1])).to(weight.dtype) if wanted[1] else None,
        rows.sum(0) if wanted[2] else None,
    )


def _kernel() -> Kernel:
    made = kernel()
    assert isinstance(made, Kernel), made
    return made


def _rows(x: Tensor) -> Tensor:
    """Return `[..., columns]` as `[rows, columns]` whose rows are dense."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _lay_rows(made: Kernel, weight: Tensor) -> Tensor:
    """Lay a weight `[out, in]` out for maps of its inputs, `[out / 32, in / 2, 32, 2]`."""
    outputs, inputs = weight.shape
    return _lay_out(made.lay_rows, weight, outputs // PANEL, inputs)


def _lay_columns(made: Kernel, rows: Tensor) -> Tensor:
    """Lay `[count, columns]` out to be summed over rows, `[columns / 32, count / 2, 32, 2]`, 0 to whole panels."""
    count, columns = rows.shape
    return _lay_out(made.lay_columns, rows, columns // PANEL, -(-count // PANEL) * PANEL)


def _lay_out(function: TeamKernel, matrix: Tensor, blocks: int, summed: int) -> Tensor:
    matrix = _rows(matrix.detach())
    found = matrix.new_empty(blocks, summed // _PAIR, PANEL, _PAIR, dtype=torch.bfloat16)
    parts, _ = _divide(blocks, torch.get_num_threads())
    function.run(_Layout(_Matrix.of(matrix), found.data_ptr()), parts, 0, _SCRATCH)
    return found


def _map(made: Kernel, rows: Tensor, right: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    """Multiply rows `[count, K]` by a right operand: bfloat16 `[count, out]`."""
    found = rows.new_empty(rows.shape[0], right.shape[0] * PANEL) if out is None else out
    return _multiply(made, rows, right, bias, found, turned=False)


def _gather(made: Kernel, upstream: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Sum the outer products of rows: float32 `[out, in]` of `[count, out]` and `[count, in]`."""
    found = rows.new_empty(upstream.shape[1], rows.shape[1], dtype=torch.float32) if out is None else out
    return _multiply(made, upstream, _lay_columns(made, rows), None, found, turned=True)


def _multiply(made: Kernel, left: Tensor, right: Tensor, bias: Tensor | None, out: Tensor, *, turned: bool) -> Tensor:
    """Write the product of `left` with a right operand to `out`; `turned`: of its transpose, in float32."""
    pointers = (right.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr())
    given = _Product(_Matrix.of(left), *pointers, out.shape[1], turned)
    size = right.shape[1] * _PAIR * PANEL // 2
    panels, threads = -(-out.shape[0] // PANEL), torch.get_num_threads()
    most = max(1, CACHED // (4 * size))
    parts, longest = _divide(panels, max(-(-panels // most), TASKS * threads))
    made.multiply_panels.run(given, parts, longest * size + _BLOCKS, _SCRATCH)
    return out


@lru_cache(maxsize=64)
def _divide(count: int, parts: int) -> tuple[Tensor, int]:
    """Divide panels or blocks into ranges, and return the length of the longest."""
    ranges = divide_work([1] * count, parts)
    return ranges, int((ranges[:, 1] - ranges[:, 0]).max()) if count else 0
