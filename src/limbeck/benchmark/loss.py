"""`limbeck benchmark loss`: what a loss costs by each of its backends, and how exact each is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from limbeck.benchmark import limits, peak_memory
from limbeck.benchmark.peak_memory import Peak
from limbeck.benchmark.rows import Row, tidy
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.timing import Tell, speedup, stopwatch, summarise, take_turns, tell_rounds
from limbeck.errors import RecipeError, suggestion
from limbeck.models.loading import as_dtype
from limbeck.objectives import OBJECTIVES, Benchmark, LossTerm


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
        dtype: Of the streams.
        device: Where they are.
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
        student: Two tensors of the student, which may be the same.
        teacher: The same of the teacher.
        valid: Real tokens, bool `[B, L]`.
        options: Further keywords of the objective.
    """

    student: Sequence[Tensor]
    teacher: Sequence[Tensor]
    valid: Tensor
    options: Mapping[str, Any]

    @property
    def leaves(self) -> list[Tensor]:
        """The student's tensors, each once."""
        first, second = self.student
        return [first] if first is second else [first, second]

    def double(self) -> Inputs:
        """Return the same numbers in float64, on the CPU where the device has none."""
        device = self.valid.device
        if device.type == "mps":
            device = torch.device("cpu")
        # A tensor that stands twice is one tensor afterwards too.
        doubles: dict[int, Tensor] = {}
        for tensor in (*self.student, *self.teacher):
            doubles[id(tensor)] = tensor.detach().to(device).double().requires_grad_(tensor.requires_grad)
        student = [doubles[id(tensor)] for tensor in self.student]
        teacher = [doubles[id(tensor)] for tensor in self.teacher]
        return Inputs(student, teacher, self.valid.to(device), self.options)


def measured_objectives() -> dict[str, Benchmark]:
    """Return the objectives that can be measured, by name."""
    return {name: objective.benchmark for name, objective in OBJECTIVES.items() if objective.benchmark is not None}


def benchmark_of(objective: str) -> Benchmark:
    """Return the benchmark of an objective.

    Raises:
        RecipeError: if the objective is unknown, or has none.
    """
    known = measured_objectives()
    if objective not in known:
        raise RecipeError(f"Unknown objective '{objective}'.{suggestion(objective, known)}")
    return known[objective]


def make_inputs(case: LossCase) -> Inputs:
    """Draw the random streams of a case; nothing larger than them is ever resident."""
    device = torch.device(case.device)
    generator = torch.Generator(device).manual_seed(0)  # Output weights of a large vocabulary take seconds on a CPU.

    def normal(*shape: int, deviation: float = 1.0) -> Tensor:
        numbers = torch.empty(shape, dtype=as_dtype(case.dtype), device=device)
        return numbers.normal_(std=deviation, generator=generator)

    student, teacher, options = benchmark_of(case.objective).inputs(case, normal)
    for tensor in student:
        tensor.requires_grad_()
    lengths = torch.full((case.batch, 1), case.length)
    if case.mask == "ragged":
        host_generator = generator if device.type == "cpu" else torch.Generator().manual_seed(0)
        shortest = max(1, case.length // 2)
        lengths = torch.randint(shortest, case.length + 1, (case.batch, 1), generator=host_generator)
    valid = torch.arange(case.length) < lengths
    return Inputs(student, teacher, valid.to(device), options)


def run_loss(backend: Callable[..., LossTerm], inputs: Inputs) -> Tensor:
    """Run forward and backward of the summed loss; return its value, and leave the gradients on the leaves."""
    for leaf in inputs.leaves:
        leaf.grad = None
    value = backend(*inputs.student, *inputs.teacher, valid=inputs.valid, **inputs.options).total
    value.backward()
    return value.detach()


def smaller(case: LossCase) -> LossCase:
    """Return a very small case of the same kind, on which everything is loaded that is loaded once."""
    return replace(case, batch=1, length=min(case.length, 8), classes=min(case.classes, 64))


def megabytes_needed(case: LossCase) -> float:
    """Return about how much memory the plain backend takes, in megabytes."""
    return benchmark_of(case.objective).numbers_at_once(case) * 4 / peak_memory.BYTES_PER_MEGABYTE


def measure_peak(case: LossCase, backend: str) -> Peak:
    """Measure the peak memory of one forward and backward, the gradients included."""
    run = benchmark_of(case.objective).backends[backend]
    run_loss(run, make_inputs(smaller(case)))  # Loads what is loaded once.
    inputs = make_inputs(case)
    return peak_memory.watch_peak(lambda: run_loss(run, inputs), torch.device(case.device))


# Errors are measured on less: float64 by the plain way takes many times the memory.
ERROR_BATCH = 2
ERROR_MEGABYTES = 2000
# Of the free memory that a plain backend may be expected to take.
FREE_SHARE = 0.7
COLUMNS = (
    "objective", "backend", "batch", "length", "heads", "classes", "teacher_width", "student_width", "mask", "relation",
    "dtype", "device_type", "rounds", "median_ms", "p10_ms", "p90_ms", "speedup", "tokens_per_second", "peak_extra_mb",
    "value_error", "gradient_error", "note",
)  # fmt: skip
# An objective names those of them that matter.
_SOME_SIZES = ("heads", "classes", "relation")
_TIMED = 0.7  # Share of a case's progress that the timing is given.


def measure_losses(
    cases: Sequence[LossCase],
    backends: Sequence[str] = (),
    *,
    seconds: float = 30.0,
    memory: bool = True,
    report: Report = no_progress,
) -> list[Row]:
    """Measure forward and backward of a loss by each backend.

    The backends of a case take turns; `speedup` refers to the first. Errors are relative, against the plain backend in
    float64 on the same numbers: |value − exact| / |exact|, and ‖gradient − exact‖ / ‖exact‖. A plain backend that would
    not fit into the free memory has a row that says so.

    Args:
        cases: Sizes to measure.
        backends: Names of the objective's backends; empty means all that can run on the device.
        seconds: For all timings together; at least five rounds are made of each case.
        memory: Measure peak memory too, on a CPU in a process for each backend.
        report: Receives the progress.

    Returns:
        One row a case and backend.

    Raises:
        LimbeckError: if a backend is unknown or cannot run here, heads do not divide widths, or a case is too large.
    """
    # All cases are checked before any is measured.
    names_of_cases = [_check(case, backends) for case in cases]
    rows: list[Row] = []
    for index, (case, names) in enumerate(zip(cases, names_of_cases, strict=True)):
        progress = part_of(report, index / len(cases), (index + 1) / len(cases))
        rows += _measure(case, names, seconds / len(cases), memory, progress)
    return rows


def errors_of(case: LossCase, backends: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the relative errors of value and gradient of each backend, see `measure_losses`."""
    benchmark = benchmark_of(case.objective)
    inputs = make_inputs(case)
    double = inputs.double()
    exact = run_loss(benchmark.backends[benchmark.plain], double)
    exact_gradient = _gradient(double, exact.device)
    errors = {}
    for name in backends:
        value = run_loss(benchmark.backends[name], inputs).to(exact.device).double()
        value_error = (value - exact).abs() / exact.abs()
        gradient_error = (_gradient(inputs, exact.device) - exact_gradient).norm() / exact_gradient.norm()
        errors[name] = (float(value_error), float(gradient_error))
    return errors


def error_case(case: LossCase) -> LossCase:
    """Return the case that errors are measured on: at most two samples, shorter ones where float64 takes too much."""
    small = replace(case, batch=min(case.batch, ERROR_BATCH))
    while 2 * megabytes_needed(small) > ERROR_MEGABYTES:
        if small.batch > 1:
            small = replace(small, batch=1)
        elif small.length > 1:
            small = replace(small, length=small.length // 2)
        else:
            break
    return small


def _gradient(inputs: Inputs, device: torch.device) -> Tensor:
    """The student's gradients, joined, in float64."""
    gradients = [leaf.grad for leaf in inputs.leaves if leaf.grad is not None]
    return torch.cat([gradient.flatten().to(device).double() for gradient in gradients])


def _check(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends of a case, each of which has run on a very small one."""
    benchmark = benchmark_of(case.objective)
    device = torch.device(case.device)
    limits.check_length("--lengths", [case.length])
    # The student's tensors with their gradient; where there are classes, output weights too.
    rows = case.batch * case.length
    if "classes" in benchmark.sizes:
        rows += case.classes
    least = rows * (2 * case.student_width + case.teacher_width) * as_dtype(case.dtype).itemsize
    limits.check_memory(f"--batch {case.batch} and --lengths {case.length}", least, device)
    for name in backends:
        if name not in benchmark.backends:
            raise RecipeError(f"Unknown backend '{name}' for this objective.{suggestion(name, benchmark.backends)}")
    # Triton's interpreter is for tests alone.
    names = backends or [name for name in benchmark.backends if name != "triton" or device.type == "cuda"]
    inputs = make_inputs(smaller(case))
    for name in names:
        run_loss(benchmark.backends[name], inputs)
    return list(dict.fromkeys(names))


def _measure(case: LossCase, backends: Sequence[str], seconds: float, memory: bool, report: Report) -> list[Row]:
    """Measure a case by each backend that fits into memory; the others have a row that says so."""
    device = torch.device(case.device)
    title = f"{case.objective}, {case.batch} x {case.length} tokens, {case.heads} heads"
    report(0.0, title)
    fitting = _fitting(case, backends)
    times, tokens = _measure_times(case, fitting, seconds, tell_rounds(part_of(report, 0.0, _TIMED), title))
    errors = errors_of(error_case(case), fitting) if fitting else {}

    rows: list[Row] = []
    for index, name in enumerate(backends):
        row = _empty_row(case, name)
        rows.append(row)
        if name not in fitting:
            row["note"] = f"not measured: needs about {megabytes_needed(case) / 1000:.0f} GB of memory"
            continue
        done = _TIMED + (1 - _TIMED) * index / len(backends)
        report(done, f"{title}: memory of {name}", Count(index, "backends"))
        peak = peak_memory.peak_of(partial(measure_peak, case, name), device) if memory else Peak()
        spread = summarise(times[name])
        row |= spread
        row["rounds"] = len(times[name])
        if fitting[0] == backends[0]:
            row["speedup"] = speedup(times[backends[0]], times[name])
        row["tokens_per_second"] = tokens / spread["median_ms"] * 1000
        row["peak_extra_mb"] = peak.extra_mb
        row["value_error"], row["gradient_error"] = errors[name]
        row["note"] = peak.note
    report(1.0, title)
    return [tidy(row) for row in rows]


def _fitting(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends that fit into the free memory; the plain one alone may not."""
    needed = megabytes_needed(case) * peak_memory.BYTES_PER_MEGABYTE
    if needed <= FREE_SHARE * limits.free_bytes(torch.device(case.device)):
        return list(backends)
    return [name for name in backends if name != benchmark_of(case.objective).plain]


def _measure_times(
    case: LossCase, backends: Sequence[str], seconds: float, tell: Tell
) -> tuple[dict[str, list[float]], int]:
    """Time backends in turns; return the seconds of each round by backend, and the valid tokens of a round."""
    inputs = make_inputs(case)
    runs = {}
    for name in backends:
        loss = partial(run_loss, benchmark_of(case.objective).backends[name], inputs)
        runs[name] = stopwatch(loss, torch.device(case.device))
    times = take_turns(runs, seconds=seconds, tell=tell) if runs else {}
    return times, int(inputs.valid.sum())


def _empty_row(case: LossCase, backend: str) -> Row:
    """Return a row with the sizes that matter, and no figure yet."""
    sizes = benchmark_of(case.objective).sizes
    row: Row = {"backend": backend, "device_type": torch.device(case.device).type}
    for name, value in asdict(case).items():
        if name not in _SOME_SIZES or name in sizes:
            row[name] = value
    return {name: row.get(name) for name in COLUMNS}
