"""The number format that a loss is computed in, and losses whose gradient is made in the forward pass."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from limbeck.errors import KernelError


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Return float64 when any of `tensors` is float64, float32 otherwise: no loss is computed in less."""
    has_float64 = any(x.dtype == torch.float64 for x in tensors)
    return torch.float64 if has_float64 else torch.float32


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
        objective: The objective, as users call it.
        way_out: What to do instead.

    Raises:
        KernelError: if the running backward pass was called with `create_graph=True`.
    """
    if torch.is_grad_enabled():
        raise KernelError(f"{objective} has no second derivative, which create_graph=True asks for; {way_out}.")


def wanted_gradients(*tensors: Tensor | None) -> list[bool]:
    """Return for each tensor whether a gradient will be asked for."""
    if not torch.is_grad_enabled():
        return [False] * len(tensors)
    return [x is not None and x.requires_grad for x in tensors]


def with_gradients(
    total: Tensor, tensors: Sequence[Tensor | None], grads: Sequence[Tensor | None], objective: str, way_out: str
) -> Tensor:
    """Join a loss to autograd whose gradient was made with it: a backward pass only scales it.

    Args:
        total: A scalar, computed without graph.
        tensors: The tensors that it has a gradient for.
        grads: Of each the gradient; None where none was made. They may be in another dtype, so that they are rounded
            once, after they were scaled.
        objective: The name that users know, for the refusal of a second derivative.
        way_out: As in `refuse_second_derivative`.

    Returns:
        `total`, in the graph where there is a gradient.
    """
    if all(grad is None for grad in grads):
        return total
    joined: Tensor = _MadeGradients.apply(total, grads, objective, way_out, *tensors)
    return joined


class _MadeGradients(torch.autograd.Function):
    """Holds gradients until they are scaled."""

    @staticmethod
    def forward(
        ctx: Any, total: Tensor, grads: Sequence[Tensor | None], objective: str, way_out: str, *tensors: Any
    ) -> Tensor:
        ctx.save_for_backward(*grads)
        ctx.objective = objective
        ctx.way_out = way_out
        ctx.dtypes = [None if x is None else x.dtype for x in tensors]
        return total.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative(ctx.objective, ctx.way_out)
        # In place where nobody reads them again: of output weights a copy would be more than all else that is held.
        may_overwrite = _is_last_backward() and not is_batched(upstream)
        scale = Tensor.mul_ if may_overwrite else Tensor.mul
        scaled_grads: list[Tensor | None] = []
        for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True):
            if grad is None:
                scaled_grads.append(None)
            else:
                scaled_grads.append(scale(grad, upstream).to(dtype))
        # The loss, the gradients and the two texts have none.
        return None, None, None, None, *scaled_grads


def is_batched(x: Tensor) -> bool:
    """Whether a tensor is one of vmap's, or of the older one that autograd's own batching uses."""
    return torch._C._functorch.is_batchedtensor(x) or torch._C._functorch.is_legacy_batchedtensor(x)


def _is_last_backward() -> bool:
    """Whether the running backward pass frees the graph, so that the saved tensors may be overwritten."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return keeps is not None and not keeps()
