"""`soft_label_kl` from hidden vectors and output weights, a chunk of rows at a time.

A chunk's logits of student and teacher, `[rows, V]` each, are all that ever exists of `[tokens, V]`. While they are
there the divergence is summed up, the student's are turned into its gradient (q − p) in place, and what follows from
that for hidden vectors, weight and bias is added up; the backward pass only scales it. On a CPU every thread works on
other classes or rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from limbeck.kernels.precision import autocast_off, compute_dtype, sum_accumulator, wanted_gradients, with_gradients
from limbeck.kernels.workers import Scratch, run_tasks

# Logits of one model in a chunk. Each chunk reads all weights and adds to all their gradients, so rows must not be
# few: 67 rows of 250,000 classes lose 5 % to that on a CPU. An accelerator wants few launches.
CPU_CHUNK = 1 << 24
DEVICE_CHUNK = 1 << 26
# Logits that are compared at a time: on a CPU the intermediates stay in cache.
CPU_SLICE = 1 << 18
DEVICE_SLICE = 1 << 24
# Numbers of a weight or of a product that exist in another dtype at a time.
CONVERTED = 1 << 22
# Tasks for each thread of a CPU: the last ones to finish are then short.
TASKS_PER_THREAD = 4
# Fewer logits are done before other threads would have woken up.
FEW_LOGITS = 1 << 17


@dataclass(frozen=True)
class Head:
    """A model's last hidden vectors and what makes logits of them.

    Args:
        hidden: `[rows, width]`.
        weight: `[V, width]`, V at least 1.
        bias: `[V]` or None; −inf excludes a class.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the matmuls: bfloat16 where hidden vectors and weight both are, never float16.

        In float16 the gradient of most of 250,000 classes is below the least number, since no loss scale is known
        yet when it is made.
        """
        low = self.hidden.dtype == self.weight.dtype == torch.bfloat16
        return torch.bfloat16 if low else compute_dtype(self.hidden, self.weight)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """All of it."""
        return self.hidden, self.weight, self.bias


@torch.compiler.disable  # type: ignore[untyped-decorator]
def soft_label_kl_chunked(
    student: Head,
    teacher: Head,
    temperature: float = 1.0,
    valid: Tensor | None = None,
    *,
    chunk: int | None = None,
    on_host: bool | None = None,
) -> Tensor:
    """T² Σ KL(softmax(z^T/T) ‖ softmax(z^S/T)) over valid rows, with z = hidden · weightᵀ + bias.

    Beyond its arguments and their gradients it needs two chunks of logits. On a CPU rows that do not count are left
    out; on other devices nothing is read back to the host. `torch.compile` leaves it as it is.

    Args:
        student: Carries gradient.
        teacher: Constant.
        temperature: T, above 0.
        valid: Rows that count, bool `[rows]`; None means all.
        chunk: Logits of one model in work at a time, at least one row; None chooses by device.
        on_host: Whether the rows that count may be listed; None: on a CPU only.

    Returns:
        A scalar in nats, float64 where an argument is float64 and float32 otherwise; it has a first derivative only.
    """
    hidden, weight, _ = student.tensors
    device, classes = hidden.device, len(weight)
    on_cpu, wanted = device.type == "cpu", wanted_gradients(*student.tensors)
    dtype = compute_dtype(*(x for head in (student, teacher) for x in head.tensors if x is not None))
    with torch.no_grad(), autocast_off(device):
        # They stay in the compute dtype until the upstream gradient has scaled them: one rounding, not two.
        grads = [
            x.new_zeros(x.shape, dtype=compute_dtype(hidden, weight, x)) if x is not None and wants else None
            for x, wants in zip(student.tensors, wanted, strict=True)
        ]
        size = min(max(1, (chunk or (CPU_CHUNK if on_cpu else DEVICE_CHUNK)) // classes), max(1, len(hidden)))
        # Inference mode does not reach other threads, which could not write to what is made in it.
        with torch.inference_mode(False):
            scores, others = (torch.empty(size, classes, dtype=dtype, device=device) for _ in range(2))
        total, scratch = sum_accumulator(device), Scratch()
        for rows, counted in _row_chunks(hidden, valid, size, on_cpu if on_host is None else on_host):
            vectors, other_vectors = (_take(x, rows, counted) for x in (hidden, teacher.hidden))
            own, other = scores[: len(vectors)], others[: len(vectors)]
            _write_logits(student, vectors, temperature, own)
            _write_logits(teacher, other_vectors, temperature, other)
            total += _compare(own, other, counted, any(wanted), scratch)
            if any(wanted):
                _add_gradients(student, vectors, own, rows, grads)
    # ∂(T KL)/∂z = q − p.
    refusal = "soft_label_kl_from_hidden", "use soft_label_kl on the logits"
    return (with_gradients(total * temperature, student.tensors, grads, *refusal) * temperature).to(dtype)


def _row_chunks(
    hidden: Tensor, valid: Tensor | None, size: int, on_host: bool
) -> Iterator[tuple[slice | Tensor, Tensor | None]]:
    """Yield rows in chunks: the numbers of those that count, or slices with a mask of those that do."""
    if valid is not None and on_host:
        for chosen in valid.nonzero().flatten().split(size):
            if len(chosen):
                yield chosen, None
        return
    for first in range(0, len(hidden), size):
        rows = slice(first, first + size)
        yield rows, None if valid is None else valid[rows]


def _take(hidden: Tensor, rows: slice | Tensor, counted: Tensor | None) -> Tensor:
    """Vectors of some rows, 0 where they do not count, whatever lay there."""
    vectors = hidden[rows]
    return vectors if counted is None else vectors.masked_fill(~counted[:, None], 0.0)


def _class_blocks(head: Head, rows: int, dtype: torch.dtype) -> list[slice]:
    """Divide the classes among threads, and as far as weights or logits have to be converted to another dtype."""
    classes, width = head.weight.shape
    same = head.weight.dtype == head.dtype == dtype
    step = classes if same else max(1, CONVERTED // max(rows, width, 1))
    if head.weight.device.type == "cpu" and torch.get_num_threads() > 1 and rows * classes >= FEW_LOGITS:
        step = min(step, math.ceil(classes / (TASKS_PER_THREAD * torch.get_num_threads())))
    return [slice(first, first + step) for first in range(0, classes, step)]


def _write_logits(head: Head, vectors: Tensor, temperature: float, out: Tensor) -> None:
    """Write (vectors · weightᵀ + bias) / T to `out`, `[rows, V]`."""
    vectors = vectors.to(head.dtype)

    def write(block: slice) -> None:
        weight, part = head.weight[block].to(head.dtype), out[:, block]
        if head.dtype == out.dtype:
            torch.mm(vectors, weight.mT, out=part)
        else:
            part.copy_(vectors @ weight.mT)
        if head.bias is not None:
            part += head.bias[block]
        if temperature != 1:
            part /= temperature

    run_tasks([partial(write, block) for block in _class_blocks(head, len(vectors), out.dtype)], out.device.type)


def _compare(own: Tensor, other: Tensor, counted: Tensor | None, differentiate: bool, scratch: Scratch) -> Tensor:
    """Sum KL(softmax(other) ‖ softmax(own)) over rows; `differentiate` replaces `own` by its gradient q − p."""
    size = CPU_SLICE if own.device.type == "cpu" else DEVICE_SLICE
    total = sum_accumulator(own.device)

    def compare(rows: slice) -> Tensor:
        student, teacher, share = (
            scratch.take(name, own[rows].shape, own, own.dtype) for name in ("student", "teacher", "share")
        )
        torch.log_softmax(own[rows], -1, out=student)
        torch.log_softmax(other[rows], -1, out=teacher)
        torch.exp(teacher, out=share)
        # 0 · (−inf − x) would be NaN for an excluded class.
        divergence = teacher.sub_(student).mul_(share).masked_fill_(share == 0, 0.0).sum(-1)
        if counted is not None:
            divergence.masked_fill_(~counted[rows], 0.0)
        if differentiate:
            torch.sub(student.exp_(), share, out=own[rows])
            if counted is not None:
                own[rows].masked_fill_(~counted[rows, None], 0.0)
        return divergence.sum(dtype=total.dtype)

    step = max(1, size // own.shape[1])
    tasks = [partial(compare, slice(first, first + step)) for first in range(0, len(own), step)]
    return sum(run_tasks(tasks, own.device.type), total)


def _add_gradients(
    head: Head, vectors: Tensor, difference: Tensor, rows: slice | Tensor, grads: list[Tensor | None]
) -> None:
    """Add what a chunk's q − p, `[rows, V]`, gives hidden vectors, weight and bias."""
    for_hidden, for_weight, for_bias = grads
    vectors = vectors.to(head.dtype)

    def add(block: slice) -> Tensor | None:
        part = difference[:, block]
        if for_bias is not None:
            for_bias[block] += part.sum(0)
        part = part.to(head.dtype)
        if for_weight is not None and for_weight.dtype == part.dtype:
            for_weight[block].addmm_(part.mT, vectors)
        elif for_weight is not None:
            for_weight[block] += part.mT @ vectors
        return None if for_hidden is None else part @ head.weight[block].to(head.dtype)

    blocks = _class_blocks(head, len(vectors), difference.dtype)
    made = run_tasks([partial(add, block) for block in blocks], vectors.device.type)
    if for_hidden is not None:
        own = (part for part in made if part is not None)
        for_hidden[rows] = sum(own, vectors.new_zeros(vectors.shape, dtype=for_hidden.dtype))
