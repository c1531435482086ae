"""`relation_kl` in blocks that stay in cache, its gradient made while the forward pass has them there.

A block holds `[units, rows, columns]` logits of the teacher and of the student, a unit being one head of one sample.
Its probabilities, divergence and gradient are computed before the next one is made, so the L×L matrices of all heads
never exist together. On a CPU every thread works on other blocks.

Logits are kept in base 2, since exp2 is the fastest exponential that PyTorch has on a CPU, and the row maximum is
subtracted for stability. With e = exp2(logits), s = Σ e per row and D = teacher logits − student logits:

    KL = ln 2 · (Σ e_T · D / s_T + log2(s_S / s_T))
    G = ∂KL/∂(student logits, natural) = e_S / s_S − e_T / s_T
    ∂KL/∂student_a = G · student_b / √d
    ∂KL/∂student_b = Gᵀ · student_a / √d

Where a is b, logits and e (before the row maximum is subtracted) are symmetric. Half of them could be mirrored, but
moving a transposed block costs more here than the product that makes it (0.7 to 2 ns for each logit against 0.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from limbeck.kernels.packed_attention import Group, pack, plan_groups, unpack_into
from limbeck.kernels.precision import autocast_off, compute_dtype, refuse_second_derivative, sum_accumulator
from limbeck.kernels.workers import Scratch, run_tasks

LOG2_E = 1 / math.log(2)
# Finite, so that differences of masked logits are finite too; its exp2 is exactly 0.
MASKED_LOGIT = -1e30


@dataclass(frozen=True)
class Plan:
    """How a relation is computed, the same for all its groups.

    Args:
        causal: Row t sees the columns up to t only.
        dtype: Compute dtype.
        block: Logits that a task has in work at a time.
        on_host: Lengths may be read, since that does not stall a device.
        scratch: Memory to compute in.
    """

    causal: bool
    dtype: torch.dtype
    block: int
    on_host: bool
    scratch: Scratch


class _Operands:
    """One model's vectors of a group by unit, and as the matmul of the logits takes them.

    Args:
        pair: `(a, b)`, or `(a,)` when both are one, each `[B, L, width]`.
        heads: How many heads `width` holds.
        group: The samples.
        plan: How to compute.
        name: Whose they are.
    """

    def __init__(self, pair: Sequence[Tensor], heads: int, group: Group, plan: Plan, name: str) -> None:
        shape = (group.samples * heads, group.length, pair[0].shape[-1] // heads)
        packed = [
            pack(x, group, heads, plan.scratch.take(f"{name} {position}", shape, x, plan.dtype))
            for position, x in enumerate(pair)
        ]
        self.a, self.b = packed[0], packed[-1]
        self.scale = 1 / math.sqrt(self.a.shape[-1])
        self.rows, self.columns = self.a, self.b
        if group.filled is not None:
            # One more coordinate, 1 · MASKED in a column to leave out: a mask without a pass over the logits.
            masked = self.a.new_zeros(group.filled.shape).masked_fill_(~group.filled, MASKED_LOGIT)
            masked = masked[:, None, :, None].expand(-1, heads, -1, 1).reshape(-1, group.length, 1)
            self.rows = torch.cat([self.a, torch.ones_like(masked)], -1)
            self.columns = torch.cat([self.b, masked], -1)

    def logits_into(self, out: Tensor, units: slice, rows: slice, columns: slice) -> None:
        """Write base-2 logits `[units, rows, columns]`; what `out` held does not matter."""
        left, right = self.rows[units, rows], self.columns[units, columns]
        torch.baddbmm(out, left, right.mT, beta=0, alpha=self.scale * LOG2_E, out=out)


class RelationGroup:
    """Computes the divergence and the gradient of some heads of the samples of one group, block by block.

    Args:
        student: `(a, b)`, or `(a,)` when both are one, each `[B, L, width_S]`.
        teacher: The same of the teacher, `[B, L, width_T]`.
        grads: Where the gradient of each of `student` goes, as wide; None where none is wanted.
        heads: How many heads these widths hold.
        group: The samples.
        plan: How to compute.
    """

    def __init__(
        self,
        student: Sequence[Tensor],
        teacher: Sequence[Tensor],
        grads: Sequence[Tensor | None],
        heads: int,
        group: Group,
        plan: Plan,
    ) -> None:
        self.plan = plan
        self.group = group
        self.grads = grads
        self.student = _Operands(student, heads, group, plan, "student")
        self.teacher = _Operands(teacher, heads, group, plan, "teacher")
        # [units, head size, length]: a matmul is fast when it has few rows and many columns.
        shape = self.student.a.mT.shape
        self.unit_grads = [
            None if x is None else plan.scratch.take(f"gradient {position}", shape, x, plan.dtype).zero_()
            for position, x in enumerate(grads)
        ]
        # One that is both a and b collects both gradients.
        self.grad_a, self.grad_b = self.unit_grads[0], self.unit_grads[-1]

    def run(self) -> Tensor:
        """Compute all blocks and write the gradients.

        Returns:
            Σ KL over samples, heads and valid rows, a scalar in nats.
        """
        units, length, _ = self.student.a.shape
        row_step = _even(length, self.plan.block // length)
        unit_step = _even(units, self.plan.block // (row_step * length))
        shape = (3, unit_step * row_step * length)
        buffers = self.plan.scratch.take("logits", shape, self.student.a, self.plan.dtype)
        total = sum_accumulator(buffers.device)
        for first in range(0, units, unit_step):
            for top in range(0, length, row_step):
                chosen = slice(first, min(first + unit_step, units))
                total += self._block(chosen, slice(top, min(top + row_step, length)), buffers).sum(dtype=total.dtype)
        for target, unit_grad in zip(self.grads, self.unit_grads, strict=True):
            if target is not None and unit_grad is not None:
                unpack_into(target, unit_grad, self.group)
        return total * math.log(2)

    def _block(self, units: slice, rows: slice, buffers: Tensor) -> Tensor:
        """Divergence in bits of `units` at `rows`, `[units, rows, 1]`; their gradient is added on the way."""
        columns = slice(0, rows.stop if self.plan.causal else self.student.a.shape[1])
        shape = (units.stop - units.start, rows.stop - rows.start, columns.stop)
        teacher, student, spare = (x[: math.prod(shape)].view(shape) for x in buffers)
        for operands, logits in ((self.teacher, teacher), (self.student, student)):
            operands.logits_into(logits, units, rows, columns)
            if self.plan.causal:
                ahead = torch.ones(shape[1:], dtype=torch.bool, device=logits.device).triu(rows.start + 1)
                logits.masked_fill_(ahead, MASKED_LOGIT)
            logits -= logits.amax(-1, keepdim=True)
        # Three buffers serve for all; each name is of the content of its buffer from there on.
        teacher_exp = torch.exp2(teacher, out=spare)
        difference = teacher.sub_(student)
        student_exp = student.exp2_()
        teacher_sum = teacher_exp.sum(-1, keepdim=True)
        ratio = teacher_sum / student_exp.sum(-1, keepdim=True)
        divergence = difference.mul_(teacher_exp).sum(-1, keepdim=True).div_(teacher_sum).sub_(ratio.log2())
        if self.grad_a is not None or self.grad_b is not None:
            # −G · s_T in one pass; the small operands take the factor.
            gradient = torch.addcmul(teacher_exp, student_exp, ratio, value=-1, out=teacher_exp)
            self._add_gradient(gradient, -self.student.scale / teacher_sum, units, rows, columns)
        return divergence

    def _add_gradient(self, gradient: Tensor, factor: Tensor, units: slice, rows: slice, columns: slice) -> None:
        """Add what the rows of `gradient`, times `factor`, give to the student's vectors."""
        if self.grad_a is not None:
            part = torch.bmm(self.student.b[units, columns].mT, gradient.mT)
            self.grad_a[units, :, rows].addcmul_(part, factor.mT)
        if self.grad_b is not None:
            part = torch.bmm((self.student.a[units, rows] * factor).mT, gradient)
            self.grad_b[units, :, columns].add_(part)


def _even(whole: int, most: int) -> int:
    """Size of the parts when `whole` is divided into as few parts of at most `most` as possible, near equal."""
    return math.ceil(whole / math.ceil(whole / max(1, most)))


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
