"""`limbeck benchmark loss`: the costs of a loss by each of its backends, and their errors.

A *case* is a loss on inputs of one size. A *backend* is one of several ways to compute it, such as by Triton kernels.
The *plain* backend is the simplest: it holds everything at once, and may need more memory than there is.
"""

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
"""Share of the free memory above which the plain backend is not run, by an estimate of the memory that it needs."""
COLUMNS = (
    "objective", "backend", "batch", "length", "heads", "classes", "teacher_width", "student_width", "mask", "relation",
    "dtype", "device_type", "rounds", "median_ms", "p10_ms", "p90_ms", "speedup", "tokens_per_second", "peak_extra_mb",
    "value_error", "gradient_error", "note",
)  # fmt: skip
_SOME_SIZES = ("heads", "classes", "relation")
"""Sizes that only some objectives depend on; `Benchmark.sizes` names those of an objective, and the others are None."""
_TIMED = 0.7
"""Share of a case's progress that is reported when it has been timed; the rest is the measurement of memory."""


def measure_losses(
    cases: Sequence[LossCase],
    backends: Sequence[str] = (),
    *,
    seconds: float = 30.0,
    memory: bool = True,
    report: Report = no_progress,
) -> list[Row]:
    """Measure forward and backward of a loss by each backend.

    The backends of a case take turns; `speedup` compares each with the first. Errors are relative to the plain backend
    in float64 on the same numbers; see `limbeck.benchmark.loss_errors`. If the plain backend would not fit into the
    free memory, its row has a note instead of figures.

    Args:
        cases: The cases to measure.
        backends: Names of the objective's backends; empty means all that can run on the device.
        seconds: Time for all timings together; at least five rounds are made of each case.
        memory: Whether to measure peak memory too, on a CPU in a process for each backend.
        report: Receives the progress.

    Returns:
        One row for each case and backend.

    Raises:
        LimbeckError: if a backend is unknown or cannot run here, heads do not divide widths, or a case is too large.
    """
    # All cases are checked before any is measured, so that a mistake in the last one does not cost the time of all.
    backends_of_cases = [_check_case(case, backends) for case in cases]
    rows: list[Row] = []
    for index, (case, backends_of_case) in enumerate(zip(cases, backends_of_cases, strict=True)):
        progress = part_of(report, index / len(cases), (index + 1) / len(cases))
        rows += _measure(case, backends_of_case, seconds=seconds / len(cases), memory=memory, report=progress)
    return rows


def measure_peak(case: LossCase, backend: str) -> Peak:
    """Measure the peak memory of one forward and backward, the gradients included."""
    compute = benchmark_of(case.objective).backends[backend]
    # A small run first loads what is loaded only once, such as compiled kernels, and is not part of the loss.
    run_loss(compute, make_inputs(tiny_case(case)))
    inputs = make_inputs(case)
    return peak_memory.watch_peak(lambda: run_loss(compute, inputs), torch.device(case.device))


def _check_case(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Refuse a case that cannot be measured, and return the names of its backends.

    Each backend is run once on very small inputs, since some refuse a device or a size only when they run.

    Args:
        case: The case.
        backends: Names that the user gave; empty for all that can run on the device.

    Raises:
        LimbeckError: see `measure_losses`.
    """
    benchmark = benchmark_of(case.objective)
    device = torch.device(case.device)
    limits.check_length("--lengths", [case.length])
    limits.check_memory(f"--batch {case.batch} and --lengths {case.length}", _least_bytes(case), device)

    for name in backends:
        if name not in benchmark.backends:
            raise RecipeError(f"Unknown backend '{name}' for this objective.{suggestion(name, benchmark.backends)}")
    names = list(dict.fromkeys(backends))
    if not names:
        # Without a GPU, Triton runs only by its interpreter, which is for tests and far too slow to be measured.
        names = [name for name in benchmark.backends if name != "triton" or device.type == "cuda"]
    inputs = make_inputs(tiny_case(case))
    for name in names:
        run_loss(benchmark.backends[name], inputs)
    return names


def _least_bytes(case: LossCase) -> int:
    """Return a lower bound of the memory that a case takes, whatever the backend."""
    # The student and the teacher have a tensor each with a row for every token. A loss over a vocabulary also has their
    # output weights, with a row for every class.
    rows = case.batch * case.length
    if "classes" in benchmark_of(case.objective).sizes:
        rows += case.classes
    # Each number of the student has a gradient too.
    numbers_of_row = 2 * case.student_width + case.teacher_width
    return rows * numbers_of_row * as_dtype(case.dtype).itemsize


def _measure(case: LossCase, backends: Sequence[str], *, seconds: float, memory: bool, report: Report) -> list[Row]:
    """Measure a case by each backend that fits into memory; the row of another backend has a note instead.

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
        report_timing = part_of(report, 0.0, _TIMED)
        times, tokens = _measure_times(case, fitting, seconds, tell_rounds(report_timing, title))
        errors = errors_of(error_case(case), fitting)

    rows: list[Row] = []
    for index, name in enumerate(backends):
        row = _empty_row(case, name)
        if name in fitting:
            done = _TIMED + (1 - _TIMED) * index / len(backends)
            report(done, f"{title}: memory of {name}", Count(index, "backends"))
            peak = Peak()
            if memory:
                peak = peak_memory.peak_of(partial(measure_peak, case, name), device)
            # Speedups refer to the first backend, which has no times where it did not fit into memory.
            row |= _figures(times[name], times.get(backends[0]), tokens, errors[name], peak)
        else:
            row["note"] = f"not measured: needs about {megabytes_needed(case) / 1000:.0f} GB of memory"
        rows.append(row)
    report(1.0, title)
    return [tidy(row) for row in rows]


def _figures(
    times: Sequence[float], first_times: Sequence[float] | None, tokens: int, errors: RelativeErrors, peak: Peak
) -> Row:
    """The figures of a backend that was measured, by the columns of the table.

    Args:
        times: The seconds of its rounds.
        first_times: Those of the first backend, which the speedup refers to; None without a speedup.
        tokens: The tokens of a round.
        errors: Its errors beside a computation in float64.
        peak: Its peak memory.
    """
    spread = summarise(times)
    figures: Row = {
        **spread,
        "rounds": len(times),
        "tokens_per_second": tokens / spread["median_ms"] * 1000,
        "peak_extra_mb": peak.extra_mb,
        "value_error": errors.value,
        "gradient_error": errors.gradient,
        "note": peak.note,
    }
    if first_times is not None:
        figures["speedup"] = speedup(first_times, times)
    return figures


def _fitting(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends that fit into the free memory: all of them, or all but the plain one."""
    needed_bytes = megabytes_needed(case) * peak_memory.BYTES_PER_MEGABYTE
    if needed_bytes <= FREE_SHARE * limits.free_bytes(torch.device(case.device)):
        return list(backends)
    # The other backends work in pieces, so their memory is small.
    plain = benchmark_of(case.objective).plain
    return [name for name in backends if name != plain]


def _measure_times(
    case: LossCase, backends: Sequence[str], seconds: float, tell: Tell
) -> tuple[dict[str, list[float]], int]:
    """Time the forward and backward passes of backends, in turns.

    Args:
        case: The case.
        backends: Names of the backends.
        seconds: Time for all together.
        tell: Receives the progress.

    Returns:
        The seconds of each round by backend, and the number of valid tokens of the inputs.
    """
    inputs = make_inputs(case)
    device = torch.device(case.device)
    runs = {}
    for name in backends:
        backend = benchmark_of(case.objective).backends[name]
        runs[name] = stopwatch(partial(run_loss, backend, inputs), device)
    times = take_turns(runs, seconds=seconds, tell=tell)
    return times, int(inputs.valid.sum())


def _empty_row(case: LossCase, backend: str) -> Row:
    """Return a row of all `COLUMNS` with the fields of the case; the columns of measurements are None."""
    sizes_of_objective = benchmark_of(case.objective).sizes
    row: Row = dict.fromkeys(COLUMNS)
    row["backend"] = backend
    row["device_type"] = torch.device(case.device).type
    for name, value in asdict(case).items():
        is_irrelevant = name in _SOME_SIZES and name not in sizes_of_objective
        if name in COLUMNS and not is_irrelevant:
            row[name] = value
    return row
