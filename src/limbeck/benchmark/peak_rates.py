"""Peak rates of a machine, to compare a measurement with: a large matrix product, and a large copy."""

import torch
from torch import nn

from limbeck.core.timing import stopwatch, take_turns
from limbeck.models import packed_linear

# Rows of the square matrices: large enough that more would not be faster, small enough to be done soon.
CPU_SIZE = 1536
DEVICE_SIZE = 8192
COPIED = 2**26
"""Numbers that are copied: more than any cache holds."""


def measure_ceiling(
    device: torch.device, dtype: torch.dtype, *, size: int | None = None, seconds: float = 1.0
) -> float:
    """Measure the operations a second of a square matrix product, which has 2 · size³.

    The fastest pass counts: whatever slows one down is no property of the machine. On a CPU the weights are packed as a
    teacher's are, which is faster than a plain product. Settings of PyTorch that decide how products in float32 are
    computed (TF32) apply as in training.

    Args:
        device: The device that computes.
        dtype: Number format of the matrices.
        size: Rows and columns; None chooses by device.
        seconds: Time for all passes; at least five are made.
    """
    rows = size
    if rows is None:
        rows = CPU_SIZE if device.type == "cpu" else DEVICE_SIZE
    left = torch.randn(rows, rows, device=device).to(dtype)
    linear = nn.Sequential(nn.Linear(rows, rows, bias=False, device=device, dtype=dtype)).requires_grad_(False)
    packed_linear.pack_linear_maps([linear])
    time_product = stopwatch(lambda: linear(left), device)
    times = take_turns({"matmul": time_product}, seconds=seconds)["matmul"]
    return 2 * rows**3 / min(times)


def measure_bandwidth(device: torch.device, *, numbers: int = COPIED, seconds: float = 1.0) -> float:
    """Measure the bytes a second that memory moves, read and written, in a copy of float32; the fastest pass counts.

    Args:
        device: The device with the memory.
        numbers: Number of numbers that are copied.
        seconds: Time for all passes; at least five are made.
    """
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    time_copy = stopwatch(lambda: target.copy_(source), device)
    times = take_turns({"copy": time_copy}, seconds=seconds)["copy"]
    # Each number is read and written.
    bytes_moved = 2 * source.element_size() * numbers
    return bytes_moved / min(times)
