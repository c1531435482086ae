"""Which backend computes a kernel: the one that was asked for, or with `auto` the fastest that fits."""

from __future__ import annotations

import logging

from torch import Tensor

from limbeck.errors import KernelError, suggestion
from limbeck.kernels.relation_blocked import relation_kl_blocked
from limbeck.kernels.relation_reference import relation_kl_reference

RELATION_BACKENDS = ("auto", "reference", "blocked")
# Part of the design, not of this build: named so that asking for it is told from a typing mistake.
RESERVED_BACKENDS = ("triton",)

_logger = logging.getLogger(__name__)
# Device types for which it is known what `auto` chose.
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
        KernelError: if `backend` is unknown or not part of this build; an explicit choice is never replaced.
    """
    chosen = choose_relation_backend(backend, student_a.device.type)
    compute = relation_kl_reference if chosen == "reference" else relation_kl_blocked
    return compute(student_a, student_b, teacher_a, teacher_b, heads, valid, causal)


def choose_relation_backend(backend: str, device: str) -> str:
    """Return the backend that computes `relation_kl` on a device type such as `"cpu"`.

    Raises:
        KernelError: if `backend` is unknown or not part of this build.
    """
    if backend in RESERVED_BACKENDS:
        choices = ", ".join(RELATION_BACKENDS)
        raise KernelError(f"backend '{backend}' is not available in this build; choose one of {choices}.")
    if backend not in RELATION_BACKENDS:
        raise KernelError(f"Unknown backend '{backend}' for relation_kl.{suggestion(backend, RELATION_BACKENDS)}")
    if backend != "auto":
        return backend
    if device not in _announced:
        _announced.add(device)
        _logger.info("relation_kl on %s: backend 'auto' is 'blocked'", device)
    return "blocked"
