"""Soft and hard labels over a vocabulary from hidden vectors and output weights, a chunk of rows at a time.

V is the number of classes, z are logits, p the teacher's probabilities and q the student's. A chunk's logits of student
and teacher, `[rows, V]` each, are all that ever exists of `[tokens, V]`. While they are there the loss is summed up,
the student's are turned into its gradient (q − p) in place, and what follows from that for hidden vectors, weight and
bias is added up; the backward pass only scales it. On a CPU every thread works on other classes or rows.

A DistilBERT step on 4,096 tokens and 30,522 words takes 0.39 times the memory of one whose logits are all made, and a
step on 1,024 tokens and 250,002 words 0.53 times (benchmarks/results/vocabulary_steps.json).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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
        if self.hidden.dtype == torch.bfloat16 and self.weight.dtype == torch.bfloat16:
            return torch.bfloat16
        return compute_dtype(self.hidden, self.weight)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden vectors, weight and bias."""
        return self.hidden, self.weight, self.bias


class _Chunk(NamedTuple):
    """Some rows.

    Attributes:
        rows: Their numbers, or a slice.
        counted: Which of them count, bool; None where all do.
    """

    rows: slice | Tensor
    counted: Tensor | None

    def take(self, hidden: Tensor) -> Tensor:
        """Take the vectors of the rows, 0 where they do not count, whatever lay there."""
        vectors = hidden[self.rows]
        if self.counted is None:
            return vectors
        return vectors.masked_fill(~self.counted[:, None], 0.0)


class _HeadGrads(NamedTuple):
    """Gradients of a head's tensors, zero at first; None where none is wanted."""

    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


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

    def compare(chunk: _Chunk, scores: Tensor) -> Tensor:
        targets = teacher_scores[: len(scores)]
        _write_logits(teacher, chunk.take(teacher.hidden), temperature, targets)
        return _compare(scores, targets, chunk.counted, differentiate, scratch)

    return _sum_chunks(
        student,
        _row_chunks(student.hidden, valid, size, on_host=on_host),
        compare,
        dtype=dtype,
        size=size,
        temperature=temperature,
        objective="soft_label_kl_from_hidden",
        way_out="use soft_label_kl on the logits",
    )


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

    def compare(chunk: _Chunk, scores: Tensor) -> Tensor:
        labels_of_rows = labels[chunk.rows, None].long()
        return _compare_labels(scores, labels_of_rows, differentiate, scratch)

    return _sum_chunks(
        student,
        _row_chunks(student.hidden, labelled, size, on_host=True),
        compare,
        dtype=dtype,
        size=size,
        temperature=1.0,
        objective="masked_lm_ce_from_hidden",
        way_out="use masked_lm_ce on the logits",
    )


def _sum_chunks(
    student: Head,
    chunks: Iterator[_Chunk],
    compare: Callable[[_Chunk, Tensor], Tensor],
    *,
    dtype: torch.dtype,
    size: int,
    temperature: float,
    objective: str,
    way_out: str,
) -> Tensor:
    """Return temperature² · Σ of a loss over chunks, with the gradients for the student's head.

    Args:
        student: The head.
        chunks: The rows.
        compare: From a chunk and its logits / T, which it replaces by the gradient for them, to the chunk's loss.
        dtype: Of the logits.
        size: Most rows of a chunk.
        temperature: T.
        objective: The name that users know, for the refusal of a second derivative.
        way_out: As in `refuse_second_derivative`.
    """
    wanted = wanted_gradients(*student.tensors)
    device = student.hidden.device
    with torch.no_grad(), autocast_off(device):
        # They stay in the compute dtype until the upstream gradient has scaled them: one rounding, not two.
        grad_of_tensors: list[Tensor | None] = []
        for tensor, is_wanted in zip(student.tensors, wanted, strict=True):
            grad = None
            if tensor is not None and is_wanted:
                grad_dtype = compute_dtype(student.hidden, student.weight, tensor)
                grad = tensor.new_zeros(tensor.shape, dtype=grad_dtype)
            grad_of_tensors.append(grad)
        grads = _HeadGrads(*grad_of_tensors)

        total = sum_accumulator(device)
        # [size, V].
        buffer = _empty(size, len(student.weight), dtype, device)
        for chunk in chunks:
            vectors = chunk.take(student.hidden)
            scores = buffer[: len(vectors)]
            _write_logits(student, vectors, temperature, scores)
            total += compare(chunk, scores)
            if any(wanted):
                # The scores are q − p by now.
                _add_gradients(student, vectors, scores, chunk, grads)
    # ∂(T KL)/∂z = q − p: one factor T belongs to the loss with these gradients, the other to what follows.
    joined = with_gradients(total * temperature, student.tensors, grads, objective, way_out)
    return (joined * temperature).to(dtype)


def _dtype_of(*heads: Head) -> torch.dtype:
    """Return the dtype of the logits of some heads."""
    tensors = [tensor for head in heads for tensor in head.tensors if tensor is not None]
    return compute_dtype(*tensors)


def _rows_of_a_chunk(head: Head, logits: int | None = None) -> int:
    """Return the rows whose logits are made at a time, 1 or more.

    Args:
        head: The student's.
        logits: In work at a time; None chooses by device.
    """
    if logits is None:
        logits = logits_at_once(head.hidden.device)
    rows = max(1, logits // len(head.weight))
    return min(rows, max(1, len(head.hidden)))


def _differentiates(head: Head) -> bool:
    return any(wanted_gradients(*head.tensors))


def _empty(rows: int, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Inference mode does not reach other threads, which could not write to what is made in it.
    with torch.inference_mode(False):
        return torch.empty(rows, classes, dtype=dtype, device=device)


def _row_chunks(hidden: Tensor, valid: Tensor | None, size: int, *, on_host: bool) -> Iterator[_Chunk]:
    """Yield rows in chunks.

    Args:
        hidden: `[rows, width]`.
        valid: Rows that count, bool `[rows]`; None means all.
        size: Most rows of a chunk.
        on_host: List the rows that count, and leave out the others; else they are masked.
    """
    if valid is not None and on_host:
        for rows in valid.nonzero().flatten().split(size):
            if len(rows):
                yield _Chunk(rows, counted=None)
        return
    for first in range(0, len(hidden), size):
        part = slice(first, first + size)
        counted = None if valid is None else valid[part]
        yield _Chunk(part, counted)


def _class_blocks(head: Head, rows: int, dtype: torch.dtype) -> list[slice]:
    """Divide the classes among threads, and as far as weights or logits have to be converted to another dtype.

    Args:
        head: Whose classes.
        rows: Of the chunk.
        dtype: Of the logits.
    """
    classes, width = head.weight.shape
    on_cpu = head.weight.device.type == "cpu"
    converts = head.weight.dtype != head.dtype or head.dtype != dtype
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
        # [rows, V] each: log q of the student, log p and p of the teacher.
        shape = scores[rows].shape
        student = scratch.take("student", shape, scores, scores.dtype)
        teacher = scratch.take("teacher", shape, scores, scores.dtype)
        share = scratch.take("share", shape, scores, scores.dtype)
        torch.log_softmax(scores[rows], -1, out=student)
        torch.log_softmax(targets[rows], -1, out=teacher)
        torch.exp(teacher, out=share)
        # Σ p (log p − log q); 0 · (−inf − x) would be NaN for an excluded class.
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


def _add_gradients(head: Head, vectors: Tensor, difference: Tensor, chunk: _Chunk, grads: _HeadGrads) -> None:
    """Add what a chunk's q − p gives hidden vectors, weight and bias.

    Args:
        head: The student's.
        vectors: Hidden vectors of the chunk, `[rows, width]`.
        difference: q − p, `[rows, V]`.
        chunk: The rows.
        grads: Receive it.
    """
    vectors = vectors.to(head.dtype)

    def add(block: slice) -> Tensor | None:
        """Add to the gradients of some classes; return their part of that of the hidden vectors."""
        part = difference[:, block]
        if grads.bias is not None:
            grads.bias[block] += part.sum(0)
        # [rows, classes], as the matmuls take it.
        part = part.to(head.dtype)
        if grads.weight is not None and grads.weight.dtype == part.dtype:
            grads.weight[block].addmm_(part.mT, vectors)
        elif grads.weight is not None:
            grads.weight[block] += part.mT @ vectors
        if grads.hidden is None:
            return None
        return part @ head.weight[block].to(head.dtype)

    blocks = _class_blocks(head, len(vectors), difference.dtype)
    parts_of_hidden = run_tasks([partial(add, block) for block in blocks], vectors.device.type)
    if grads.hidden is not None:
        # [rows, width].
        total = vectors.new_zeros(vectors.shape, dtype=grads.hidden.dtype)
        for part_of_hidden in parts_of_hidden:
            assert part_of_hidden is not None
            total = total + part_of_hidden
        grads.hidden[chunk.rows] = total
