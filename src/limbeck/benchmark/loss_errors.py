"""The relative errors of a loss and its gradient by each backend, against the plain backend in float64.

A *backend* is one of several ways to compute a loss. The *plain* one is the simplest, and its result in float64 is
taken for exact.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.benchmark.loss_case import Inputs, LossCase, benchmark_of, make_inputs, megabytes_needed, run_loss

ERROR_BATCH = 2
"""Most samples of the case that errors are measured on: in float64 the plain backend takes much more memory."""
ERROR_MEGABYTES = 2000
"""Most memory that the plain backend may need for it in float64, by an estimate."""


class RelativeErrors(NamedTuple):
    """The errors of a backend.

    Args:
        value: |value − exact| / |exact|.
        gradient: ‖gradient − exact‖ / ‖exact‖.
    """

    value: float
    gradient: float


def errors_of(case: LossCase, backends: Sequence[str]) -> dict[str, RelativeErrors]:
    """Return the errors of each backend, by its name.

    Args:
        case: The sizes of the inputs; see `error_case` for sizes that fit into memory.
        backends: Names of the backends.
    """
    benchmark = benchmark_of(case.objective)
    inputs = make_inputs(case)
    # The exact result is computed from copies of the same numbers.
    double_inputs = inputs.double()
    exact_value = run_loss(benchmark.backends[benchmark.plain], double_inputs)
    # float64 may have been computed on another device than the case's, to which the results are brought.
    device = exact_value.device
    exact_gradient = _gradient(double_inputs, device)

    errors = {}
    for name in backends:
        # `run_loss` leaves the gradients in the tensors of `inputs`.
        value = run_loss(benchmark.backends[name], inputs).to(device).double()
        gradient = _gradient(inputs, device)
        value_error = (value - exact_value).abs() / exact_value.abs()
        gradient_error = (gradient - exact_gradient).norm() / exact_gradient.norm()
        errors[name] = RelativeErrors(float(value_error), float(gradient_error))
    return errors


def error_case(case: LossCase) -> LossCase:
    """Return the case that errors are measured on: at most two samples, and shorter ones where memory requires it."""
    smaller = replace(case, batch=min(case.batch, ERROR_BATCH))
    # The estimate is of float32; float64 takes twice the memory. Batch and length shrink until it fits, or are both 1.
    while 2 * megabytes_needed(smaller) > ERROR_MEGABYTES:
        if smaller.batch > 1:
            smaller = replace(smaller, batch=1)
        elif smaller.length > 1:
            smaller = replace(smaller, length=smaller.length // 2)
        else:
            break
    return smaller


def _gradient(inputs: Inputs, device: torch.device) -> Tensor:
    """Return the gradients of all of the student's tensors as one vector in float64, on a device."""
    gradients = [leaf.grad for leaf in inputs.leaves if leaf.grad is not None]
    return torch.cat([gradient.flatten().to(device).double() for gradient in gradients])
