"""Frozen linear maps in bfloat16 by a CPU's matrix unit (Intel's AMX): y = x Wᵀ + b, summed in float32.

oneDNN's product of PyTorch takes a weight of 768 outputs on one thread alone, and fetches a wide token from memory
again for every block of outputs. Here each thread takes some panels of 32 tokens through all outputs. The weight is
laid out once as the unit reads it; `PackedLinear` has it from oneDNN where there is no such unit.
"""

import ctypes
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from limbeck.kernels.compiling import compile_kernel
from limbeck.kernels.workers import Scratch, TeamKernel, divide_work

SOURCE = Path(__file__).with_suffix(".c")
PANEL = 32
"""Tokens of a panel; inputs and outputs are multiples of it."""
TASKS = 6
"""Parts of the work for each thread, so that one that is interrupted does not keep the others waiting."""
_BLOCKS = 2 * PANEL * PANEL
# One for all calls: its pages would take a tenth of a product to map.
_SCRATCH = Scratch()


class _Linear(ctypes.Structure):
    """`linear` of the source."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tokens", "weight", "bias", "out")),
        *((name, ctypes.c_int64) for name in ("token", "count", "inputs", "outputs")),
    )


@lru_cache(maxsize=1)
def kernel() -> TeamKernel | str:
    """Compile the kernel, or find it in the cache; or return why there is none, which is no error."""
    if not torch.cpu._is_amx_tile_supported():
        return "this CPU has no matrix unit (AMX)"
    return compile_kernel(SOURCE, _read, _is_right)


def _read(library: ctypes.CDLL) -> TeamKernel:
    if not library.multiplies_tiles():  # Asking lets the process use them, too.
        raise OSError("the compiler or the system has none")
    return TeamKernel.read(library, "map")


def _is_right(made: TeamKernel) -> bool:
    """Whether the kernel maps as PyTorch does, by a few tokens."""
    x, weight = (torch.arange(rows * 64, device="cpu").view(rows, 64).mul(0.37).sin().bfloat16() for rows in (35, 32))
    found = _map(made, x, lay_out(weight), weight[0, :32].contiguous())
    wanted = torch.nn.functional.linear(x.float(), weight.float(), weight[0, :32].float())
    return bool((found.float() - wanted).abs().max() < 0.01 * wanted.abs().max())


def can_map(weight: Tensor) -> bool:
    """Whether the kernel is there and takes a weight `[out, in]`."""
    fits = weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and not any(x % PANEL for x in weight.shape)
    return fits and not isinstance(kernel(), str)


def lay_out(weight: Tensor) -> Tensor:
    """Lay a weight `[out, in]` out as the unit reads it, `[out / 32, in / 2, 32, 2]`: pairs along the inputs."""
    outputs, inputs = weight.shape
    return weight.view(outputs // PANEL, PANEL, inputs // 2, 2).transpose(1, 2).contiguous()


def plain_weight(laid_out: Tensor) -> Tensor:
    """Make the weight `[out, in]` again that `lay_out` was given."""
    blocks, pairs = laid_out.shape[:2]
    return laid_out.transpose(1, 2).reshape(blocks * PANEL, 2 * pairs)


def tile_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map `[..., in]` to `[..., out]`; without gradient.

    Args:
        x: Activations, bfloat16.
        weight: As `lay_out` returns it, of one that `can_map` takes.
        bias: `[out]`, bfloat16, or None.
    """
    made = kernel()
    assert isinstance(made, TeamKernel)
    tokens = x.reshape(-1, x.shape[-1])
    if tokens.stride(1) != 1:
        tokens = tokens.contiguous()
    return _map(made, tokens, weight, bias).view(*x.shape[:-1], len(weight) * PANEL)


def _map(made: TeamKernel, tokens: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    (count, inputs), outputs = tokens.shape, len(weight) * PANEL
    found = tokens.new_empty(count, outputs)
    parts, panels = _divide(-(-count // PANEL), TASKS * torch.get_num_threads())
    given = _Linear(
        tokens.data_ptr(),
        weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
        found.data_ptr(),
        tokens.stride(0),
        count,
        inputs,
        outputs,
    )
    made.run(given, parts, panels * inputs * PANEL // 2 + _BLOCKS, _SCRATCH)
    return found


@lru_cache(maxsize=64)
def _divide(panels: int, parts: int) -> tuple[Tensor, int]:
    """Divide panels into ranges, and return the length of the longest."""
    ranges = divide_work([1] * panels, parts)
    return ranges, int((ranges[:, 1] - ranges[:, 0]).max()) if panels else 0
