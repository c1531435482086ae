"""A loss to be measured: its sizes, random inputs of these sizes, and one run of it.

A *backend* is one of several ways to compute an objective; the *plain* one, which holds everything at once, is what the
others are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from limbeck.benchmark.peak_memory import BYTES_PER_MEGABYTE
from limbeck.errors import RecipeError, suggestion
from limbeck.models.loading import as_dtype
from limbeck.objectives import OBJECTIVES, Benchmark, LossTerm

_FLOAT32_BYTES = 4
# Sizes of `tiny_case`.
_TINY_LENGTH = 8
_TINY_CLASSES = 64


@dataclass(frozen=True)
class LossCase:
    """One loss on inputs of one size; every field is fit for JSON.

    Attributes:
        objective: One of `measured_objectives`.
        batch: Samples B.
        length: Tokens L of the longest sample.
        heads: Relation or attention heads, where the objective has any.
        teacher_width: Width of the teacher's streams.
        student_width: Width of the student's streams.
        classes: Vocabulary V, where the objective has logits.
        mask: `"full"`, or `"ragged"` with lengths drawn from [L/2, L].
        relation: `"symmetric"` (a stream with itself) or `"pair"` (two streams), where the objective has relations.
        dtype: Number format of the streams.
        device: The device of the streams.
    """

    objective: str = "relation_kl"
    batch: int = 8
    length: int = 128
    heads: int = 48
    teacher_width: int = 768
    student_width: int = 384
    classes: int = 30_522
    mask: str = "full"
    relation: str = "symmetric"
    dtype: str = "float32"
    device: str = "cpu"


@dataclass(frozen=True)
class Inputs:
    """Random tensors of a case.

    Args:
        student: Two tensors of the student. They may be one and the same tensor, such as where a relation is that of a
            stream with itself.
        teacher: Two tensors of the teacher, likewise.
        valid: Bool `[B, L]`, True for real tokens.
        options: Further keyword arguments of the objective.
    """

    student: Sequence[Tensor]
    teacher: Sequence[Tensor]
    valid: Tensor
    options: Mapping[str, Any]

    @property
    def leaves(self) -> list[Tensor]:
        """The different tensors of the student, whose gradients are computed."""
        first, second = self.student
        return [first] if first is second else [first, second]

    def double(self) -> Inputs:
        """Return copies in float64; they are on the CPU where the device has no float64."""
        device = self.valid.device
        if device.type == "mps":
            device = torch.device("cpu")
        # Tensors are known by their identity: where both are the same tensor, both get the same copy, whose gradient is
        # then the sum of both uses.
        copy_by_id: dict[int, Tensor] = {}
        for tensor in (*self.student, *self.teacher):
            copy_by_id[id(tensor)] = tensor.detach().to(device).double().requires_grad_(tensor.requires_grad)
        return Inputs(
            student=[copy_by_id[id(tensor)] for tensor in self.student],
            teacher=[copy_by_id[id(tensor)] for tensor in self.teacher],
            valid=self.valid.to(device),
            options=self.options,
        )


def measured_objectives() -> dict[str, Benchmark]:
    """Return the objectives that can be measured, by name."""
    return {name: objective.benchmark for name, objective in OBJECTIVES.items() if objective.benchmark is not None}


def benchmark_of(objective: str) -> Benchmark:
    """Return the benchmark of an objective: its backends, its random inputs, and the sizes that it depends on.

    Raises:
        RecipeError: if the objective is unknown, or has no benchmark.
    """
    benchmarks = measured_objectives()
    if objective not in benchmarks:
        raise RecipeError(f"Unknown objective '{objective}'.{suggestion(objective, benchmarks)}")
    return benchmarks[objective]


def make_inputs(case: LossCase) -> Inputs:
    """Draw the random tensors of a case; no larger tensor is made on the way, which would raise the peak memory."""
    device = torch.device(case.device)
    # Numbers are drawn on the device: output weights of a large vocabulary take seconds on a CPU.
    generator = torch.Generator(device).manual_seed(0)

    def draw_normal(*shape: int, deviation: float = 1.0) -> Tensor:
        """Draw a tensor of normal numbers around 0 in the format of the case."""
        numbers = torch.empty(shape, dtype=as_dtype(case.dtype), device=device)
        return numbers.normal_(std=deviation, generator=generator)

    student, teacher, options = benchmark_of(case.objective).inputs(case, draw_normal)
    for tensor in student:
        tensor.requires_grad_()

    # [B, 1].
    lengths = torch.full((case.batch, 1), case.length)
    if case.mask == "ragged":
        # `valid` is made on the CPU. On a CPU, the generator goes on after the numbers above.
        host_generator = generator if device.type == "cpu" else torch.Generator().manual_seed(0)
        shortest = max(1, case.length // 2)
        lengths = torch.randint(shortest, case.length + 1, (case.batch, 1), generator=host_generator)
    # [L] < [B, 1] -> [B, L].
    valid = torch.arange(case.length) < lengths
    return Inputs(student=student, teacher=teacher, valid=valid.to(device), options=options)


def run_loss(backend: Callable[..., LossTerm], inputs: Inputs) -> Tensor:
    """Run forward and backward of the summed loss, and return its value.

    The gradients of the student's tensors are left in their `grad`; those of a run before are dropped.
    """
    for leaf in inputs.leaves:
        leaf.grad = None
    term = backend(*inputs.student, *inputs.teacher, valid=inputs.valid, **inputs.options)
    term.total.backward()
    return term.total.detach()


def tiny_case(case: LossCase) -> LossCase:
    """Return the case with a small batch, length and vocabulary.

    A run of it is quick. It loads kernels, and shows whether a backend accepts widths, heads and device.
    """
    return replace(case, batch=1, length=min(case.length, _TINY_LENGTH), classes=min(case.classes, _TINY_CLASSES))


def megabytes_needed(case: LossCase) -> float:
    """Return an estimate of the memory that the plain backend takes, in megabytes; it computes in float32."""
    numbers = benchmark_of(case.objective).numbers_at_once(case)
    return numbers * _FLOAT32_BYTES / BYTES_PER_MEGABYTE
