"""Peak rates of a machine: the operations a second of a large matrix product, and the bytes a second of a large copy.

A step of training is compared with them: no product or copy in it can be faster.
"""

import torch
from torch import nn

from limbeck.core.timing import stopwatch, take_turns
from limbeck.models import packed_linear

# Rows of the square matrices. Larger ones would not be multiplied at a higher rate, and would take longer.
CPU_SIZE = 1536
DEVICE_SIZE = 8192
COPIED = 2**26
"""Number of float32 numbers that are copied, 256 MiB, which is more than any cache holds."""


def measure_ceiling(
    device: torch.device, dtype: torch.dtype, *, size: int | None = None, seconds: float = 1.0
) -> float:
    """Measure the operations a second of the product of two square matrices.

    A product has 2 · size³ operations. The fastest pass counts, since slower ones are slow for reasons outside of the
    product, such as other programs. On a CPU the weights are packed like those of a teacher, which is faster than a
    plain product. PyTorch's settings for products in float32 (TF32) apply as in training.

    Args:
        device: The device that computes.
        dtype: Number format of the matrices.
        size: Rows and columns of the matrices; None chooses by device.
        seconds: Time for all passes; at least five are made.
    """
    if size is None:
        size = CPU_SIZE if device.type == "cpu" else DEVICE_SIZE
    left = torch.randn(size, size, device=device).to(dtype)
    # Packing replaces the linear maps inside of a module, so the map is wrapped into one.
    linear = nn.Sequential(nn.Linear(size, size, bias=False, device=device, dtype=dtype)).requires_grad_(False)
    packed_linear.pack_linear_maps([linear])
    time_product = stopwatch(lambda: linear(left), device)
    times = take_turns({"matmul": time_product}, seconds=seconds)["matmul"]
    return 2 * size**3 / min(times)


def measure_bandwidth(device: torch.device, *, numbers: int = COPIED, seconds: float = 1.0) -> float:
    """Measure the bytes a second that are read and written in a copy of float32 numbers; the fastest pass counts.

    Args:
        device: The device with the memory.
        numbers: How many numbers are copied.
        seconds: Time for all passes; at least five are made.
    """
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    time_copy = stopwatch(lambda: target.copy_(source), device)
    times = take_turns({"copy": time_copy}, seconds=seconds)["copy"]
    # Each number is read and written.
    bytes_moved = 2 * source.element_size() * numbers
    return bytes_moved / min(times)
