"""`relation_kl` in blocks that stay in cache; the forward pass computes the gradient too, while a block is there.

A *unit* is one head of one sample. A *group* are samples of like length, which are computed together. A *block* holds
`[units, rows, columns]` logits of the teacher and of the student. Its probabilities, divergence and gradient are
computed before the next block, so the L×L matrices of all heads never exist together. On a CPU every thread works on
other blocks.

Logits are kept in base 2, since exp2 is the fastest exponential that PyTorch has on a CPU, and the row maximum is
subtracted for stability. With e = exp2(logits), s = Σ e per row and D = teacher logits − student logits:

    KL = ln 2 · (Σ e_T · D / s_T + log2(s_S / s_T))
    G = ∂KL/∂(student logits, natural) = e_S / s_S − e_T / s_T
    ∂KL/∂student_a = G · student_b / √d
    ∂KL/∂student_b = Gᵀ · student_a / √d

With all logits at once a whole step takes 1.6 to 2.5 times as long (benchmarks/results/kernel_steps.json), and the loss
up to 70 times the memory (benchmarks/results/relation_loss.json).

Where a is b, logits and e (before the row maximum is subtracted) are symmetric. Half of them could be mirrored, but
moving a transposed block costs more here than the product that makes it (0.7 to 2 ns for each logit against 0.3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from limbeck.kernels.cpu.relation import compiled_relation
from limbeck.kernels.precision import autocast_off, compute_dtype, sum_accumulator, wanted_gradients, with_gradients
from limbeck.kernels.relation_vectors import RelationGrads, RelationVectors
from limbeck.kernels.sample_groups import Group, pack, plan_groups, unpack_into
from limbeck.kernels.workers import Scratch, left_uncompiled, run_tasks

LOG2_E = 1 / math.log(2)
# Finite, so that differences of masked logits are finite too; its exp2 is exactly 0.
MASKED_LOGIT = -1e30

# Logits of one block. On a CPU each thread has three float32 blocks of this size, which stay in the last-level
# cache and are large enough that starting an operation costs little; an accelerator wants few launches.
CPU_BLOCK = 1 << 19
DEVICE_BLOCK = 1 << 24
# Tasks for each thread of a CPU, as far as heads can be divided: the last ones to finish are then short.
TASKS_PER_THREAD = 4
# A batch of fewer logits is done before other threads would have woken up.
FEW_LOGITS = 1 << 17


@left_uncompiled
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
    first; on other devices nothing is read back to the host. `torch.compile` does not compile it. Vectors in bfloat16
    on a CPU are computed by a kernel in C, `compiled_relation`, where there is one.

    Args:
        student_a: Left vectors of the student, `[B, L, width_S]`; carries gradient.
        student_b: Right vectors of the student, `[B, L, width_S]`; carries gradient; may be `student_a` itself.
        teacher_a: Left vectors of the teacher, `[B, L, width_T]`; constant.
        teacher_b: Right vectors of the teacher, `[B, L, width_T]`; constant.
        heads: Relation heads; divides both widths.
        valid: Real tokens, bool `[B, L]`; None means all.
        causal: Row t sees the columns up to t only.
        block: Most logits at a time; also turns the kernel in C off. None chooses by device.
        on_host: Whether lengths of the samples are read to the host, to pack padding away; None does so on a CPU only.

    Returns:
        A scalar in nats, float64 where an input is float64 and float32 otherwise; it has a first derivative only.
    """
    student = RelationVectors(student_a, student_b)
    teacher = RelationVectors(teacher_a, teacher_b)
    dtype = compute_dtype(*student, *teacher)
    device = student_a.device
    on_cpu = device.type == "cpu"
    if on_host is None:
        on_host = on_cpu

    wanted = wanted_gradients(*student.tensors)
    with torch.no_grad(), autocast_off(device):
        # The gradients are in the compute dtype. They are rounded to the vectors' dtype once, after the upstream
        # gradient has scaled them.
        grad_of_tensors: list[Tensor | None] = []
        for vectors, is_wanted in zip(student.tensors, wanted, strict=True):
            grad_of_tensors.append(vectors.new_zeros(vectors.shape, dtype=dtype) if is_wanted else None)
        grads = RelationGrads.of_tensors(grad_of_tensors)

        # The kernel in C reads lengths, has no causal mask and chooses its own blocks. It gives None for vectors that
        # it does not compute.
        total = None
        may_use_c = on_cpu and on_host and not causal and block is None
        if may_use_c:
            total = compiled_relation(student, teacher, grads, heads, valid)
        if total is None:
            if block is None:
                block = CPU_BLOCK if on_cpu else DEVICE_BLOCK
            relation = Relation(student, teacher, grads, heads, causal, dtype, block)
            groups = list(plan_groups(student_a, valid, heads, block, on_host))
            head_parts = _head_parts(heads, groups, student_a)
            tasks = [partial(relation.compute, group, head_part) for group in groups for head_part in head_parts]
            total = sum(run_tasks(tasks, device.type), sum_accumulator(device))
    return with_gradients(
        total.to(dtype),
        student.tensors,
        grad_of_tensors,
        objective="relation_kl with backend 'blocked'",
        way_out="choose backend 'reference'",
    )


def _head_parts(heads: int, groups: Sequence[Group], vectors: Tensor) -> list[range]:
    """Divide the heads into ranges, so that there are a few tasks (a group and a range of heads) for each thread.

    Args:
        heads: Relation heads.
        groups: The groups of samples.
        vectors: Any of the vectors, for the device.
    """
    threads = torch.get_num_threads()
    logits = heads * sum(group.samples * group.length**2 for group in groups)
    # Starting tasks would cost more than they save for few logits.
    if vectors.device.type != "cpu" or threads == 1 or logits < FEW_LOGITS:
        return [range(heads)]
    wanted_tasks = TASKS_PER_THREAD * threads
    # The heads of each group are divided alike, into parts that give about so many tasks in all, if there are enough
    # heads.
    parts_of_a_group = min(heads, math.ceil(wanted_tasks / len(groups)))
    size = math.ceil(heads / parts_of_a_group)
    return [range(first, min(first + size, heads)) for first in range(0, heads, size)]


@dataclass(frozen=True)
class Relation:
    """A relation to compute, the same for all its groups.

    Args:
        student: The student's vectors, `[B, L, width_S]`.
        teacher: The teacher's vectors, `[B, L, width_T]`.
        grads: The gradients of the student's vectors.
        heads: Relation heads; divides all widths.
        causal: Row t sees the columns up to t only.
        dtype: Compute dtype.
        block: Most logits of a block.
        scratch: Memory to compute in.
    """

    student: RelationVectors
    teacher: RelationVectors
    grads: RelationGrads
    heads: int
    causal: bool
    dtype: torch.dtype
    block: int
    scratch: Scratch = field(default_factory=Scratch)

    def cut(self, vectors: Tensor, head_part: range) -> Tensor:
        """Return some heads of vectors `[..., width]`, a view."""
        head_size = vectors.shape[-1] // self.heads
        return vectors[..., head_part.start * head_size : head_part.stop * head_size]

    def compute(self, group: Group, head_part: range) -> Tensor:
        """Compute some heads of one group of samples; see `RelationGroup.run`."""
        return RelationGroup(self, group, head_part).run()


class _Operands:
    """The vectors of one model by unit, and as the matmul of the logits takes them.

    Args:
        name: The model, "student" or "teacher".
        vectors: The model's vectors, `[B, L, width]`.
        relation: The relation.
        group: The samples.
        head_part: The heads.

    Attributes:
        a: Left vectors, `[units, length, d]`.
        b: Right vectors, `[units, length, d]`.
        scale: 1/√d.
        rows: Left vectors as the matmul takes them: `a`, or with one more coordinate.
        columns: Right vectors as the matmul takes them.
    """

    def __init__(self, name: str, vectors: RelationVectors, relation: Relation, group: Group, head_part: range) -> None:
        unit_count = group.samples * len(head_part)
        head_size = vectors.a.shape[-1] // relation.heads
        shape = (unit_count, group.length, head_size)
        packed = []
        # Each tensor is cut to the heads, and copied unit by unit.
        for index, tensor in enumerate(vectors.tensors):
            out = relation.scratch.take(f"{name} {index}", shape, tensor, relation.dtype)
            packed.append(pack(relation.cut(tensor, head_part), group, len(head_part), out))
        # Where b is a, the only tensor is both.
        self.a = packed[0]
        self.b = packed[-1]
        self.scale = 1 / math.sqrt(head_size)
        self.rows = self.a
        self.columns = self.b
        if group.filled is not None:
            # One more coordinate masks the logits within the matmul. It is 1 in every row, and MASKED_LOGIT in the
            # columns of padding and 0 in all others, so that the product adds it to the logits.
            # [samples, length] -> [samples, heads, length, 1] -> [units, length, 1].
            sample_mask = self.a.new_zeros(group.filled.shape).masked_fill_(~group.filled, MASKED_LOGIT)
            head_mask = sample_mask[:, None, :, None].expand(-1, len(head_part), -1, 1)
            unit_mask = head_mask.reshape(-1, group.length, 1)
            self.rows = torch.cat([self.a, torch.ones_like(unit_mask)], -1)
            self.columns = torch.cat([self.b, unit_mask], -1)

    def logits_into(self, out: Tensor, units: slice, rows: slice, columns: slice) -> None:
        """Write base-2 logits `[units, rows, columns]` to `out`."""
        left = self.rows[units, rows]
        right = self.columns[units, columns]
        base_2_scale = self.scale * LOG2_E
        # With beta = 0 the former content of `out` does not matter.
        torch.baddbmm(out, left, right.mT, beta=0, alpha=base_2_scale, out=out)


class RelationGroup:
    """Computes the divergence and the gradient of some heads of the samples of one group, block by block.

    Args:
        relation: The relation.
        group: The samples.
        head_part: The heads.
    """

    def __init__(self, relation: Relation, group: Group, head_part: range) -> None:
        self.relation = relation
        self.group = group
        self.head_part = head_part
        self.student = _Operands("student", relation.student, relation, group, head_part)
        self.teacher = _Operands("teacher", relation.teacher, relation, group, head_part)
        # [units, d, length], since a matmul is fast when it has few rows and many columns. Where a is b, one tensor
        # collects the gradients of both sides.
        self.unit_grad_a = self._take_unit_grad("gradient of a", relation.grads.a)
        self.unit_grad_b = self.unit_grad_a
        if not relation.student.is_symmetric:
            self.unit_grad_b = self._take_unit_grad("gradient of b", relation.grads.b)

    def _take_unit_grad(self, name: str, grad: Tensor | None) -> Tensor | None:
        """Return zeros for a gradient by unit, `[units, d, length]`; None where none is wanted."""
        if grad is None:
            return None
        shape = self.student.a.mT.shape
        return self.relation.scratch.take(name, shape, grad, self.relation.dtype).zero_()

    def run(self) -> Tensor:
        """Compute all blocks and write the gradients.

        Returns:
            Σ KL over samples, heads and valid rows, a scalar in nats.
        """
        units, length, _ = self.student.a.shape
        # A block has all columns, as many rows as fit, and several units if a whole unit fits.
        row_step = _size_of_equal_parts(length, self.relation.block // length)
        unit_step = _size_of_equal_parts(units, self.relation.block // (row_step * length))
        # [3, logits of a block]: the teacher's logits, the student's, and a spare buffer.
        shape = (3, unit_step * row_step * length)
        buffers = self.relation.scratch.take("logits", shape, self.student.a, self.relation.dtype)
        total = sum_accumulator(buffers.device)
        for first_unit in range(0, units, unit_step):
            unit_part = slice(first_unit, min(first_unit + unit_step, units))
            for first_row in range(0, length, row_step):
                row_part = slice(first_row, min(first_row + row_step, length))
                divergence = self._divergence_of_block(unit_part, row_part, buffers)
                total += divergence.sum(dtype=total.dtype)

        grads = self.relation.grads
        self._write_gradient(grads.a, self.unit_grad_a)
        if not self.relation.student.is_symmetric:
            self._write_gradient(grads.b, self.unit_grad_b)
        nats_of_a_bit = math.log(2)
        return total * nats_of_a_bit

    def _write_gradient(self, grad: Tensor | None, unit_grad: Tensor | None) -> None:
        """Write a gradient by unit, `[units, d, length]`, to the group's part of the gradient `[B, L, width]`."""
        if grad is not None and unit_grad is not None:
            unpack_into(self.relation.cut(grad, self.head_part), unit_grad, self.group)

    def _divergence_of_block(self, units: slice, rows: slice, buffers: Tensor) -> Tensor:
        """Return the divergence of a block in bits, `[units, rows, 1]`, and add its gradient.

        With e = exp2(logits), s = Σ e of a row, and D the teacher's logits less the student's, the divergence of a row
        is Σ e_T · D / s_T − log2(s_T / s_S).

        Args:
            units: The units of the block.
            rows: Its rows.
            buffers: `[3, logits]`, to compute in.
        """
        # With a causal mask no row of the block sees a column behind its last row.
        columns = slice(0, self.student.a.shape[1])
        if self.relation.causal:
            columns = slice(0, rows.stop)
        # [units, rows, columns] each.
        shape = (units.stop - units.start, rows.stop - rows.start, columns.stop)
        teacher, student, spare = (buffer[: math.prod(shape)].view(shape) for buffer in buffers)
        self._write_logits(self.teacher, teacher, units, rows, columns)
        self._write_logits(self.student, student, units, rows, columns)

        # The operations below work in place, in three buffers. A new name stands for the new content of a buffer, so
        # the earlier name must not be used after it.
        teacher_exp = torch.exp2(teacher, out=spare)
        difference = teacher.sub_(student)
        student_exp = student.exp2_()
        # [units, rows, 1] each: s_T, and s_T / s_S.
        teacher_sum = teacher_exp.sum(-1, keepdim=True)
        sum_ratio = teacher_sum / student_exp.sum(-1, keepdim=True)
        # Σ e_T · D / s_T − log2(s_T / s_S).
        mean_difference = difference.mul_(teacher_exp).sum(-1, keepdim=True).div_(teacher_sum)
        divergence = mean_difference.sub_(sum_ratio.log2())
        if self.unit_grad_a is not None or self.unit_grad_b is not None:
            # G = e_S / s_S − e_T / s_T. One pass makes −G · s_T = e_T − e_S · s_T / s_S. The factor −1 / s_T, and the
            # 1/√d of the vectors' gradients, are applied to the smaller matrices that come of it.
            gradient = torch.addcmul(teacher_exp, student_exp, sum_ratio, value=-1, out=teacher_exp)
            factor = -self.student.scale / teacher_sum
            self._add_gradient(gradient, factor, units, rows, columns)
        return divergence

    def _write_logits(self, operands: _Operands, logits: Tensor, units: slice, rows: slice, columns: slice) -> None:
        """Write the base-2 logits of a block, `[units, rows, columns]`, each row with its maximum at 0."""
        operands.logits_into(logits, units, rows, columns)
        if self.relation.causal:
            # Row t is row t − rows.start of the block; the columns beyond t lie ahead of it.
            block_shape = logits.shape[1:]
            ahead = torch.ones(block_shape, dtype=torch.bool, device=logits.device).triu(rows.start + 1)
            logits.masked_fill_(ahead, MASKED_LOGIT)
        logits -= logits.amax(-1, keepdim=True)

    def _add_gradient(self, gradient: Tensor, factor: Tensor, units: slice, rows: slice, columns: slice) -> None:
        """Add a block's gradient of the student's vectors.

        Args:
            gradient: Gradient of the logits, `[units, rows, columns]`, without the factor.
            factor: Factor of each row, `[units, rows, 1]`.
            units: The units of the block.
            rows: Its rows.
            columns: Its columns.
        """
        if self.unit_grad_a is not None:
            # [units, d, rows].
            grad_of_rows = torch.bmm(self.student.b[units, columns].mT, gradient.mT)
            self.unit_grad_a[units, :, rows].addcmul_(grad_of_rows, factor.mT)
        if self.unit_grad_b is not None:
            # [units, d, columns].
            scaled_rows = self.student.a[units, rows] * factor
            grad_of_columns = torch.bmm(scaled_rows.mT, gradient)
            self.unit_grad_b[units, :, columns].add_(grad_of_columns)


def _size_of_equal_parts(whole: int, most: int) -> int:
    """Return the size of the parts when `whole` is cut into the fewest near-equal parts of at most `most`."""
    part_count = math.ceil(whole / max(1, most))
    return math.ceil(whole / part_count)
