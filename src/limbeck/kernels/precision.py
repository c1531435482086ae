"""In which dtype a loss is computed, and how automatic mixed precision is kept out of it."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return float64 when any of `tensors` is float64, float32 otherwise: no loss is computed in less."""
    return torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32


def autocast_off(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which autocast does not lower the matmuls of a loss on `device`."""
    return torch.autocast(device.type, enabled=False)


def sum_accumulator(device: torch.device) -> Tensor:
    """Return a zero to sum blocks into, float64 where `device` has it: more blocks cost no precision."""
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.zeros((), dtype=dtype, device=device)
