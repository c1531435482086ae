"""`limbeck benchmark step`: tokens per second, memory and parts of a training step, and how near its floor it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

import torch

from limbeck.benchmark.floor import Ceiling, measure_bandwidth, measure_ceiling
from limbeck.benchmark.memory import Peak, peak_in_child
from limbeck.benchmark.rows import Row, tidy
from limbeck.benchmark.step_run import PARTS, Step, peak_of
from limbeck.benchmark.step_setup import StepRequest, StepSetup, set_up_step
from limbeck.benchmark.timing import stopwatch, summarise, take_turns
from limbeck.core.machine import choose_device
from limbeck.core.progress import Count, Report, part_of, quietly

WHOLE = "step"
# Shares of the progress: the peak memory is done, the ceilings are done; the rest is the timing.
_MEMORY_DONE, _CEILING_DONE = 0.2, 0.25


def measure_step(
    request: StepRequest,
    *,
    seconds: float = 30.0,
    memory: bool = True,
    ceiling_size: int | None = None,
    report: Report = quietly,
) -> list[Row]:
    """Measure a whole optimizer step and its parts.

    Whole steps and steps part by part take turns. A part's `floor_percent` is floor / time · 100, with floor =
    operations / rate of a large matrix product in the part's format, or for the optimizer bytes / rate of a large copy,
    both measured: 100 % is as fast as products, or memory, alone could be. The floor of the whole step is the sum of
    its parts'. Weights are random: times do not depend on them.

    Args:
        request: What to measure.
        seconds: For the timing; at least five rounds are made.
        memory: Measure peak memory too, on a CPU in a process of its own.
        ceiling_size: As in `measure_ceiling`; its square is how many numbers are copied.
        report: Is told how far it is.

    Returns:
        A row for the whole step, then one for each of `PARTS`.

    Raises:
        LimbeckError: see `set_up_step`.
    """
    setup, device = set_up_step(request), choose_device(request.device)
    report(0.0, "peak memory")
    peak = _peak(request, device) if memory else Peak()
    report(_MEMORY_DONE, "building the models")
    step = Step(setup)
    operations = step.operations()
    dtypes = {dtype for count, dtype in operations.values() if count}

    def ceilings_now() -> dict[torch.dtype, Ceiling]:
        return {x: measure_ceiling(step.device, x, size=ceiling_size, seconds=min(1.0, seconds / 10)) for x in dtypes}

    def bandwidth_now() -> float:
        size = {} if ceiling_size is None else {"numbers": ceiling_size**2}
        return measure_bandwidth(step.device, seconds=min(0.5, seconds / 10), **size)

    report(_MEMORY_DONE, "a large matrix product")
    before, bandwidth = ceilings_now(), bandwidth_now()
    timing = part_of(report, _CEILING_DONE, 1.0)
    variants: dict[str, Callable[[], dict[str, float]]] = {"whole": _timed(step), "parts": step.run_parts}
    found = take_turns(
        variants,
        seconds=seconds,
        tell=lambda share, rounds: timing(share, f"steps of {step.tokens:,} tokens", Count(rounds, "rounds")),
    )
    # Before and after, so that a busy moment does not lower the ceiling.
    after = ceilings_now()
    ceilings = {x: max(before[x], after[x], key=lambda found: found.operations_per_second) for x in dtypes}
    times = {WHOLE: [run[WHOLE] for run in found["whole"]]}
    times |= {part: [run[part] for run in found["parts"]] for part in PARTS}
    medians = {part: summarise(times[part]).median_ms for part in PARTS}
    floors = {part: _floor_ms(*operations[part], ceilings) for part in PARTS}
    bandwidth = max(bandwidth, bandwidth_now())
    floors["optimizer"] = step.optimizer_bytes() / bandwidth * 1000
    floors[WHOLE] = sum(floor for floor in floors.values() if floor is not None)
    rows = []
    for part, seen in times.items():
        spread, floor = summarise(seen), floors[part]
        whole = part == WHOLE
        count = sum(n for n, _ in operations.values()) if whole else operations[part][0]
        dtype = step.student_dtype if whole else operations[part][1]
        rows.append(
            {
                "part": part,
                **_describe(setup, step),
                "dtype": _name(dtype),
                "rounds": len(seen),
                "median_ms": spread.median_ms,
                "p10_ms": spread.p10_ms,
                "p90_ms": spread.p90_ms,
                "share": 1.0 if whole else medians[part] / sum(medians.values()),
                "gflop": count / 1e9,
                "gbyte": step.optimizer_bytes() / 1e9 if part == "optimizer" else None,
                "ceiling_gbytes": bandwidth / 1e9 if part == "optimizer" else None,
                "ceiling_gflops": None if whole or not count else ceilings[dtype].operations_per_second / 1e9,
                "floor_ms": floor,
                "floor_percent": None if floor is None else floor / spread.median_ms * 100,
                "tokens_per_second": step.tokens / spread.median_ms * 1000 if whole else None,
                "peak_mb": peak.total_mb if whole else None,
                "peak_extra_mb": peak.extra_mb if whole else None,
                "note": peak.note if whole else None,
            }
        )
    return [tidy(row) for row in rows]


def _timed(step: Step) -> Callable[[], dict[str, float]]:
    run = stopwatch(step.run, step.device)
    return lambda: {WHOLE: run()}


def _peak(request: StepRequest, device: torch.device) -> Peak:
    spec = asdict(request)
    return peak_in_child("step", spec) if device.type == "cpu" else peak_of(spec)


def _floor_ms(count: int, dtype: torch.dtype, ceilings: Mapping[torch.dtype, Ceiling]) -> float | None:
    return ceilings[dtype].floor_ms(count) if count else None


def _describe(setup: StepSetup, step: Step) -> Row:
    student, teacher = setup.shapes
    return {
        "method": setup.method,
        "teacher": str(teacher),
        "student": str(student),
        "batch": setup.batch,
        "micro_batches": setup.micro_batches,
        "length": setup.length,
        "mask": "ragged" if setup.ragged else "full",
        "tokens": step.tokens,
        "padding_share": step.padding_share,
        "teacher_dtype": _name(setup.teacher_dtype),
        "device_type": step.device.type,
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
