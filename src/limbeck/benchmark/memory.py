"""Peak memory: by an accelerator's allocator, or on a CPU as the resident size of a process that does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from limbeck.core.machine import peak_memory_bytes, release_freed_memory, synchronise

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

    On a CPU it is exact in a fresh process; see `peak_in_child`. An accelerator other than CUDA gives none.
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
    _forget_highest()
    before = psutil.Process().memory_info().rss
    run()
    return _peak(before, _highest_resident())


def peak_in_child(task: str, spec: Mapping[str, Any]) -> Peak:
    """Measure a peak on a CPU in a process of its own, which leaves out what this one holds.

    Args:
        task: What `limbeck.benchmark.child` measures: `"loss"` or `"step"`.
        spec: What it is measured for, fit for JSON.
    """
    command = [sys.executable, "-m", "limbeck.benchmark.child", task]
    request = json.dumps({"spec": dict(spec), "threads": torch.get_num_threads()})
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return Peak(**json.loads(done.stdout.splitlines()[-1]))
    if done.returncode == -9:
        return Peak(note="the process that measures memory was killed: it needs more than there is")
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return Peak(note=f"memory: {last[:160]}")


def peak_as_json(peak: Peak) -> str:
    """Return what `peak_in_child` reads, on one line."""
    return json.dumps(asdict(peak))


def _peak(before: int, highest: int) -> Peak:
    return Peak(highest / BYTES_PER_MEGABYTE, max(0, highest - before) / BYTES_PER_MEGABYTE)


def _forget_highest() -> None:
    """Let Linux count the highest resident size anew: making the inputs may have taken more."""
    if _CLEAR.exists():
        try:
            _CLEAR.write_text("5", encoding="ascii")
        except OSError:  # A sandbox may forbid it; the highest size is then that since the start.
            return


def _highest_resident() -> int:
    """Highest resident size of this process in bytes.

    On Linux `getrusage` would also count what the parent held when it started this process.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes()
