"""`relation_kl` in blocks that stay in cache, its gradient made while the forward pass has them there.

A block holds `[units, rows, columns]` logits of the teacher and of the student, a unit being one head of one
sample. Everything that a block is needed for (probabilities, divergence, gradient) happens before the next
one is made, so the L×L matrices of all heads never exist together. Logits are kept in base 2: exp2 is the
fastest exponential here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from limbeck.kernels.packing import plan_groups
from limbeck.kernels.precision import autocast_off, compute_dtype, refuse_second_derivative, sum_accumulator
from limbeck.kernels.relation_block import Plan, RelationGroup

# Logits of one block. On a CPU three float32 blocks of this size stay in the last-level cache; an accelerator
# has no such limit and wants few launches.
CPU_BLOCK = 1 << 20
DEVICE_BLOCK = 1 << 24


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

    Memory is O(B · L · width) plus three blocks; the gradient of the student's vectors is made in the forward
    pass, from G = R^S − R^T per block, and scaled in the backward pass. On a CPU padding is packed away
    first; on other devices nothing is read back to the host.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`; carries gradient.
        student_b: Right vectors of the student, `[B, L, width_S]`; carries gradient; may be `student_a`
            itself.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`; constant.
        teacher_b: Right vectors of the teacher, `[B, L, width_T]`; constant.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.
        causal: Row t sees the columns up to t only.
        block: Logits in work at a time; None chooses by device.
        on_host: Whether lengths may be read, to pack padding away; None: on a CPU only.

    Returns:
        A scalar in nats, float64 where an input is float64 and float32 otherwise. It has a first derivative
        only.
    """
    student = (student_a, None if student_b is student_a else student_b)
    teacher = (teacher_a.detach(), None if teacher_b is teacher_a else teacher_b.detach())
    if not torch.is_grad_enabled():
        # Inside a Function nothing tells that no gradient will be asked for.
        student = (student_a.detach(), None if student[1] is None else student[1].detach())
    on_cpu = student_a.device.type == "cpu"
    plan = Plan(
        heads,
        causal,
        compute_dtype(student_a, student_b, teacher_a, teacher_b),
        block or (CPU_BLOCK if on_cpu else DEVICE_BLOCK),
        on_cpu if on_host is None else on_host,
    )
    with autocast_off(student_a.device):
        total: Tensor = _BlockedRelation.apply(*student, *teacher, valid, plan)
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
        valid: Tensor | None,
        plan: Plan,
    ) -> Tensor:
        student = [student_a] if student_b is None else [student_a, student_b]
        teacher = [teacher_a] if teacher_b is None else [teacher_a, teacher_b]
        wanted = list(ctx.needs_input_grad[: len(student)])
        # Gradients stay in the compute dtype until the upstream gradient has scaled them: one rounding, not
        # two.
        grads = [
            x.new_zeros(x.shape, dtype=plan.dtype) if wants else None for x, wants in zip(student, wanted, strict=True)
        ]
        total = sum_accumulator(student_a.device)
        for group in plan_groups(student_a, valid, plan.heads, plan.block, plan.on_host):
            total += RelationGroup(student, teacher, wanted, group, plan).run(grads)
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
        return (*grads, None, None, None, None)
