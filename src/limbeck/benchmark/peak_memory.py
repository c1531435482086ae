"""Peak memory: of an accelerator's allocator, or on a CPU the resident size of a process that does nothing else."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from limbeck.core.devices import synchronise
from limbeck.core.memory import peak_memory_bytes, release_freed_memory
from limbeck.core.workers import Send, run_tasks

BYTES_PER_MEGABYTE = 1_000_000
_LONGEST_NOTE = 168
"""Letters of a note."""
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Written into `clear_refs`, it has Linux count the highest resident size of the process anew."""


@dataclass(frozen=True)
class Peak:
    """The highest memory while something ran, in megabytes (10⁶ bytes); None where it could not be had.

    Attributes:
        total_mb: Memory of the whole process on a CPU, of all tensors on an accelerator.
        extra_mb: The part of it above the memory that was held before.
        note: The reason why it could not be had; else empty.
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
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    before = psutil.Process().memory_info().rss
    run()
    return _peak(before, _highest_resident())


def peak_of(measure: Callable[[], Peak], device: torch.device) -> Peak:
    """Measure a peak; on a CPU in its own process, which leaves out what this one holds.

    Args:
        measure: Measures it: a function of a module, or a partial one, since the process starts from scratch.
        device: The device that computes.
    """
    if device.type != "cpu":
        return measure()
    peaks: list[Peak] = []

    def receive(task: object, peak: Peak) -> None:
        peaks.append(peak)

    def end(task: object, problem: object) -> None:
        peaks.append(Peak(note=f"memory: {problem}"[:_LONGEST_NOTE]))

    run_tasks(_send_peak, [measure], workers=1, received=receive, ended=end)
    return peaks[0]


def _send_peak(measure: Callable[[], Peak], send: Send) -> None:
    """Measure a peak in a process of its own, and send it."""
    send(measure())


def _peak(before: int, highest: int) -> Peak:
    """Return a peak, given bytes."""
    extra = max(0, highest - before)
    return Peak(total_mb=highest / BYTES_PER_MEGABYTE, extra_mb=extra / BYTES_PER_MEGABYTE)


def _highest_resident() -> int:
    """Return the highest resident size of this process in bytes.

    On Linux `getrusage` would also count what the parent held when it started this process.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            # Such as `VmHWM:  123456 kB`.
            if line.startswith("VmHWM:"):
                kibibytes = int(line.split()[1])
                return kibibytes * 1024
    return peak_memory_bytes()
