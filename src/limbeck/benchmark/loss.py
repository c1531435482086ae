"""`limbeck benchmark loss`: the costs of a loss by each of its backends, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import torch

from limbeck.benchmark import limits, peak_memory
from limbeck.benchmark.loss_case import (
    LossCase,
    benchmark_of,
    make_inputs,
    megabytes_needed,
    run_loss,
    tiny_case,
)
from limbeck.benchmark.loss_errors import RelativeErrors, error_case, errors_of
from limbeck.benchmark.peak_memory import Peak
from limbeck.benchmark.rows import Row, tidy
from limbeck.core.progress import Count, Report, no_progress, part_of
from limbeck.core.timing import Tell, speedup, stopwatch, summarise, take_turns, tell_rounds
from limbeck.errors import RecipeError, suggestion
from limbeck.models.loading import as_dtype

FREE_SHARE = 0.7
"""Share of the free memory that a plain backend may be expected to take."""
COLUMNS = (
    "objective", "backend", "batch", "length", "heads", "classes", "teacher_width", "student_width", "mask", "relation",
    "dtype", "device_type", "rounds", "median_ms", "p10_ms", "p90_ms", "speedup", "tokens_per_second", "peak_extra_mb",
    "value_error", "gradient_error", "note",
)  # fmt: skip
_SOME_SIZES = ("heads", "classes", "relation")
"""Columns that some objectives have; each names its own (`Benchmark.sizes`)."""
_TIMED = 0.7
"""Share of a case's progress when it is timed; the rest is memory."""


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
    float64 on the same numbers; see `limbeck.benchmark.loss_errors`. A plain backend that would not fit into the free
    memory has a row that says so.

    Args:
        cases: Sizes to measure.
        backends: Names of the objective's backends; empty means all that can run on the device.
        seconds: Time for all timings together; at least five rounds are made of each case.
        memory: Whether to measure peak memory too, on a CPU in a process for each backend.
        report: Receives the progress.

    Returns:
        One row a case and backend.

    Raises:
        LimbeckError: if a backend is unknown or cannot run here, heads do not divide widths, or a case is too large.
    """
    # All cases are checked before any is measured.
    backends_of_cases = [_check(case, backends) for case in cases]
    rows: list[Row] = []
    for index, (case, backends_of_case) in enumerate(zip(cases, backends_of_cases, strict=True)):
        progress = part_of(report, index / len(cases), (index + 1) / len(cases))
        rows += _measure(case, backends_of_case, seconds=seconds / len(cases), memory=memory, report=progress)
    return rows


def measure_peak(case: LossCase, backend: str) -> Peak:
    """Measure the peak memory of one forward and backward, the gradients included."""
    run = benchmark_of(case.objective).backends[backend]
    # This loads what is loaded once, such as compiled kernels.
    run_loss(run, make_inputs(tiny_case(case)))
    inputs = make_inputs(case)
    return peak_memory.watch_peak(lambda: run_loss(run, inputs), torch.device(case.device))


def _check(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends of a case, each of which has run on a very small one.

    Raises:
        LimbeckError: see `measure_losses`.
    """
    benchmark = benchmark_of(case.objective)
    device = torch.device(case.device)
    limits.check_length("--lengths", [case.length])
    # The student's tensors with their gradient, and the teacher's; where there are classes, output weights too.
    rows = case.batch * case.length
    if "classes" in benchmark.sizes:
        rows += case.classes
    least_bytes = rows * (2 * case.student_width + case.teacher_width) * as_dtype(case.dtype).itemsize
    limits.check_memory(f"--batch {case.batch} and --lengths {case.length}", least_bytes, device)

    for name in backends:
        if name not in benchmark.backends:
            raise RecipeError(f"Unknown backend '{name}' for this objective.{suggestion(name, benchmark.backends)}")
    names = list(dict.fromkeys(backends))
    if not names:
        # Triton's interpreter is for tests alone.
        names = [name for name in benchmark.backends if name != "triton" or device.type == "cuda"]
    inputs = make_inputs(tiny_case(case))
    for name in names:
        run_loss(benchmark.backends[name], inputs)
    return names


def _measure(case: LossCase, backends: Sequence[str], *, seconds: float, memory: bool, report: Report) -> list[Row]:
    """Measure a case by each backend that fits into memory; the others have a row that says so.

    Args:
        case: The case.
        backends: Names of the backends.
        seconds: Time for the timing.
        memory: Whether to measure peak memory too.
        report: Receives the progress of this case.
    """
    device = torch.device(case.device)
    title = f"{case.objective}, {case.batch} x {case.length} tokens, {case.heads} heads"
    report(0.0, title)
    fitting = _fitting(case, backends)
    times: dict[str, list[float]] = {}
    tokens = 0
    errors: dict[str, RelativeErrors] = {}
    if fitting:
        times, tokens = _measure_times(case, fitting, seconds, tell_rounds(part_of(report, 0.0, _TIMED), title))
        errors = errors_of(error_case(case), fitting)

    rows: list[Row] = []
    for index, name in enumerate(backends):
        row = _empty_row(case, name)
        rows.append(row)
        if name not in fitting:
            row["note"] = f"not measured: needs about {megabytes_needed(case) / 1000:.0f} GB of memory"
            continue
        done = _TIMED + (1 - _TIMED) * index / len(backends)
        report(done, f"{title}: memory of {name}", Count(index, "backends"))
        peak = Peak()
        if memory:
            peak = peak_memory.peak_of(partial(measure_peak, case, name), device)
        spread = summarise(times[name])
        row.update(spread)
        row["rounds"] = len(times[name])
        if backends[0] in times:
            row["speedup"] = speedup(times[backends[0]], times[name])
        row["tokens_per_second"] = tokens / spread["median_ms"] * 1000
        row["peak_extra_mb"] = peak.extra_mb
        row["value_error"] = errors[name].value
        row["gradient_error"] = errors[name].gradient
        row["note"] = peak.note
    report(1.0, title)
    return [tidy(row) for row in rows]


def _fitting(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends that fit into the free memory; the plain one alone may not."""
    needed = megabytes_needed(case) * peak_memory.BYTES_PER_MEGABYTE
    if needed <= FREE_SHARE * limits.free_bytes(torch.device(case.device)):
        return list(backends)
    plain = benchmark_of(case.objective).plain
    return [name for name in backends if name != plain]


def _measure_times(
    case: LossCase, backends: Sequence[str], seconds: float, tell: Tell
) -> tuple[dict[str, list[float]], int]:
    """Time backends in turns; return the seconds of each round by backend, and the valid tokens of a round."""
    inputs = make_inputs(case)
    device = torch.device(case.device)
    runs = {}
    for name in backends:
        backend = benchmark_of(case.objective).backends[name]
        runs[name] = stopwatch(partial(run_loss, backend, inputs), device)
    times = take_turns(runs, seconds=seconds, tell=tell)
    return times, int(inputs.valid.sum())


def _empty_row(case: LossCase, backend: str) -> Row:
    """Return a row with the sizes that matter, and no figure yet."""
    sizes = benchmark_of(case.objective).sizes
    row: Row = dict.fromkeys(COLUMNS)
    row["backend"] = backend
    row["device_type"] = torch.device(case.device).type
    for name, value in asdict(case).items():
        is_shown = name in COLUMNS and (name not in _SOME_SIZES or name in sizes)
        if is_shown:
            row[name] = value
    return row
