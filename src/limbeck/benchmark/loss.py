"""`limbeck benchmark loss`: what a loss costs by each of its backends, and how exact each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import torch
from torch import Tensor

from limbeck.benchmark.limits import check_length, check_memory, free_megabytes
from limbeck.benchmark.loss_cases import (
    CONTESTS,
    Contest,
    Inputs,
    LossCase,
    make_inputs,
    megabytes_needed,
    peak_of,
    run_loss,
    smaller,
)
from limbeck.benchmark.memory import Peak, peak_in_child
from limbeck.benchmark.rows import Row, tidy
from limbeck.benchmark.timing import speedup, stopwatch, summarise, take_turns
from limbeck.core.progress import Count, Report, part_of, quietly
from limbeck.models.loading import as_dtype

# Errors are measured on less: float64 by the plain way takes many times the memory.
ERROR_BATCH, ERROR_MEGABYTES = 2, 2000
# Of the free memory that a plain backend may be expected to take.
FREE_SHARE = 0.7
_TIMED = 0.7  # Share of a case's progress that the timing is given.


def measure_losses(
    cases: Sequence[LossCase],
    backends: Sequence[str] = (),
    *,
    seconds: float = 30.0,
    memory: bool = True,
    report: Report = quietly,
) -> list[Row]:
    """Measure forward and backward of a loss by each backend.

    The backends of a case take turns; the first is what `speedup` refers to. Errors are relative, against the plain
    backend in float64 on the same numbers: |value − exact| / |exact|, and ‖gradient − exact‖ / ‖exact‖. A plain
    backend that would not fit into the free memory has a row that says so.

    Args:
        cases: What to measure.
        backends: Names in the objective's `Contest`; empty means all that can run on the device.
        seconds: For all timings together; at least five rounds are made of each case.
        memory: Measure peak memory too, on a CPU in a process of its own for each backend.
        report: Is told how far it is.

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


def errors_of(contest: Contest, backends: Sequence[str], case: LossCase) -> dict[str, tuple[float, float]]:
    """Return the relative errors of value and gradient of each backend, see `measure_losses`."""
    inputs = make_inputs(case)
    double = inputs.double()
    exact = run_loss(contest, contest.exact, case, double)
    exact_gradient = _gradient(double, exact.device)
    found = {}
    for backend in backends:
        value = run_loss(contest, backend, case, inputs).to(exact.device).double()
        gradient = _gradient(inputs, exact.device)
        difference = (gradient - exact_gradient).norm() / exact_gradient.norm()
        found[backend] = (float((value - exact).abs() / exact.abs()), float(difference))
    return found


def error_case(contest: Contest, case: LossCase) -> LossCase:
    """Return the case that errors are measured on: at most two samples, shorter ones where float64 takes too much."""
    small = replace(case, batch=min(case.batch, ERROR_BATCH))
    while 2 * megabytes_needed(contest, small) > ERROR_MEGABYTES and (small.batch, small.length) != (1, 1):
        small = replace(small, batch=1, length=small.length if small.batch > 1 else small.length // 2)
    return small


def _gradient(inputs: Inputs, device: torch.device) -> Tensor:
    """The student's gradients, joined, in float64."""
    return torch.cat([x.grad.flatten().to(device).double() for x in inputs.leaves if x.grad is not None])


def _check(case: LossCase, backends: Sequence[str]) -> list[str]:
    """Return the backends of a case, each of which has run on a very small one."""
    contest, dtype = CONTESTS[case.objective], as_dtype(case.dtype)
    check_length("--lengths", [case.length])
    check_memory(
        f"--batch {case.batch} and --lengths {case.length}", _bytes_of_inputs(case, dtype), torch.device(case.device)
    )
    names = contest.choose(backends)
    if not names:
        # Triton's interpreter is for tests alone.
        names = [name for name in contest.backends if name != "triton" or torch.device(case.device).type == "cuda"]
    small = smaller(case)
    inputs = make_inputs(small)
    for name in names:
        run_loss(contest, name, small, inputs)
    return names


def _bytes_of_inputs(case: LossCase, dtype: torch.dtype) -> int:
    """What the streams take, the student's with their gradient; soft labels have output weights too."""
    rows = case.batch * case.length + (case.classes if case.objective == "soft_label_kl" else 0)
    return rows * (2 * case.student_width + case.teacher_width) * dtype.itemsize


def _measure(case: LossCase, backends: Sequence[str], seconds: float, memory: bool, report: Report) -> list[Row]:
    contest, device = CONTESTS[case.objective], torch.device(case.device)
    what = f"{case.objective}, {case.batch} x {case.length} tokens, {case.heads} heads"
    notes = {name: _obstacle(contest, name, case, device) for name in backends}
    fit = [name for name in backends if not notes[name]]
    report(0.0, what)
    inputs = make_inputs(case)
    runs = {name: stopwatch(partial(run_loss, contest, name, case, inputs), device) for name in fit}
    timing = part_of(report, 0.0, _TIMED)

    def tell(share: float, rounds: int) -> None:
        timing(share, what, Count(rounds, "rounds"))

    times = take_turns(runs, seconds=seconds, tell=tell) if fit else {}
    tokens = int(inputs.valid.sum())
    del inputs, runs
    errors = errors_of(contest, fit, error_case(contest, case)) if fit else {}
    rows: list[Row] = []
    for index, name in enumerate(backends):
        row = _describe(case, name)
        rows.append(row)
        if name not in fit:
            row["note"] = notes[name]
            continue
        report(_TIMED + (1 - _TIMED) * index / len(backends), f"{what}: memory of {name}", Count(index, "backends"))
        peak = _peak(case, name, device) if memory else Peak()
        spread = summarise(times[name])
        row |= {
            "rounds": len(times[name]),
            "median_ms": spread.median_ms,
            "p10_ms": spread.p10_ms,
            "p90_ms": spread.p90_ms,
            "speedup": speedup(times[fit[0]], times[name]) if fit[0] == backends[0] else None,
            "tokens_per_second": tokens / spread.median_ms * 1000,
            "peak_extra_mb": peak.extra_mb,
            "value_error": errors[name][0],
            "gradient_error": errors[name][1],
            "note": peak.note,
        }
    report(1.0, what)
    return [tidy(row) for row in rows]


def _peak(case: LossCase, backend: str, device: torch.device) -> Peak:
    spec = {"case": asdict(case), "backend": backend}
    return peak_in_child("loss", spec) if device.type == "cpu" else peak_of(spec)


def _obstacle(contest: Contest, backend: str, case: LossCase, device: torch.device) -> str:
    """Say why a plain backend should not be tried; empty where it fits."""
    if backend not in contest.plain:
        return ""
    needed = megabytes_needed(contest, case)
    if needed <= FREE_SHARE * free_megabytes(device):
        return ""
    return f"not measured: needs about {needed / 1000:.0f} GB of memory"


def _describe(case: LossCase, backend: str) -> Row:
    """Return a row with what is measured, and no figure yet; soft labels have classes instead of heads."""
    labels = case.objective == "soft_label_kl"
    return {
        "objective": case.objective,
        "backend": backend,
        "batch": case.batch,
        "length": case.length,
        "heads": None if labels else case.heads,
        "classes": case.classes if labels else None,
        "teacher_width": case.teacher_width,
        "student_width": case.student_width,
        "mask": case.mask,
        "relation": case.relation if case.objective == "relation_kl" else None,
        "dtype": case.dtype,
        "device_type": torch.device(case.device).type,
        "rounds": None,
        "median_ms": None,
        "p10_ms": None,
        "p90_ms": None,
        "speedup": None,
        "tokens_per_second": None,
        "peak_extra_mb": None,
        "value_error": None,
        "gradient_error": None,
        "note": None,
    }
