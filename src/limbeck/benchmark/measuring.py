"""Bounds of a measurement: operations and peak rates (a roofline), peak memory, and sizes too large to be measured.

Peak memory is that of an accelerator's allocator, or on a CPU the resident size of a process that does nothing else.
Only matrix products are counted, a multiplication and an addition as two; only valid tokens take part, so padding is
waste. With l_b valid tokens in sample b, n = Σ l_b and s = Σ l_b²:

    a block                2 n Σ(numbers of its matrices) + 4 s A D          (projections and FFN; scores and their use)
    its projections alone  2 n H (A + 2 A') D                                (A query heads, A' key and value heads)
    a factorised embedding 2 n E H
    scores of V tokens     2 (scored tokens) V H + 2 n Σ(numbers of the head's other matrices)
    the same, left to loss 2 n_t V (3 H_S + H_T) for a term of n_t tokens; see `Term.takes_from_hidden`
    backward               twice the forward
    a learned map          6 n W_S W_T, with forward and both gradients; over R relation heads divided by R
    a loss                 as its objective counts (`Objective.operations`)

Sliding windows count as full attention. Norms, activations, softmax, embeddings, poolers, heads without a vocabulary,
terms over whole samples have no products worth counting: they are why 100 % is out of reach. The optimizer's floor is
the bytes that it moves; see `Step.optimizer_bytes`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import nn

from limbeck.core.devices import synchronise
from limbeck.core.memory import peak_memory_bytes, release_freed_memory
from limbeck.core.timing import stopwatch, take_turns
from limbeck.core.workers import Send, run_tasks
from limbeck.errors import RecipeError
from limbeck.methods.layer_mapping import stream_width
from limbeck.methods.term import Term
from limbeck.models import packed_linear, taps
from limbeck.models.families import Shape, blocks, family_of
from limbeck.models.streams import SENTENCE_KINDS
from limbeck.objectives import OBJECTIVES, Workload

# Rows of the square matrices: large enough that more would not be faster, small enough to be done soon.
CPU_SIZE, DEVICE_SIZE = 1536, 8192
# Numbers that are copied: more than any cache holds.
COPIED = 1 << 26


def measure_ceiling(
    device: torch.device, dtype: torch.dtype, *, size: int | None = None, seconds: float = 1.0
) -> float:
    """Measure the operations a second of a square matrix product, which has 2 · size³.

    The fastest pass counts: whatever slows one down is no property of the machine. On a CPU the weights are packed as a
    teacher's are, which is faster than a plain product. Settings of PyTorch that decide how products in float32 are
    computed (TF32) apply as in training.

    Args:
        device: Where.
        dtype: Of the matrices.
        size: Rows and columns; None chooses by device.
        seconds: For all passes; at least three are made.
    """
    rows = size or (CPU_SIZE if device.type == "cpu" else DEVICE_SIZE)
    left = torch.randn(rows, rows, device=device).to(dtype)
    linear = nn.Sequential(nn.Linear(rows, rows, bias=False, device=device, dtype=dtype)).requires_grad_(False)
    packed_linear.pack_linear_maps([linear])
    run = stopwatch(lambda: linear(left), device)
    fastest = min(take_turns({"matmul": run}, seconds=seconds)["matmul"])
    return 2 * rows**3 / fastest


def measure_bandwidth(device: torch.device, *, numbers: int = COPIED, seconds: float = 1.0) -> float:
    """Measure the bytes a second that memory moves, read and written, in a copy of float32; the fastest pass counts.

    Args:
        device: Whose memory.
        numbers: How many are copied.
        seconds: For all passes; at least three are made.
    """
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    run = stopwatch(lambda: target.copy_(source), device)
    return 2 * source.element_size() * numbers / min(take_turns({"copy": run}, seconds=seconds)["copy"])


BYTES_PER_MEGABYTE = 1_000_000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Peak:
    """The highest memory while something ran, in megabytes (10⁶ bytes); None where it could not be had.

    Attributes:
        total_mb: On a CPU of the whole process, on an accelerator of all tensors.
        extra_mb: Above what was held before.
        note: Why it could not be had; else empty.
    """

    total_mb: float | None = None
    extra_mb: float | None = None
    note: str = ""


def watch_peak(run: Callable[[], object], device: torch.device) -> Peak:
    """Run something once and return the highest memory meanwhile.

    On a CPU it is exact in a fresh process; see `peak_of`. An accelerator other than CUDA gives none.
    """
    if device.type == "cuda":
        synchronise(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        synchronise(device)
        return _peak(before, torch.cuda.max_memory_allocated(device))
    if device.type != "cpu":
        run()
        return Peak(note=f"the peak memory of {device.type} cannot be read")
    release_freed_memory()
    # Linux counts the highest resident size anew, since making the inputs may have taken more. Where a sandbox forbids
    # it, the highest size is that since the start.
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")
    before = psutil.Process().memory_info().rss
    run()
    return _peak(before, _highest_resident())


def peak_of(measure: Callable[[], Peak], device: torch.device) -> Peak:
    """Measure a peak; on a CPU in its own process, which leaves out what this one holds.

    Args:
        measure: Measures it: a function of a module, or a partial one, since the process starts from scratch.
        device: Where.
    """
    if device.type != "cpu":
        return measure()
    found: list[Peak] = []
    run_tasks(
        _send_peak, [measure], workers=1, received=lambda _, peak: found.append(peak),
        ended=lambda _, problem: found.append(Peak(note=f"memory: {problem}"[:168])),
    )  # fmt: skip
    return found[0]


def _send_peak(measure: Callable[[], Peak], send: Send) -> None:
    send(measure())


def _peak(before: int, highest: int) -> Peak:
    return Peak(highest / BYTES_PER_MEGABYTE, max(0, highest - before) / BYTES_PER_MEGABYTE)


def _highest_resident() -> int:
    """Highest resident size of this process in bytes.

    On Linux `getrusage` would also count what the parent held when it started this process.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return peak_memory_bytes()


LONGEST = 131_072
"""Tokens of a text where no saved model says how many it takes; more than any encoder here does."""


def check_length(option: str, lengths: Iterable[int]) -> None:
    """Refuse texts longer than `LONGEST` tokens.

    Args:
        option: That gave them, for the message.
        lengths: In tokens.

    Raises:
        RecipeError: naming the longest.
    """
    longest = max(lengths)
    if longest > LONGEST:
        raise RecipeError(
            f"{option} {longest} is more than the {LONGEST} tokens that a text may have here; use {LONGEST} or less."
        )


def check_memory(options: str, least_bytes: float, device: torch.device) -> None:
    """Refuse what cannot fit into the free memory of a device.

    Args:
        options: That ask for it, with their values, for the message.
        least_bytes: A lower bound of its memory.
        device: Where.

    Raises:
        RecipeError: with both amounts.
    """
    free = free_bytes(device)
    if least_bytes > free:
        raise RecipeError(
            f"{options} take at least {least_bytes / 1e9:,.0f} GB of memory, but only {free / 1e9:,.0f} GB of "
            f"{device.type} "
            "memory are free; use smaller numbers."
        )


def free_bytes(device: torch.device) -> float:
    """Return the free memory of a device; infinity where it does not tell."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(psutil.virtual_memory().available) if device.type == "cpu" else math.inf


def least_forward_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return what a forward pass holds at once at the very least: input and intermediate of one block."""
    return tokens * (shape.ffn + 2 * shape.hidden) * itemsize


def least_training_bytes(shape: Shape, tokens: int, itemsize: int) -> int:
    """Return what a backward pass needs of the forward pass at the very least.

    That is of every block its intermediate, and the inputs of its four matrix products with one of its attention.
    """
    return shape.layers * tokens * (shape.ffn + 4 * shape.hidden) * itemsize


@dataclass(frozen=True)
class ForwardCost:
    """What a forward pass multiplies, as numbers of matrices.

    Attributes:
        weights: Numbers of the matrices that every valid token is multiplied with.
        attention_widths: A · D of each block whose attention runs.
        decoder: Numbers of the matrix that gives scores over the vocabulary; 0 where none are read.
    """

    weights: int
    attention_widths: tuple[int, ...]
    decoder: int = 0

    def operations(self, lengths: Sequence[int], scored: int = 0) -> int:
        """Count the operations of a batch.

        Args:
            lengths: Valid tokens of each sample.
            scored: Tokens that are scored over the vocabulary.
        """
        tokens, squares = sum(lengths), sum(length**2 for length in lengths)
        return 2 * tokens * self.weights + 4 * squares * sum(self.attention_widths) + 2 * scored * self.decoder


def forward_cost(tap: taps.StreamTap, shape: Shape) -> ForwardCost:
    """Work out what a tapped model runs: no more than its streams need.

    Args:
        tap: The tap on the model.
        shape: The model's shape, before blocks were dropped.
    """
    width = shape.heads * shape.head_size
    projections = shape.hidden * (shape.heads + 2 * shape.key_value_heads) * shape.head_size
    weights, attention = 0, []
    if family_of(tap.base.config).embedding_projection is not None and shape.embedding != shape.hidden:
        weights += shape.embedding * shape.hidden
    plan = tap.recorder
    for layer, block in enumerate(blocks(tap.model)[: plan.last_layer], start=1):
        whole = layer < plan.last_layer or plan.stop_after == "block"
        weights += _matrix_numbers(block) if whole else projections
        if whole or plan.stop_after == "context":
            attention.append(width)
    decoder = tap.model.get_output_embeddings() if any(key.kind == "logits" for key in tap.keys) else None
    if decoder is None:
        return ForwardCost(weights, tuple(attention))
    inside = {id(parameter) for parameter in (*tap.base.parameters(), *decoder.parameters())}
    weights += sum(p.numel() for p in tap.model.parameters() if p.dim() == 2 and id(p) not in inside)
    return ForwardCost(weights, tuple(attention), decoder.weight.numel())


def loss_operations(term: Term, student: Shape, teacher: Shape, lengths: Sequence[int]) -> int:
    """Count the operations of a term and of its gradient for the student's streams.

    Args:
        term: The term.
        student: The student's shape.
        teacher: The teacher's shape.
        lengths: Valid tokens of each sample.
    """
    total = _map_operations(term, lengths)
    if not term.teacher:
        return total
    own, other = stream_width(student, term.student[0].kind), stream_width(teacher, term.teacher[0].kind)
    if term.teacher_heads is not None:
        other = other * term.teacher_heads.groups // term.teacher_heads.heads
    count = OBJECTIVES[term.objective].operations
    if count is None:
        return total
    return total + count(Workload(lengths, own, other, len(set(term.student)), len(set(term.teacher)), term.options))


def _map_operations(term: Term, lengths: Sequence[int]) -> int:
    """Forward and both gradients of a learned map, once for each of the student's layers where it takes several."""
    if term.learned_map is None:
        return 0
    a_sample = term.student[0].kind in ("cls", *SENTENCE_KINDS)
    rows = (len(lengths) if a_sample else sum(lengths)) * len(term.student)
    return 6 * rows * term.learned_map.inputs * term.learned_map.outputs // (term.learned_map.heads or 1)


def _matrix_numbers(block: nn.Module) -> int:
    packed = sum(m.in_features * m.out_features for m in block.modules() if isinstance(m, packed_linear.PackedLinear))
    return packed + sum(parameter.numel() for parameter in block.parameters() if parameter.dim() == 2)
