"""Soft and hard labels over a vocabulary from hidden vectors and output weights, a chunk of rows at a time.

V is the number of classes, z are logits, p the teacher's probabilities and q the student's. A chunk's logits of student
and teacher, `[rows, V]` each, are all that ever exists of `[tokens, V]`. While they are in memory, the loss of the
chunk is added up, the student's logits are overwritten by their gradient (q − p), and the gradients that follow from it
for hidden vectors, weight and bias are added up; the backward pass only scales these. On a CPU every thread works on
other classes or rows.

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
    """Return the number of logits of one model in a chunk. A batch with no more of them gains nothing by chunks."""
    return CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK


@dataclass(frozen=True)
class Head:
    """A model's last hidden vectors, and the weight and bias that make logits of them: hidden · weightᵀ + bias.

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

        In float16 the gradients of most of 250,000 classes would round to 0: they are computed in the forward pass,
        where the factor that a loss scaler multiplies them by is not known yet.
        """
        if self.hidden.dtype == torch.bfloat16 and self.weight.dtype == torch.bfloat16:
            return torch.bfloat16
        return compute_dtype(self.hidden, self.weight)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden vectors, weight and bias."""
        return self.hidden, self.weight, self.bias


class _Chunk(NamedTuple):
    """Rows of the hidden vectors that are worked on together.

    Attributes:
        rows: Indices of the rows, or a slice.
        counted: Which of these rows count in the loss, bool `[rows]`; None where all do.
    """

    rows: slice | Tensor
    counted: Tensor | None

    def take(self, hidden: Tensor) -> Tensor:
        """Return the vectors of the rows, `[rows, width]`; 0 for rows that do not count, which may hold NaN."""
        vectors = hidden[self.rows]
        if self.counted is None:
            return vectors
        return vectors.masked_fill(~self.counted[:, None], 0.0)


class _HeadGrads(NamedTuple):
    """Sums of the gradients of a head's tensors, to which each chunk adds; None where no gradient is wanted."""

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

    Beyond its arguments and their gradients it needs memory for two chunks of logits. On a CPU, rows that do not count
    are left out. On other devices they are masked instead, since finding them would make the host wait for the device.
    `torch.compile` does not compile it.

    Args:
        student: Carries gradient.
        teacher: Constant.
        temperature: T, above 0.
        valid: Rows that count, bool `[rows]`; None means all.
        chunk: Most logits of one model at a time, though at least one row; None chooses by device.
        on_host: Whether the indices of the rows that count are read to the host; None does so on a CPU only.

    Returns:
        A scalar in nats, float64 where an argument is float64 and float32 otherwise; it has a first derivative only.
    """
    device = student.hidden.device
    if on_host is None:
        on_host = device.type == "cpu"
    dtype = _dtype_of(student, teacher)
    size = _rows_of_a_chunk(student, chunk)
    teacher_scores = _empty_logits(size, len(student.weight), dtype, device)
    differentiate = _wants_gradient(student)
    scratch = Scratch()

    def compare_in_place(rows: _Chunk, scores: Tensor) -> Tensor:
        """Return the divergence of a chunk, and overwrite its scores by their gradient."""
        targets = teacher_scores[: len(scores)]
        _write_logits(teacher, rows.take(teacher.hidden), temperature, out=targets)
        return _compare(scores, targets, rows.counted, differentiate, scratch)

    return _sum_chunks(
        student,
        _row_chunks(student.hidden, valid, size, on_host=on_host),
        compare_in_place,
        dtype=dtype,
        size=size,
        temperature=temperature,
        objective="soft_label_kl_from_hidden",
        way_out="use soft_label_kl on the logits",
    )


@left_uncompiled
def label_ce_chunked(student: Head, labels: Tensor, labelled: Tensor) -> Tensor:
    """−Σ log softmax(z_r)[label_r] over labelled rows, with z = hidden · weightᵀ + bias.

    The indices of the labelled rows are read to the host on every device, since labels of masked words are few and
    all other rows need not be computed. Otherwise this is as `soft_label_kl_chunked`.

    Args:
        student: Carries gradient.
        labels: Class of each row `[rows]`, 0 … V − 1; anything where there is no label.
        labelled: Rows that count, bool `[rows]`.
    """
    dtype = _dtype_of(student)
    size = _rows_of_a_chunk(student)
    differentiate = _wants_gradient(student)
    scratch = Scratch()

    def compare_in_place(rows: _Chunk, scores: Tensor) -> Tensor:
        """Return the cross-entropy of a chunk, and overwrite its scores by their gradient."""
        labels_of_rows = labels[rows.rows, None].long()
        return _compare_labels(scores, labels_of_rows, differentiate, scratch)

    return _sum_chunks(
        student,
        _row_chunks(student.hidden, labelled, size, on_host=True),
        compare_in_place,
        dtype=dtype,
        size=size,
        temperature=1.0,
        objective="masked_lm_ce_from_hidden",
        way_out="use masked_lm_ce on the logits",
    )


def _sum_chunks(
    student: Head,
    chunks: Iterator[_Chunk],
    compare_in_place: Callable[[_Chunk, Tensor], Tensor],
    *,
    dtype: torch.dtype,
    size: int,
    temperature: float,
    objective: str,
    way_out: str,
) -> Tensor:
    """Return temperature² · Σ of a loss over chunks, with the gradients for the student's head.

    Args:
        student: The student's head.
        chunks: The rows, chunk by chunk.
        compare_in_place: Takes a chunk and its logits / T, `[rows, V]`. Returns the chunk's loss and, where the head
            wants gradients, overwrites the logits by their gradient q − p.
        dtype: Dtype of the logits.
        size: Most rows of a chunk.
        temperature: T.
        objective: Name of the objective as users know it, for the refusal of a second derivative.
        way_out: A way to get one, for the same message.
    """
    wanted = wanted_gradients(*student.tensors)
    device = student.hidden.device
    with torch.no_grad(), autocast_off(device):
        # The sums are in the compute dtype. They are rounded to the tensors' dtype once, after the upstream gradient
        # has scaled them.
        grad_of_tensors: list[Tensor | None] = []
        for tensor, is_wanted in zip(student.tensors, wanted, strict=True):
            grad = None
            if tensor is not None and is_wanted:
                grad_dtype = compute_dtype(student.hidden, student.weight, tensor)
                grad = tensor.new_zeros(tensor.shape, dtype=grad_dtype)
            grad_of_tensors.append(grad)
        grads = _HeadGrads(*grad_of_tensors)

        total = sum_accumulator(device)
        # [size, V]: the logits of every chunk in turn.
        buffer = _empty_logits(size, len(student.weight), dtype, device)
        for chunk in chunks:
            vectors = chunk.take(student.hidden)
            scores = buffer[: len(vectors)]
            _write_logits(student, vectors, temperature, out=scores)
            total += compare_in_place(chunk, scores)
            if any(wanted):
                difference = scores  # The comparison has overwritten them by q − p.
                _add_gradients(student, vectors, difference, chunk, grads)
    # ∂(T · KL)/∂z = q − p, so the gradients above are those of T · KL. Autograd multiplies both by the second T.
    joined = with_gradients(total * temperature, student.tensors, grads, objective, way_out)
    return (joined * temperature).to(dtype)


def _dtype_of(*heads: Head) -> torch.dtype:
    """Return the dtype of the logits of some heads."""
    tensors = [tensor for head in heads for tensor in head.tensors if tensor is not None]
    return compute_dtype(*tensors)


def _rows_of_a_chunk(head: Head, logits: int | None = None) -> int:
    """Return the number of rows of a chunk, 1 or more.

    Args:
        head: The student's head.
        logits: Most logits of a chunk; None chooses by device.
    """
    if logits is None:
        logits = logits_at_once(head.hidden.device)
    rows = max(1, logits // len(head.weight))
    return min(rows, max(1, len(head.hidden)))


def _wants_gradient(head: Head) -> bool:
    """Whether a gradient is wanted for any tensor of a head."""
    return any(wanted_gradients(*head.tensors))


def _empty_logits(rows: int, classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uninitialised memory for logits, `[rows, classes]`, which every thread may write."""
    # A tensor made in inference mode may only be written in inference mode, and other threads are not in it.
    with torch.inference_mode(False):
        return torch.empty(rows, classes, dtype=dtype, device=device)


def _row_chunks(hidden: Tensor, valid: Tensor | None, size: int, *, on_host: bool) -> Iterator[_Chunk]:
    """Yield the rows in chunks.

    Args:
        hidden: `[rows, width]`.
        valid: Rows that count, bool `[rows]`; None means all.
        size: Most rows of a chunk.
        on_host: Read the indices of the rows that count, and leave out the others; else chunks have a mask of them.
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
    """Divide the classes into blocks, whose logits are computed one after the other or by different threads.

    There are several blocks where weights or logits have to be converted, since each conversion needs memory for a
    copy, and on a CPU of several threads. Otherwise all classes are one block.

    Args:
        head: The head.
        rows: Rows of the chunk.
        dtype: Dtype of the logits.
    """
    classes, width = head.weight.shape
    on_cpu = head.weight.device.type == "cpu"
    converts = head.weight.dtype != head.dtype or head.dtype != dtype
    step = classes
    if converts:
        # A class has a row of the weight, `width` numbers, and a column of the logits, `rows` numbers.
        most_converted = CONVERTED if on_cpu else DEVICE_CONVERTED
        step = max(1, most_converted // max(rows, width, 1))
    threads = torch.get_num_threads()
    if on_cpu and threads > 1 and rows * classes >= FEW_LOGITS:
        step = min(step, math.ceil(classes / (TASKS_PER_THREAD * threads)))

    # Blocks of an accelerator are multiples of `DEVICE_CLASSES`. A last block has the classes that are left over.
    multiple = DEVICE_CLASSES if converts and not on_cpu else 1
    step = max(multiple, step // multiple * multiple)
    divisible_classes = classes // multiple * multiple
    blocks = [slice(first, min(first + step, divisible_classes)) for first in range(0, divisible_classes, step)]
    if divisible_classes < classes:
        blocks.append(slice(divisible_classes, classes))
    return blocks


def _write_logits(head: Head, vectors: Tensor, temperature: float, out: Tensor) -> None:
    """Write (vectors · weightᵀ + bias) / T to `out`, `[rows, V]`."""
    vectors = vectors.to(head.dtype)
    blocks = _class_blocks(head, len(vectors), out.dtype)
    tasks = [partial(_write_logits_of_classes, head, vectors, temperature, out, block) for block in blocks]
    run_tasks(tasks, out.device.type)


def _write_logits_of_classes(head: Head, vectors: Tensor, temperature: float, out: Tensor, classes: slice) -> None:
    """Write the logits of some classes to their columns of `out`; arguments as of `_write_logits`."""
    weight = head.weight[classes].to(head.dtype)
    part = out[:, classes]
    if head.dtype == out.dtype:
        torch.mm(vectors, weight.mT, out=part)
    else:
        part.copy_(vectors @ weight.mT)
    if head.bias is not None:
        part += head.bias[classes]
    if temperature != 1:
        part /= temperature


def _compare(scores: Tensor, targets: Tensor, counted: Tensor | None, differentiate: bool, scratch: Scratch) -> Tensor:
    """Sum KL(softmax(targets) ‖ softmax(scores)) over the rows that count.

    Args:
        scores: The student's logits / T, `[rows, V]`. With `differentiate` they are overwritten by q − p.
        targets: The teacher's logits / T, `[rows, V]`.
        counted: Rows that count, bool `[rows]`; None means all.
        differentiate: Compute the gradient for the scores.
        scratch: Memory for intermediate results.
    """
    return _sum_slices(scores, partial(_divergence_of_rows, scores, targets, counted, differentiate, scratch))


def _divergence_of_rows(
    scores: Tensor, targets: Tensor, counted: Tensor | None, differentiate: bool, scratch: Scratch, rows: slice
) -> Tensor:
    """Return the divergence of each row of a slice, `[rows]`; arguments as of `_compare`."""
    # Each is [rows, V] and is written in place, since new tensors of this size would have to be mapped each time.
    shape = scores[rows].shape
    log_q = scratch.take("student", shape, scores, scores.dtype)
    log_p = scratch.take("teacher", shape, scores, scores.dtype)
    p = scratch.take("share", shape, scores, scores.dtype)
    torch.log_softmax(scores[rows], -1, out=log_q)
    torch.log_softmax(targets[rows], -1, out=log_p)
    torch.exp(log_p, out=p)

    # Σ p (log p − log q), in the memory of log p. An excluded class has p = 0 and log p = −inf, whose product would be
    # NaN; it adds nothing.
    products = log_p.sub_(log_q).mul_(p).masked_fill_(p == 0, 0.0)
    divergence = products.sum(-1)
    if counted is not None:
        divergence.masked_fill_(~counted[rows], 0.0)

    if differentiate:
        # The gradient q − p takes the place of the scores.
        q = log_q.exp_()
        torch.sub(q, p, out=scores[rows])
        if counted is not None:
            scores[rows].masked_fill_(~counted[rows, None], 0.0)
    return divergence


def _compare_labels(scores: Tensor, labels: Tensor, differentiate: bool, scratch: Scratch) -> Tensor:
    """Sum the cross-entropies −log softmax(scores) at the labels.

    Args:
        scores: The student's logits, `[rows, V]`. With `differentiate` they are overwritten by their gradient.
        labels: Class of each row, int64 `[rows, 1]`.
        differentiate: Compute the gradient for the scores.
        scratch: Memory for intermediate results.
    """
    return _sum_slices(scores, partial(_cross_entropy_of_rows, scores, labels, differentiate, scratch))


def _cross_entropy_of_rows(
    scores: Tensor, labels: Tensor, differentiate: bool, scratch: Scratch, rows: slice
) -> Tensor:
    """Return the cross-entropy of each row of a slice, `[rows, 1]`; arguments as of `_compare_labels`."""
    log_q = scratch.take("student", scores[rows].shape, scores, scores.dtype)
    torch.log_softmax(scores[rows], -1, out=log_q)
    cross_entropy = -log_q.gather(1, labels[rows])
    if differentiate:
        # The gradient takes the place of the scores: q, less 1 at the label.
        torch.exp(log_q, out=scores[rows])
        scores[rows].scatter_add_(1, labels[rows], torch.full_like(cross_entropy, -1.0))
    return cross_entropy


def _sum_slices(scores: Tensor, compare: Callable[[slice], Tensor]) -> Tensor:
    """Sum the losses of all rows, slice by slice, each with as many logits as stay in cache.

    Args:
        scores: Logits, `[rows, V]`.
        compare: Returns the losses of the rows of a slice.
    """
    size = CPU_SLICE if scores.device.type == "cpu" else DEVICE_SLICE
    step = max(1, size // scores.shape[1])
    total = sum_accumulator(scores.device)

    def add_up(rows: slice) -> Tensor:
        """Sum the losses of the rows of a slice."""
        return compare(rows).sum(dtype=total.dtype)

    tasks = [partial(add_up, slice(first, first + step)) for first in range(0, len(scores), step)]
    return sum(run_tasks(tasks, scores.device.type), total)


def _add_gradients(head: Head, vectors: Tensor, difference: Tensor, chunk: _Chunk, grads: _HeadGrads) -> None:
    """Add a chunk's part of the gradients of hidden vectors, weight and bias.

    With D = q − p, `[rows, V]`, they are D · weight for the hidden vectors, Dᵀ · hidden for the weight, and the sum of
    D over the rows for the bias. q are the student's probabilities, and p the teacher's, or 1 at a row's label and 0
    elsewhere. In rows that do not count, D is 0.

    Args:
        head: The student's head.
        vectors: Hidden vectors of the chunk, `[rows, width]`.
        difference: D, `[rows, V]`.
        chunk: The rows.
        grads: The sums, which are changed in place.
    """
    vectors = vectors.to(head.dtype)
    blocks = _class_blocks(head, len(vectors), difference.dtype)
    tasks = [partial(_add_gradients_of_classes, head, vectors, difference, grads, block) for block in blocks]
    parts_of_hidden = run_tasks(tasks, vectors.device.type)
    if grads.hidden is not None:
        # [rows, width]. Each row is in one chunk, so its gradient is written, not added.
        total = vectors.new_zeros(vectors.shape, dtype=grads.hidden.dtype)
        for part_of_hidden in parts_of_hidden:
            assert part_of_hidden is not None
            total = total + part_of_hidden
        grads.hidden[chunk.rows] = total


def _add_gradients_of_classes(
    head: Head, vectors: Tensor, difference: Tensor, grads: _HeadGrads, classes: slice
) -> Tensor | None:
    """Add to the gradients of the weights and biases of some classes; arguments as of `_add_gradients`.

    Returns:
        The part of these classes in the gradient of the hidden vectors, `[rows, width]`; None if it is not wanted.
    """
    part = difference[:, classes]
    if grads.bias is not None:
        grads.bias[classes] += part.sum(0)
    factor = part.to(head.dtype)  # [rows, classes], in the dtype of the matmuls
    if grads.weight is not None:
        if grads.weight.dtype == factor.dtype:
            # Adds without a temporary product.
            grads.weight[classes].addmm_(factor.mT, vectors)
        else:
            grads.weight[classes] += factor.mT @ vectors
    if grads.hidden is None:
        return None
    return factor @ head.weight[classes].to(head.dtype)
