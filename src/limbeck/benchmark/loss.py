"""`limbeck benchmark loss`: what a loss costs by each of its backends, and how exact each is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from limbeck.benchmark import measuring
from limbeck.benchmark.measuring import Peak
from limbeck.benchmark.rows import Row, tidy
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.timing import speedup, stopwatch, summarise, take_turns, tell_rounds
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
        device = torch.device("cpu") if self.valid.device.type == "mps" else self.valid.device
        found = {
            id(x): x.detach().to(device).double().requires_grad_(x.requires_grad)
            for x in (*self.student, *self.teacher)
        }
        student, teacher = ([found[id(x)] for x in tensors] for tensors in (self.student, self.teacher))
        return Inputs(student, teacher, self.valid.to(device), self.options)


def measured_objectives() -> dict[str, Benchmark]:
    """Return the objectives that can be measured, by name."""
    return {name: found.benchmark for name, found in OBJECTIVES.items() if found.benchmark is not None}


def benchmark_of(objective: str) -> Benchmark:
    """Return how an objective is measured.

    Raises:
        RecipeError: if it is unknown, or says nothing about that.
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
        drawn = torch.empty(shape, dtype=as_dtype(case.dtype), device=device)
        return drawn.normal_(std=deviation, generator=generator)

    student, teacher, options = benchmark_of(case.objective).inputs(case, normal)
    for x in student:
        x.requires_grad_()
    lengths = torch.full((case.batch, 1), case.length)
    if case.mask == "ragged":
        on_host = generator if device.type == "cpu" else torch.Generator().manual_seed(0)
        lengths = torch.randint(max(1, case.length // 2), case.length + 1, (case.batch, 1), generator=on_host)
    return Inputs(student, teacher, (torch.arange(case.length) < lengths).to(device), options)


def run_loss(backend: Callable[..., LossTerm], inputs: Inputs) -> Tensor:
    """Run forward and backward of the summed loss; return its value, and leave the gradients on the leaves."""
    for x in inputs.leaves:
        x.grad = None
    value = backend(*inputs.student, *inputs.teacher, valid=inputs.valid, **inputs.options).total
    value.backward()
    return value.detach()


def smaller(case: LossCase) -> LossCase:
    """Return a very small case of the same kind, on which everything is loaded that is loaded once."""
    return replace(case, batch=1, length=min(case.length, 8), classes=min(case.classes, 64))


def megabytes_needed(case: LossCase) -> float:
    """Return about how much memory the plain backend takes, in megabytes."""
    return benchmark_of(case.objective).numbers_at_once(case) * 4 / measuring.BYTES_PER_MEGABYTE


def measure_peak(case: LossCase, backend: str) -> Peak:
    """Measure the peak memory of one forward and backward, the gradients included."""
    run = benchmark_of(case.objective).backends[backend]
    run_loss(run, make_inputs(smaller(case)))  # Loads what is loaded once.
    inputs = make_inputs(case)
    return measuring.watch_peak(lambda: run_loss(run, inputs), torch.device(case.device))


# Errors are measured on less: float64 by the plain way takes many times the memory.
ERROR_BATCH, ERROR_MEGABYTES = 2, 2000
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
    # Found before anything is measured: what cannot run at all.
    chosen = [_check(case, backends) for case in cases]
    rows: list[Row] = []
    for index, (case, names) in enumerate(zip(cases, chosen, strict=True)):
        here = part_of(report, index / len(cases), (index + 1) / len(cases))
        rows += _measure(case, names, seconds / len(cases), memory, here)
    return rows


def errors_of(case: LossCase, backends: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the relative errors of value and gradient of each backend, see `measure_losses`."""
    benchmark, inputs = benchmark_of(case.objective), make_inputs(case)
    double = inputs.double()
    exact = run_loss(benchmark.backends[benchmark.plain], double)
    exact_gradient = _gradient(double, exact.device)
    found = {}
    for name in backends:
        value = run_loss(benchmark.backends[name], inputs).to(exact.device).double()
        difference = (_gradient(inputs, exact.device) - exact_gradient).norm() / exact_gradient.norm()
        found[name] = (float((value - exact).abs() / exact.abs()), float(difference))
    return found


def error_case(case: LossCase) -> LossCase:
    """Return the case that errors are measured on: at most two samples, shorter ones where float64 takes too much."""
    small = replace(case, batch=min(case.batch, ERROR_BATCH))
    while 2 * megabytes_needed(small) > ERROR_MEGABYTES and (small.batch, small.length) != (1, 1):
        small = replace(small, batch=1, length=small.length if small.batch > 1 else small.length // 2)
    return small


def _gradient(inputs: Inputs, device: torch.device) -> Tensor:
    """The student's gradients, joined, in float64."""
    return torch.cat([x.grad.flatten().to(device).double() for x in inputs.leaves if x.grad is not None])


def _check(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends of a case, each of which has run on a very small one."""
    benchmark, device = benchmark_of(case.objective), torch.device(case.device)
    measuring.check_length("--lengths", [case.length])
    rows = case.batch * case.length + (case.classes if "classes" in benchmark.sizes else 0)
    # The student's tensors with their gradient; where there are classes, output weights too.
    least = rows * (2 * case.student_width + case.teacher_width) * as_dtype(case.dtype).itemsize
    measuring.check_memory(f"--batch {case.batch} and --lengths {case.length}", least, device)
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
    benchmark, device = benchmark_of(case.objective), torch.device(case.device)
    what = f"{case.objective}, {case.batch} x {case.length} tokens, {case.heads} heads"
    needed = megabytes_needed(case)
    fits = needed * measuring.BYTES_PER_MEGABYTE <= FREE_SHARE * measuring.free_bytes(device)
    fit = [name for name in backends if fits or name != benchmark.plain]
    report(0.0, what)
    inputs = make_inputs(case)
    runs = {name: stopwatch(partial(run_loss, benchmark.backends[name], inputs), device) for name in fit}
    tell = tell_rounds(part_of(report, 0.0, _TIMED), what)
    times = take_turns(runs, seconds=seconds, tell=tell) if fit else {}
    tokens = int(inputs.valid.sum())
    del inputs, runs
    errors = errors_of(error_case(case), fit) if fit else {}
    rows: list[Row] = []
    for index, name in enumerate(backends):
        row = _describe(case, name)
        rows.append(row)
        if name not in fit:
            row["note"] = f"not measured: needs about {needed / 1000:.0f} GB of memory"
            continue
        report(_TIMED + (1 - _TIMED) * index / len(backends), f"{what}: memory of {name}", Count(index, "backends"))
        peak = measuring.peak_of(partial(measure_peak, case, name), device) if memory else Peak()
        spread = summarise(times[name])
        row |= spread | {
            "rounds": len(times[name]),
            "speedup": speedup(times[fit[0]], times[name]) if fit[0] == backends[0] else None,
            "tokens_per_second": tokens / spread["median_ms"] * 1000,
            "peak_extra_mb": peak.extra_mb,
            "value_error": errors[name][0],
            "gradient_error": errors[name][1],
            "note": peak.note,
        }
    report(1.0, what)
    return [tidy(row) for row in rows]


def _describe(case: LossCase, backend: str) -> Row:
    """Return a row with the sizes that matter, and no figure yet."""
    sizes = benchmark_of(case.objective).sizes
    own = {name: value for name, value in asdict(case).items() if name not in _SOME_SIZES or name in sizes}
    row = {"backend": backend, "device_type": torch.device(case.device).type, **own}
    return {name: row.get(name) for name in COLUMNS}
