"""Memory of this process: what malloc keeps, and the highest use so far."""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Any

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Blocks below 64 MiB stay, at most 2 GiB of them. Larger ones would leave gaps that nothing fits into.
_LARGEST_KEPT_BLOCK = 64 << 20
_MOST_KEPT = 2047 << 20
# The largest block that older versions of glibc allow.
_OLD_LIMIT = 32 << 20


def keep_freed_memory() -> bool:
    """Let malloc keep freed memory, so that the large tensors of every step get the same pages again.

    By default glibc returns large blocks to the system as soon as they are freed. The system clears every page before
    it hands it out again, which takes a tenth of a training step on a CPU and a quarter of some kernels. Blocks of
    64 MiB and more are still returned. The setting is for the whole process, and overrides malloc's environment
    variables.

    Returns:
        Whether it was set; False where the system's malloc is not glibc's.
    """
    mallopt = _c_function("mallopt")
    if mallopt is None:
        return False
    # It returns 1 for a value that it takes, else 0.
    takes_size = mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BLOCK)
    if not takes_size:
        # An older version of glibc takes smaller blocks only.
        takes_size = mallopt(_M_MMAP_THRESHOLD, _OLD_LIMIT)
    if not takes_size:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT))


def release_freed_memory() -> None:
    """Return freed memory to the system, so that a measurement that follows shows all memory that its code takes."""
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)


def peak_memory_bytes() -> int:
    """Highest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts it in bytes, Linux in KiB.
    if sys.platform == "darwin":
        return peak
    return peak * 1024


def peak_device_memory_bytes() -> int | None:
    """Highest memory allocated on the accelerator, or None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    return torch.cuda.max_memory_allocated()


def _c_function(name: str) -> Any:
    """Return a function of the C library, or None where there is none of that name."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
