"""Soft and hard labels over a vocabulary from hidden vectors and output weights, a chunk of rows at a time.

A chunk's logits of student and teacher, `[rows, V]` each, are all that ever exists of `[tokens, V]`. While they are
there the loss is summed up, the student's are turned into its gradient (q − p) in place, and what follows from that
for hidden vectors, weight and bias is added up; the backward pass only scales it. On a CPU every thread works on
other classes or rows.

A DistilBERT step on 4,096 tokens and 30,522 words takes 0.39 times the memory of one whose logits are all made, and a
step on 1,024 tokens and 250,002 words 0.53 times (benchmarks/results/vocabulary_steps.json).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from limbeck.kernels.precision import autocast_off, compute_dtype, sum_accumulator, wanted_gradients, with_gradients
from limbeck.kernels.workers import Scratch, left_uncompiled, run_tasks

# Logits of one model in a chunk. Each chunk reads all weights and adds to all their gradients, so rows must not be
# few: 67 rows of 250,000 classes lose 5 % to that on a CPU. An accelerator wants few launches.
CPU_CHUNK = 1 << 24
DEVICE_CHUNK = 1 << 26
# Logits that are compared at a time: on a CPU the intermediates stay in cache.
CPU_SLICE = 1 << 18
DEVICE_SLICE = 1 << 24
# Numbers of a weight or of a product that exist in another dtype at a time.
CONVERTED = 1 << 22
DEVICE_CONVERTED = 1 << 26
# Matrix units of accelerators are several times as fast on blocks of so many classes, or a multiple.
DEVICE_CLASSES = 64
# Tasks for each thread of a CPU: the last ones to finish are then short.
TASKS_PER_THREAD = 4
# Fewer logits are done before other threads would have woken up.
FEW_LOGITS = 1 << 17

_Rows: TypeAlias = slice | Tensor


def logits_at_once(device: torch.device) -> int:
    """Return the logits of one model in a chunk: a batch of no more gains nothing by chunks."""
    return CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK


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


@left_uncompiled
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
    device = student.hidden.device
    if on_host is None:
        on_host = device.type == "cpu"
    dtype = _dtype_of(student, teacher)
    size = _rows_of_a_chunk(student, chunk)
    teacher_scores = _empty(size, len(student.weight), dtype, device)
    differentiate = _differentiates(student)
    scratch = Scratch()

    def compare(rows: _Rows, counted: Tensor | None, scores: Tensor) -> Tensor:
        targets = teacher_scores[: len(scores)]
        _write_logits(teacher, _take(teacher.hidden, rows, counted), temperature, targets)
        return _compare(scores, targets, counted, differentiate, scratch)

    chunks = _row_chunks(student.hidden, valid, size, on_host)
    refusal = "soft_label_kl_from_hidden", "use soft_label_kl on the logits"
    return _sum_chunks(student, dtype, size, chunks, compare, temperature, refusal)


@left_uncompiled
def label_ce_chunked(student: Head, labels: Tensor, labelled: Tensor) -> Tensor:
    """−Σ log softmax(z_r)[label_r] over labelled rows, with z = hidden · weightᵀ + bias.

    The rows are listed on the host, on every device: labels of masked words are few. Otherwise as
    `soft_label_kl_chunked`.

    Args:
        student: Carries gradient.
        labels: Class of each row `[rows]`, 0 … V − 1; anything where there is no label.
        labelled: Rows that count, bool `[rows]`.
    """
    dtype = _dtype_of(student)
    size = _rows_of_a_chunk(student)
    differentiate = _differentiates(student)
    scratch = Scratch()

    def compare(rows: _Rows, counted: Tensor | None, scores: Tensor) -> Tensor:
        return _compare_labels(scores, labels[rows, None].long(), differentiate, scratch)

    chunks = _row_chunks(student.hidden, labelled, size, True)
    refusal = "masked_lm_ce_from_hidden", "use masked_lm_ce on the logits"
    return _sum_chunks(student, dtype, size, chunks, compare, 1.0, refusal)


def _sum_chunks(
    student: Head,
    dtype: torch.dtype,
    size: int,
    chunks: Iterator[tuple[_Rows, Tensor | None]],
    compare: Callable[[_Rows, Tensor | None, Tensor], Tensor],
    temperature: float,
    refusal: tuple[str, str],
) -> Tensor:
    """Return temperature² · Σ of a loss over chunks, with the gradients for the student's head.

    Args:
        student: The head.
        dtype: Of the logits.
        size: Most rows of a chunk.
        chunks: Rows, and which of them count.
        compare: From a chunk and its logits / T, which it replaces by the gradient for them, to the chunk's loss.
        temperature: T.
        refusal: As `with_gradients` takes it.
    """
    hidden = student.hidden
    wanted = wanted_gradients(*student.tensors)
    with torch.no_grad(), autocast_off(hidden.device):
        # They stay in the compute dtype until the upstream gradient has scaled them: one rounding, not two.
        grads: list[Tensor | None] = []
        for tensor, wants in zip(student.tensors, wanted, strict=True):
            grad = None
            if tensor is not None and wants:
                grad = tensor.new_zeros(tensor.shape, dtype=compute_dtype(hidden, student.weight, tensor))
            grads.append(grad)

        total = sum_accumulator(hidden.device)
        buffer = _empty(size, len(student.weight), dtype, hidden.device)
        for rows, counted in chunks:
            vectors = _take(hidden, rows, counted)
            scores = buffer[: len(vectors)]
            _write_logits(student, vectors, temperature, scores)
            total += compare(rows, counted, scores)
            if any(wanted):
                _add_gradients(student, vectors, scores, rows, grads)
    # ∂(T KL)/∂z = q − p.
    joined = with_gradients(total * temperature, student.tensors, grads, *refusal)
    return (joined * temperature).to(dtype)


def _dtype_of(*heads: Head) -> torch.dtype:
    return compute_dtype(*(x for head in heads for x in head.tensors if x is not None))


def _rows_of_a_chunk(head: Head, chunk: int | None = None) -> int:
    rows = (chunk or logits_at_once(head.hidden.device)) // len(head.weight)
    return min(max(1, rows), max(1, len(head.hidden)))


def _differentiates(head: Head) -> bool:
    return any(wanted_gradients(*head.tensors))


def _empty(rows: int, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Inference mode does not reach other threads, which could not write to what is made in it.
    with torch.inference_mode(False):
        return torch.empty(rows, classes, dtype=dtype, device=device)


def _row_chunks(
    hidden: Tensor, valid: Tensor | None, size: int, on_host: bool
) -> Iterator[tuple[_Rows, Tensor | None]]:
    """Yield rows in chunks: the numbers of those that count, or slices with a mask of those that do."""
    if valid is not None and on_host:
        for chosen in valid.nonzero().flatten().split(size):
            if len(chosen):
                yield chosen, None
        return
    for first in range(0, len(hidden), size):
        rows = slice(first, first + size)
        yield rows, None if valid is None else valid[rows]


def _take(hidden: Tensor, rows: _Rows, counted: Tensor | None) -> Tensor:
    """Vectors of some rows, 0 where they do not count, whatever lay there."""
    vectors = hidden[rows]
    return vectors if counted is None else vectors.masked_fill(~counted[:, None], 0.0)


def _class_blocks(head: Head, rows: int, dtype: torch.dtype) -> list[slice]:
    """Divide the classes among threads, and as far as weights or logits have to be converted to another dtype."""
    classes, width = head.weight.shape
    on_cpu = head.weight.device.type == "cpu"
    converts = not head.weight.dtype == head.dtype == dtype
    step = classes
    if converts:
        converted = CONVERTED if on_cpu else DEVICE_CONVERTED
        step = max(1, converted // max(rows, width, 1))
    threads = torch.get_num_threads()
    if on_cpu and threads > 1 and rows * classes >= FEW_LOGITS:
        step = min(step, math.ceil(classes / (TASKS_PER_THREAD * threads)))

    # Blocks of whole tiles on an accelerator, and what is left.
    multiple = DEVICE_CLASSES if converts and not on_cpu else 1
    step = max(multiple, step // multiple * multiple)
    whole = classes // multiple * multiple
    blocks = [slice(first, min(first + step, whole)) for first in range(0, whole, step)]
    if whole < classes:
        blocks.append(slice(whole, classes))
    return blocks


def _write_logits(head: Head, vectors: Tensor, temperature: float, out: Tensor) -> None:
    """Write (vectors · weightᵀ + bias) / T to `out`, `[rows, V]`."""
    vectors = vectors.to(head.dtype)

    def write(block: slice) -> None:
        weight = head.weight[block].to(head.dtype)
        part = out[:, block]
        if head.dtype == out.dtype:
            torch.mm(vectors, weight.mT, out=part)
        else:
            part.copy_(vectors @ weight.mT)
        if head.bias is not None:
            part += head.bias[block]
        if temperature != 1:
            part /= temperature

    run_tasks([partial(write, block) for block in _class_blocks(head, len(vectors), out.dtype)], out.device.type)


def _compare(scores: Tensor, targets: Tensor, counted: Tensor | None, differentiate: bool, scratch: Scratch) -> Tensor:
    """Sum KL(softmax(targets) ‖ softmax(scores)) over rows; `differentiate` replaces the scores by their gradient."""

    def compare(rows: slice) -> Tensor:
        student, teacher, share = (
            scratch.take(name, scores[rows].shape, scores, scores.dtype) for name in ("student", "teacher", "share")
        )
        torch.log_softmax(scores[rows], -1, out=student)
        torch.log_softmax(targets[rows], -1, out=teacher)
        torch.exp(teacher, out=share)
        # 0 · (−inf − x) would be NaN for an excluded class.
        divergence = teacher.sub_(student).mul_(share).masked_fill_(share == 0, 0.0).sum(-1)
        if counted is not None:
            divergence.masked_fill_(~counted[rows], 0.0)
        if differentiate:
            # q − p.
            torch.sub(student.exp_(), share, out=scores[rows])
            if counted is not None:
                scores[rows].masked_fill_(~counted[rows, None], 0.0)
        return divergence

    return _sum_slices(scores, compare)


def _compare_labels(scores: Tensor, labels: Tensor, differentiate: bool, scratch: Scratch) -> Tensor:
    """Sum −log softmax(scores) at the labels `[rows, 1]`; `differentiate` replaces the scores by their gradient."""

    def compare(rows: slice) -> Tensor:
        student = scratch.take("student", scores[rows].shape, scores, scores.dtype)
        torch.log_softmax(scores[rows], -1, out=student)
        entropy = -student.gather(1, labels[rows])
        if differentiate:
            # q − one-hot.
            torch.exp(student, out=scores[rows])
            scores[rows].scatter_add_(1, labels[rows], torch.full_like(entropy, -1.0))
        return entropy

    return _sum_slices(scores, compare)


def _sum_slices(scores: Tensor, compare: Callable[[slice], Tensor]) -> Tensor:
    """Sum what `compare` gives for slices of the rows, as many logits at a time as stay in cache."""
    size = CPU_SLICE if scores.device.type == "cpu" else DEVICE_SLICE
    step = max(1, size // scores.shape[1])
    total = sum_accumulator(scores.device)

    def add_up(rows: slice) -> Tensor:
        return compare(rows).sum(dtype=total.dtype)

    tasks = [partial(add_up, slice(first, first + step)) for first in range(0, len(scores), step)]
    return sum(run_tasks(tasks, scores.device.type), total)


def _add_gradients(head: Head, vectors: Tensor, difference: Tensor, rows: _Rows, grads: list[Tensor | None]) -> None:
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
        if for_hidden is None:
            return None
        return part @ head.weight[block].to(head.dtype)

    blocks = _class_blocks(head, len(vectors), difference.dtype)
    parts_of_hidden = run_tasks([partial(add, block) for block in blocks], vectors.device.type)
    if for_hidden is not None:
        parts = (part for part in parts_of_hidden if part is not None)
        for_hidden[rows] = sum(parts, vectors.new_zeros(vectors.shape, dtype=for_hidden.dtype))
