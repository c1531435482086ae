"""In which number format a loss is computed, and what a gradient made in a forward pass cannot give."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from limbeck.errors import KernelError


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


def refuse_second_derivative(objective: str, way_out: str) -> None:
    """Stop a backward pass that is asked to be differentiable, whose result would be silently incomplete.

    Args:
        objective: Which one cannot, as users call it.
        way_out: What to do instead.

    Raises:
        KernelError: if the running backward pass was called with `create_graph=True`.
    """
    if torch.is_grad_enabled():
        raise KernelError(f"{objective} has no second derivative, which create_graph=True asks for; {way_out}.")
