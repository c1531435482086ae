"""What a process that works for another one needs: an end with its parent, and a GPU of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import wait
from threading import Thread

import torch


def settle_worker(threads: int, device: str | None) -> None:
    """Make this process a worker: Ctrl-C is its parent's business, and it ends when its parent does.

    Args:
        threads: Of torch.
        device: The GPU that it sees, as `visible_device` names it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    torch.set_num_threads(threads)
    Thread(target=_end_with_parent, name="end with parent", daemon=True).start()


def visible_device(index: int) -> str | None:
    """Return the one GPU that a worker sees; None where there is none."""
    count = torch.cuda.device_count()
    if count == 0:
        return None
    named = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    names = named or [str(number) for number in range(count)]
    return names[index % count]


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers: they see it go."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
