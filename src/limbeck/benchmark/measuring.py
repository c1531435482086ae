"""Bounds of a measurement: the machine's peak rates (a roofline), peak memory, and sizes too large to be measured.

Peak memory is that of an accelerator's allocator, or on a CPU the resident size of a process that does nothing else.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn

from limbeck.core.machine import peak_memory_bytes, release_freed_memory, synchronise
from limbeck.core.timing import stopwatch, take_turns
from limbeck.core.workers import Send, run_tasks
from limbeck.errors import RecipeError
from limbeck.models.families import Shape
from limbeck.models.packing import pack_linear_maps

# Rows of the square matrices: large enough that more would not be faster, small enough to be done soon.
CPU_SIZE, DEVICE_SIZE = 1536, 8192
# Numbers that are copied: more than any cache holds.
COPIED = 1 << 26


def measure_ceiling(
    device: torch.device, dtype: torch.dtype, *, size: int | None = None, seconds: float = 1.0
) -> float:
    """Measure the operations a second of a square matrix product, which has 2 · size³.

    The fastest pass counts: whatever slows one down is no property of the machine. On a CPU the weights are packed as a
    teacher's are, which is faster than a plain product. Settings of PyTorch that decide how products in float32 are
    computed (TF32) apply as in training.

    Args:
        device: Where.
        dtype: Of the matrices.
        size: Rows and columns; None chooses by device.
        seconds: For all passes; at least three are made.
    """
    rows = size or (CPU_SIZE if device.type == "cpu" else DEVICE_SIZE)
    left = torch.randn(rows, rows, device=device).to(dtype)
    linear = nn.Sequential(nn.Linear(rows, rows, bias=False, device=device, dtype=dtype)).requires_grad_(False)
    pack_linear_maps([linear])
    run = stopwatch(lambda: linear(left), device)
    fastest = min(take_turns({"matmul": run}, seconds=seconds)["matmul"])
    return 2 * rows**3 / fastest


def measure_bandwidth(device: torch.device, *, numbers: int = COPIED, seconds: float = 1.0) -> float:
    """Measure the bytes a second that memory moves, read and written, in a copy of float32; the fastest pass counts.

    Args:
        device: Whose memory.
        numbers: How many are copied.
        seconds: For all passes; at least three are made.
    """
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    run = stopwatch(lambda: target.copy_(source), device)
    return 2 * source.element_size() * numbers / min(take_turns({"copy": run}, seconds=seconds)["copy"])


BYTES_PER_MEGABYTE = 1_000_000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Peak:
    """The highest memory while something ran, in megabytes (10⁶ bytes); None where it could not be had.

    Attributes:
        total_mb: On a CPU of the whole process, on an accelerator of all tensors.
        extra_mb: Above what was held before.
        note: Why it could not be had; else empty.
    """

    total_mb: float | None = None
    extra_mb: float | None = None
    note: str = ""


def watch_peak(run: Callable[[], object], device: torch.device) -> Peak:
    """Run something once and return the highest memory meanwhile.

    On a CPU it is exact in a fresh process; see `peak_of`. An accelerator other than CUDA gives none.
    """
    if device.type == "cuda":
        synchronise(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        synchronise(device)
        return _peak(before, torch.cuda.max_memory_allocated(device))
    if device.type != "cpu":
        run()
        return Peak(note=f"the peak memory of {device.type} cannot be read")
    release_freed_memory()
    # Linux counts the highest resident size anew, since making the inputs may have taken more. Where a sandbox forbids
    # it, the highest size is that since the start.
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")
    before = psutil.Process().memory_info().rss
    run()
    return _peak(before, _highest_resident())


def peak_of(measure: Callable[[], Peak], device: torch.device) -> Peak:
    """Measure a peak; on a CPU in its own process, which leaves out what this one holds.

    Args:
        measure: Measures it: a function of a module, or a partial one, since the process starts from scratch.
        device: Where.
    """
    if device.type != "cpu":
        return measure()
    found: list[Peak] = []
    run_tasks(
        _send_peak, [measure], workers=1, received=lambda _, peak: found.append(peak),
        ended=lambda _, problem: found.append(Peak(note=f"memory: {problem}"[:168])),
    )  # fmt: skip
    return found[0]


def _send_peak(measure: Callable[[], Peak], send: Send) -> None:
    send(measure())


def _peak(before: int, highest: int) -> Peak:
    return Peak(highest / BYTES_PER_MEGABYTE, max(0, highest - before) / BYTES_PER_MEGABYTE)


def _highest_resident() -> int:
    """Highest resident size of this process in bytes.

    On Linux `getrusage` would also count what the parent held when it started this process.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes()


LONGEST = 131_072
"""Tokens of a text where no saved model says how many it takes; more than any encoder here does."""


def check_length(option: str, lengths: Iterable[int]) -> None:
    """Refuse texts longer than `LONGEST` tokens.

    Args:
        option: That gave them, for the message.
        lengths: In tokens.

    Raises:
        RecipeError: naming the longest.
    """
    longest = max(lengths)
    if longest > LONGEST:
        raise RecipeError(
            f"{option} {longest} is more than the {LONGEST} tokens that a text may have here; use {LONGEST} or less."
        )


def check_memory(options: str, least_bytes: float, device: torch.device) -> None:
    """Refuse what cannot fit into the free memory of a device.

    Args:
        options: That ask for it, with their values, for the message.
        least_bytes: A lower bound of its memory.
        device: Where.

    Raises:
        RecipeError: with both amounts.
    """
    free = free_bytes(device)
    if least_bytes > free:
        raise RecipeError(
            f"{options} take at least {least_bytes / 1e9:,.0f} GB of memory, and {free / 1e9:,.0f} GB of {device.type} "
            "memory are free; use smaller numbers."
        )


def free_bytes(device: torch.device) -> float:
    """Return the free memory of a device; infinity where it does not tell."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(psutil.virtual_memory().available) if device.type == "cpu" else math.inf


def least_forward_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return what a forward pass holds at once at the very least: input and intermediate of one block."""
    return tokens * (shape.ffn + 2 * shape.hidden) * itemsize


def least_training_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return what a backward pass needs of the forward pass at the very least.

    That is of every block its intermediate, and the inputs of its four matrix products with one of its attention.
    """
    return shape.layers * tokens * (shape.ffn + 4 * shape.hidden) * itemsize
