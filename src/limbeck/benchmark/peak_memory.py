"""Peak memory of a computation.

On a GPU, PyTorch's allocator counts it. On a CPU it is the highest *resident size* (the memory that a process holds),
for which the computation runs in a process of its own.
"""

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
"""Most letters of a note; longer ones are cut."""
_STATUS = Path("/proc/self/status")
"""File of Linux with facts about this process, `VmHWM` among them: its highest resident size."""
_CLEAR = Path("/proc/self/clear_refs")
"""File of Linux that takes commands about the memory of this process."""
_RESET_PEAK = "5"
"""Command for `clear_refs`: forget the highest resident size, and count it anew from here."""


@dataclass(frozen=True)
class Peak:
    """The highest memory while something ran, in megabytes (10⁶ bytes); None where it could not be measured.

    Attributes:
        total_mb: Memory of the whole process on a CPU; memory of all tensors on an accelerator.
        extra_mb: The part of it above the memory that was held before.
        note: The reason why it could not be measured; empty where it was.
    """

    total_mb: float | None = None
    extra_mb: float | None = None
    note: str = ""


def watch_peak(run: Callable[[], object], device: torch.device) -> Peak:
    """Run something once, and return the highest memory that was held meanwhile.

    On a CPU this is exact only in a fresh process, see `peak_of`: a process that has freed memory may use it again
    without growing. Accelerators other than CUDA do not tell their peak.
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
    # Making the inputs may have taken more memory than the computation does, so Linux is told to count anew. Where a
    # sandbox forbids it, the highest size since the start of the process is taken.
    with suppress(OSError):
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    before = psutil.Process().memory_info().rss
    run()
    return _peak(before, _highest_resident())


def peak_of(measure: Callable[[], Peak], device: torch.device) -> Peak:
    """Call a function that measures a peak; on a CPU in a new process, which holds none of this process's memory.

    Args:
        measure: A function that calls `watch_peak`. It is sent to the other process, so it has to be a function of a
            module, or a `functools.partial` of one.
        device: The device that computes.

    Returns:
        The peak; one with a note alone where the process failed, for example since memory ran out.
    """
    if device.type != "cpu":
        return measure()
    measured_peaks: list[Peak] = []
    problems: list[object] = []

    def receive(task: object, peak: Peak) -> None:
        measured_peaks.append(peak)

    def end(task: object, problem: object) -> None:
        problems.append(problem)

    # The process sends its peak to `receive`. `end` is called behind it in any case, after a success with None.
    run_tasks(_send_peak, [measure], workers=1, received=receive, ended=end)
    if measured_peaks:
        return measured_peaks[0]
    return Peak(note=f"memory: {problems[0]}"[:_LONGEST_NOTE])


def _send_peak(measure: Callable[[], Peak], send: Send) -> None:
    """Measure a peak in the new process, and send it to the process that asked for it."""
    send(measure())


def _peak(before: int, highest: int) -> Peak:
    """Return a peak in megabytes.

    Args:
        before: Bytes that were held before.
        highest: Most bytes that were held.
    """
    extra = max(0, highest - before)
    return Peak(total_mb=highest / BYTES_PER_MEGABYTE, extra_mb=extra / BYTES_PER_MEGABYTE)


def _highest_resident() -> int:
    """Return the highest resident size of this process in bytes."""
    # On Linux, `getrusage` would also count what the parent process held when it started this one.
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            # The line has the form `VmHWM:  123456 kB`, in units of 1024 bytes.
            if line.startswith("VmHWM:"):
                kibibytes = int(line.split()[1])
                return kibibytes * 1024
    return peak_memory_bytes()
