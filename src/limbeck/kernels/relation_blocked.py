"""`relation_kl` in blocks that stay in cache, its gradient made while the forward pass has them there.

A block holds `[units, rows, columns]` logits of the teacher and of the student, a unit being one head of one sample.
Everything that it is needed for (probabilities, divergence, gradient) happens before the next one is made, so the
L×L matrices of all heads never exist together. On a CPU every thread works on blocks of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from limbeck.kernels.packing import Group, plan_groups
from limbeck.kernels.precision import autocast_off, compute_dtype, refuse_second_derivative, sum_accumulator
from limbeck.kernels.relation_block import Plan, RelationGroup
from limbeck.kernels.workers import Scratch, run_tasks

# Logits of one block. On a CPU each thread has three float32 blocks of this size, which stay in the last-level
# cache and are large enough that starting an operation costs little; an accelerator wants few launches.
CPU_BLOCK = 1 << 19
DEVICE_BLOCK = 1 << 24
# Tasks for each thread of a CPU, as far as heads can be divided: the last ones to finish are then short.
TASKS_PER_THREAD = 4
# A batch of fewer logits is done before other threads would have woken up.
FEW_LOGITS = 1 << 17


@torch.compiler.disable  # type: ignore[untyped-decorator]
def relation_kl_blocked(
    student_a: Tensor,
    student_b: Tensor,
    teacher_a: Tensor,
    teacher_b: Tensor,
    heads: int,
    valid: Tensor | None = None,
    causal: bool = False,
    *,
    block: int | None = None,
    on_host: bool | None = None,
) -> Tensor:
    """Same value and gradient as `relation_kl_reference`, in blocks of heads and rows.

    Memory is O(B · L · width) plus three blocks for each thread; the gradient of the student's vectors is made in
    the forward pass, from R^S − R^T per block, and scaled in the backward pass. On a CPU padding is packed away
    first; on other devices nothing is read back to the host. `torch.compile` leaves it as it is.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`; carries gradient.
        student_b: Right vectors of the student, `[B, L, width_S]`; carries gradient; may be `student_a` itself.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`; constant.
        teacher_b: Right vectors of the teacher, `[B, L, width_T]`; constant.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.
        causal: Row t sees the columns up to t only.
        block: Logits in work at a time; None chooses by device.
        on_host: Whether lengths may be read, to pack padding away; None: on a CPU only.

    Returns:
        A scalar in nats, float64 where an input is float64 and float32 otherwise; it has a first derivative only.
    """
    student = (student_a, None if student_b is student_a else student_b)
    teacher = (teacher_a.detach(), None if teacher_b is teacher_a else teacher_b.detach())
    if not torch.is_grad_enabled():
        # Inside a Function nothing tells that no gradient will be asked for.
        student = (student_a.detach(), None if student[1] is None else student[1].detach())
    on_cpu = student_a.device.type == "cpu"
    plan = Plan(
        causal,
        compute_dtype(student_a, student_b, teacher_a, teacher_b),
        block or (CPU_BLOCK if on_cpu else DEVICE_BLOCK),
        on_cpu if on_host is None else on_host,
        Scratch(),
    )
    with autocast_off(student_a.device):
        total: Tensor = _BlockedRelation.apply(*student, *teacher, heads, valid, plan)
    return total


class _BlockedRelation(torch.autograd.Function):
    """Joins the blocked forward pass, which already holds the gradient, to autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        student_a: Tensor,
        student_b: Tensor | None,
        teacher_a: Tensor,
        teacher_b: Tensor | None,
        heads: int,
        valid: Tensor | None,
        plan: Plan,
    ) -> Tensor:
        student = [student_a] if student_b is None else [student_a, student_b]
        teacher = [teacher_a] if teacher_b is None else [teacher_a, teacher_b]
        wanted = list(ctx.needs_input_grad[: len(student)])
        # They stay in the compute dtype until the upstream gradient has scaled them: one rounding, not two.
        grads = [
            x.new_zeros(x.shape, dtype=plan.dtype) if wants else None for x, wants in zip(student, wanted, strict=True)
        ]
        groups = list(plan_groups(student_a, valid, heads, plan.block, plan.on_host))
        task = partial(_relate, student, teacher, grads, heads, plan)
        tasks = [partial(task, group, part) for group in groups for part in _head_parts(heads, groups, student_a)]
        totals = run_tasks(tasks) if student_a.device.type == "cpu" else [run() for run in tasks]
        total = sum(totals, sum_accumulator(student_a.device))
        ctx.save_for_backward(*(g for g in grads if g is not None))
        ctx.wanted = wanted + [False] * (2 - len(wanted))
        ctx.dtypes = [x.dtype for x in student]
        return total.to(plan.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("relation_kl with backend 'blocked'", "choose backend 'reference'")
        saved = iter(ctx.saved_tensors)
        grads = [
            (next(saved) * upstream).to(ctx.dtypes[position]) if wants else None
            for position, wants in enumerate(ctx.wanted)
        ]
        return (*grads, None, None, None, None, None)


def _head_parts(heads: int, groups: Sequence[Group], vectors: Tensor) -> list[range]:
    """Divide the heads of a group so that all threads have tasks."""
    threads = torch.get_num_threads()
    logits = heads * sum(group.samples * group.length**2 for group in groups)
    if vectors.device.type != "cpu" or threads == 1 or logits < FEW_LOGITS:
        return [range(heads)]
    size = math.ceil(heads / min(heads, math.ceil(TASKS_PER_THREAD * threads / len(groups))))
    return [range(first, min(first + size, heads)) for first in range(0, heads, size)]


def _relate(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    heads: int,
    plan: Plan,
    group: Group,
    part: range,
) -> Tensor:
    """Compute some heads of one group of samples."""

    def cut(x: Tensor) -> Tensor:
        size = x.shape[-1] // heads
        return x[..., part.start * size : part.stop * size]

    own, other = [cut(x) for x in student], [cut(x) for x in teacher]
    return RelationGroup(own, other, [None if x is None else cut(x) for x in grads], len(part), group, plan).run()
