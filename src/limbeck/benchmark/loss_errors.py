"""The relative errors of a loss and its gradient by each backend, beside the plain one in float64."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.benchmark.loss_case import Inputs, LossCase, benchmark_of, make_inputs, megabytes_needed, run_loss

# Errors are measured on less than a whole case: float64 by the plain backend takes many times the memory.
ERROR_BATCH = 2
ERROR_MEGABYTES = 2000


class RelativeErrors(NamedTuple):
    """The errors of a backend.

    Args:
        value: |value − exact| / |exact|.
        gradient: ‖gradient − exact‖ / ‖exact‖.
    """

    value: float
    gradient: float


def errors_of(case: LossCase, backends: Sequence[str]) -> dict[str, RelativeErrors]:
    """Return the errors of each backend, on the same numbers as the plain one in float64."""
    benchmark = benchmark_of(case.objective)
    inputs = make_inputs(case)
    double_inputs = inputs.double()
    exact_value = run_loss(benchmark.backends[benchmark.plain], double_inputs)
    device = exact_value.device
    exact_gradient = _gradient(double_inputs, device)

    errors = {}
    for name in backends:
        value = run_loss(benchmark.backends[name], inputs).to(device).double()
        gradient = _gradient(inputs, device)
        value_error = (value - exact_value).abs() / exact_value.abs()
        gradient_error = (gradient - exact_gradient).norm() / exact_gradient.norm()
        errors[name] = RelativeErrors(float(value_error), float(gradient_error))
    return errors


def error_case(case: LossCase) -> LossCase:
    """Return the case that errors are measured on: at most two samples, shorter ones where float64 takes too much."""
    smaller = replace(case, batch=min(case.batch, ERROR_BATCH))
    # A number in float64 takes twice the memory.
    while 2 * megabytes_needed(smaller) > ERROR_MEGABYTES:
        if smaller.batch > 1:
            smaller = replace(smaller, batch=1)
        elif smaller.length > 1:
            smaller = replace(smaller, length=smaller.length // 2)
        else:
            break
    return smaller


def _gradient(inputs: Inputs, device: torch.device) -> Tensor:
    """Return the student's gradients, joined, in float64."""
    gradients = [leaf.grad for leaf in inputs.leaves if leaf.grad is not None]
    return torch.cat([gradient.flatten().to(device).double() for gradient in gradients])
