"""The process's own memory: pages that a training step frees stay mapped for the next one."""

from __future__ import annotations

import contextlib
import ctypes
import sys

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The largest numbers that a C int holds in whole megabytes, and what older versions of glibc allow.
_UNLIMITED = 2047 << 20
_OLD_LIMIT = 32 << 20


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed, so that the same large tensors of every step cost no new pages.

    By default glibc gives large blocks back to the system at once and takes them anew, and the system clears every page
    again: a tenth to a quarter of a training step on a CPU. The highest memory of the process stays as it was. It
    holds for the whole process; environment variables of malloc that the user has set are overridden.

    Returns:
        Whether the system's malloc could be told; False where it is not glibc's.
    """
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        limit = _UNLIMITED if mallopt(_M_MMAP_THRESHOLD, _UNLIMITED) else _OLD_LIMIT
        return bool(mallopt(_M_MMAP_THRESHOLD, limit) and mallopt(_M_TRIM_THRESHOLD, _UNLIMITED))
    return False
