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


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64; Apple's GPUs ("mps") do not."""
    return device.type != "mps"


def sum_accumulator(device: torch.device) -> Tensor:
    """Return a zero to sum blocks into, in float64 where `device` has it, so that many blocks cost no precision."""
    dtype = torch.float64 if has_float64(device) else torch.float32
    return torch.zeros((), dtype=dtype, device=device)


def refuse_second_derivative(objective: str, way_out: str) -> None:
    """Stop a backward pass that is to be differentiated again, since its result would be silently wrong.

    Args:
        objective: The objective, as users call it.
        way_out: Another way to do it, for the message.

    Raises:
        KernelError: if the running backward pass was called with `create_graph=True`.
    """
    if torch.is_grad_enabled():
        raise KernelError(f"{objective} has no second derivative, but create_graph=True asks for one; {way_out}.")


def wanted_gradients(*tensors: Tensor | None) -> list[bool]:
    """Return for each tensor whether a gradient will be asked for."""
    if not torch.is_grad_enabled():
        return [False] * len(tensors)
    return [x is not None and x.requires_grad for x in tensors]


def with_gradients(
    total: Tensor, tensors: Sequence[Tensor | None], grads: Sequence[Tensor | None], objective: str, way_out: str
) -> Tensor:
    """Give a loss whose gradients are computed already a place in the graph of autograd.

    The backward pass multiplies the gradients by the upstream gradient.

    Args:
        total: The loss, a scalar that was computed without graph.
        tensors: The tensors that it depends on.
        grads: The gradient of the loss for each of them; None where none was computed. They may be in a higher dtype
            than the tensors, so that they are rounded once, after the multiplication.
        objective: Name of the objective as users know it, for the refusal of a second derivative.
        way_out: As in `refuse_second_derivative`.

    Returns:
        `total`, in the graph where there is a gradient.
    """
    if all(grad is None for grad in grads):
        return total
    joined: Tensor = _MadeGradients.apply(total, grads, objective, way_out, *tensors)
    return joined


class _MadeGradients(torch.autograd.Function):
    """Keeps the gradients of a loss until its backward pass, which scales them."""

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
        # In place if nobody reads the gradients again. A copy of the gradient of an output layer's weight would take
        # more memory than all other tensors of the loss.
        may_overwrite = _is_last_backward() and not is_batched(upstream)
        scale = Tensor.mul_ if may_overwrite else Tensor.mul
        scaled_grads: list[Tensor | None] = []
        for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True):
            if grad is None:
                scaled_grads.append(None)
            else:
                scaled_grads.append(scale(grad, upstream).to(dtype))
        # The first four arguments of `forward` have no gradient: the loss, its gradients and the two texts.
        return None, None, None, None, *scaled_grads


def is_batched(x: Tensor) -> bool:
    """Return whether a tensor belongs to `torch.func.vmap`, or to the older vmap that autograd's own batching uses."""
    return torch._C._functorch.is_batchedtensor(x) or torch._C._functorch.is_legacy_batchedtensor(x)


def _is_last_backward() -> bool:
    """Return whether the running backward pass frees the graph, so that saved tensors may be overwritten."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return keeps is not None and not keeps()
