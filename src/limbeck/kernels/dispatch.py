"""The choice of a backend for an operation: the requested one, or with `auto` the fastest that fits."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.errors import KernelError, suggestion
from limbeck.kernels import precision, relation_reference
from limbeck.kernels.relation_blocked import relation_kl_blocked
from limbeck.kernels.relation_triton import interpreting, relation_kl_triton, triton_obstacle

_logger = logging.getLogger(__name__)
# Choices of `auto` that were logged.
_announced: set[str] = set()


@dataclass(frozen=True)
class Operation:
    """A computation that has several implementations, its *backends*.

    Args:
        name: Name in messages and in the log.
        backends: Functions by name, from the plain one to the fastest; one named "triton" needs a GPU.
    """

    name: str
    backends: Mapping[str, Callable[..., Tensor]]

    def choose(self, backend: str, device: str, dtype: torch.dtype = torch.float32) -> str:
        """Return the name of the backend that computes the operation; `auto` gives the fastest that can.

        Args:
            backend: "auto" or the name of a backend.
            device: Type of the device, such as `"cpu"`.
            dtype: The dtype that the loss is computed in.

        Raises:
            KernelError: if `backend` is unknown, or is Triton where it cannot compute; an explicit choice is never
                replaced.
        """
        names = ("auto", *self.backends)
        if backend not in names:
            raise KernelError(f"Unknown backend '{backend}' for {self.name}.{suggestion(backend, names)}")
        if backend == "auto":
            return _choose(self.name, tuple(self.backends), device, dtype)
        if backend == "triton":
            obstacle = triton_obstacle(device, dtype)
            if obstacle is not None:
                raise KernelError(obstacle)
        return backend


def _choose(operation: str, backends: tuple[str, ...], device: str, dtype: torch.dtype) -> str:
    """Return the backend that `auto` stands for.

    Each choice is logged once, with the reason if a GPU has to do without Triton.

    Args:
        operation: Name of the operation.
        backends: Names of its backends, the fastest last.
        device: Type of the device.
        dtype: The dtype that the loss is computed in.
    """
    # Triton's interpreter is for tests alone, and `auto` never chooses it.
    obstacle = "Triton is interpreted" if interpreting() else triton_obstacle(device, dtype)
    can_use_triton = device == "cuda" and obstacle is None
    usable_backends = [name for name in backends if name != "triton" or can_use_triton]
    chosen = usable_backends[-1]
    message = f"{operation} on {device}: backend 'auto' is '{chosen}'"
    if device == "cuda" and obstacle is not None and "triton" in backends:
        # The way out behind the semicolon is for somebody who asked for Triton.
        message += f", since {obstacle.partition(';')[0]}"
    if message not in _announced:
        _announced.add(message)
        _logger.info(message)
    return chosen


# `torch.compile` takes the result as a constant and does not trace the function. The decorator for this,
# `torch.compiler.assume_constant_result`, would import the compiler, which takes two seconds.
_choose._dynamo_marked_constant = True  # type: ignore[attr-defined]


RELATION_KL = Operation(
    "relation_kl",
    {
        "reference": relation_reference.relation_kl_reference,
        "blocked": relation_kl_blocked,
        "triton": relation_kl_triton,
    },
)
RELATION_BACKENDS = ("auto", *RELATION_KL.backends)
choose_relation_backend = RELATION_KL.choose


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
    dtype = precision.compute_dtype(student_a, student_b, teacher_a, teacher_b)
    chosen = choose_relation_backend(backend, student_a.device.type, dtype)
    return RELATION_KL.backends[chosen](student_a, student_b, teacher_a, teacher_b, heads, valid, causal)
