"""Which backend computes a kernel: the one that was asked for, or with `auto` the fastest that fits."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from limbeck.errors import KernelError, suggestion
from limbeck.kernels.precision import compute_dtype
from limbeck.kernels.relation_blocked import relation_kl_blocked
from limbeck.kernels.relation_reference import relation_kl_reference
from limbeck.kernels.relation_triton import interpreting, relation_kl_triton, triton_obstacle

RELATION_BACKENDS = ("auto", "reference", "blocked", "triton")

_logger = logging.getLogger(__name__)
# What was said of the choices of `auto`.
_announced: set[str] = set()


def relation_kl_total(
    student_a: Tensor,
    student_b: Tensor,
    teacher_a: Tensor,
    teacher_b: Tensor,
    *,
    heads: int,
    valid: Tensor | None = None,
    causal: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Σ KL(R^T ‖ R^S) over samples, relation heads and valid rows, by the chosen backend.

    The arguments are taken as they are; `limbeck.objectives.relation_kl` checks them and is the one to call.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`; carries gradient.
        student_b: Right vectors of the student, `[B, L, width_S]`; carries gradient.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`; constant.
        teacher_b: Right vectors of the teacher, `[B, L, width_T]`; constant.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.
        causal: Row t sees the columns up to t only.
        backend: One of `RELATION_BACKENDS`.

    Returns:
        A scalar in nats, float64 where an input is float64 and float32 otherwise.

    Raises:
        KernelError: if `backend` is unknown or cannot compute this here; an explicit choice is never replaced.
    """
    dtype = compute_dtype(student_a, student_b, teacher_a, teacher_b)
    chosen = choose_relation_backend(backend, student_a.device.type, dtype)
    arguments = student_a, student_b, teacher_a, teacher_b, heads, valid, causal
    if chosen == "triton":
        return relation_kl_triton(*arguments)
    return relation_kl_reference(*arguments) if chosen == "reference" else relation_kl_blocked(*arguments)


def choose_relation_backend(backend: str, device: str, dtype: torch.dtype = torch.float32) -> str:
    """Return the backend that computes `relation_kl`; `auto` is Triton on a GPU if it can, and blocked otherwise.

    Args:
        backend: One of `RELATION_BACKENDS`.
        device: Type of the device, such as `"cpu"`.
        dtype: The dtype that the loss is computed in.

    Raises:
        KernelError: if `backend` is unknown, or is Triton where it cannot compute.
    """
    if backend not in RELATION_BACKENDS:
        raise KernelError(f"Unknown backend '{backend}' for relation_kl.{suggestion(backend, RELATION_BACKENDS)}")
    if backend == "auto":
        return _choose(device, dtype)
    obstacle = triton_obstacle(device, dtype) if backend == "triton" else None
    if obstacle is not None:
        raise KernelError(obstacle)
    return backend


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _choose(device: str, dtype: torch.dtype) -> str:
    """What `auto` is; it is said once, with the reason where a GPU has to do without Triton."""
    # Triton's interpreter is for tests alone.
    obstacle = "Triton is interpreted" if interpreting() else triton_obstacle(device, dtype)
    chosen = "blocked" if device != "cuda" or obstacle is not None else "triton"
    words = f"relation_kl on {device}: backend 'auto' is '{chosen}'"
    if device == "cuda" and obstacle is not None:
        words += f", since {obstacle.partition(';')[0]}"
    if words not in _announced:
        _announced.add(words)
        _logger.info(words)
    return chosen
