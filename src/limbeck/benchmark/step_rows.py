"""`limbeck benchmark step`: tokens per second, memory and parts of a training step, and how near its floor it is."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from limbeck.benchmark import peak_memory, peak_rates
from limbeck.benchmark.peak_memory import Peak
from limbeck.benchmark.rows import Row, tidy
from limbeck.benchmark.step import PARTS, PartOperations, Step
from limbeck.benchmark.step_setup import StepRequest, set_up_step
from limbeck.core.devices import choose_device
from limbeck.core.progress import Report, no_progress, part_of
from limbeck.core.timing import stopwatch, summarise, take_turns, tell_rounds

WHOLE = "step"
"""The whole step, in the column of parts."""
# Shares of the progress when the peak memory and the peak rates are measured; the rest is the timing.
_MEMORY_DONE = 0.2
_RATES_DONE = 0.25
# Most seconds for measuring a peak rate.
_LONGEST_PRODUCT = 1.0
_LONGEST_COPY = 0.5


@dataclass(frozen=True)
class Rates:
    """Peak rates of the machine.

    Attributes:
        operations: Operations a second of a large matrix product, by its format.
        copied: Bytes a second of a large copy.
    """

    operations: dict[torch.dtype, float]
    copied: float


def measure_peak(request: StepRequest) -> Peak:
    """Measure the peak memory of two steps: the second has the optimizer's state.

    Weights, optimizer state and activations count, and on a CPU libraries that are loaded meanwhile.
    """
    setup = set_up_step(request)

    def run() -> None:
        step = Step(setup)
        step.run()
        step.run()

    return peak_memory.watch_peak(run, choose_device(request.device))


def measure_step(
    request: StepRequest,
    *,
    seconds: float = 30.0,
    memory: bool = True,
    ceiling_size: int | None = None,
    report: Report = no_progress,
) -> list[Row]:
    """Measure a whole optimizer step and its parts.

    Whole steps and steps part by part take turns. A part's `floor_percent` is floor / time · 100, with floor =
    operations / rate of a large matrix product in the part's format, or for the optimizer bytes / rate of a large copy,
    both measured: 100 % is as fast as products, or memory, alone could be. The floor of the whole step is the sum of
    its parts'. Weights are random: times do not depend on them.

    Args:
        request: The step to measure.
        seconds: Time for the timing; at least five rounds are made.
        memory: Measure peak memory too, on a CPU in another process.
        ceiling_size: Rows of the matrices, as in `measure_ceiling`; the copy has as many numbers as one of them.
        report: Receives the progress.

    Returns:
        A row for the whole step, then one for each of `PARTS`.

    Raises:
        LimbeckError: see `set_up_step`.
    """
    setup = set_up_step(request)
    peak = Peak()
    if memory:
        report(0.0, "peak memory")
        peak = peak_memory.peak_of(partial(measure_peak, request), choose_device(request.device))
    report(_MEMORY_DONE, "building the models")
    step = Step(setup)

    # Rates before and after the timing, so that a busy moment does not lower the ceiling.
    report(_MEMORY_DONE, "a large matrix product")
    rates_before = _measure_rates(step, seconds / 10, ceiling_size)
    times = _measure_times(step, seconds, part_of(report, _RATES_DONE, 1.0))
    rates_after = _measure_rates(step, seconds / 10, ceiling_size)
    return _rows(step, times, _highest(rates_before, rates_after), peak)


def _measure_rates(step: Step, seconds: float, size: int | None) -> Rates:
    """Measure the peak rates that the step's parts are compared with.

    Args:
        step: The step, whose formats count.
        seconds: Most time for each rate.
        size: Rows of the matrices; its square is how many numbers are copied. None chooses by device.
    """
    operations: dict[torch.dtype, float] = {}
    for part in step.operations().values():
        if part.count > 0 and part.dtype not in operations:
            operations[part.dtype] = peak_rates.measure_ceiling(
                step.device, part.dtype, size=size, seconds=min(_LONGEST_PRODUCT, seconds)
            )
    numbers = peak_rates.COPIED if size is None else size**2
    copied = peak_rates.measure_bandwidth(step.device, numbers=numbers, seconds=min(_LONGEST_COPY, seconds))
    return Rates(operations, copied)


def _highest(first: Rates, second: Rates) -> Rates:
    """Return the higher one of each rate."""
    operations = {dtype: max(rate, second.operations[dtype]) for dtype, rate in first.operations.items()}
    return Rates(operations, max(first.copied, second.copied))


def _measure_times(step: Step, seconds: float, report: Report) -> dict[str, list[float]]:
    """Time whole steps and steps part by part in turns; return the seconds of each round, by part."""
    time_step = stopwatch(step.run, step.device)
    rounds = take_turns(
        {"whole": lambda: {WHOLE: time_step()}, "parts": step.run_parts},
        seconds=seconds,
        tell=tell_rounds(report, f"steps of {step.tokens:,} tokens"),
    )
    times = {WHOLE: [seconds_by_part[WHOLE] for seconds_by_part in rounds["whole"]]}
    for part in PARTS:
        times[part] = [seconds_by_part[part] for seconds_by_part in rounds["parts"]]
    return times


def _rows(step: Step, times: dict[str, list[float]], rates: Rates, peak: Peak) -> list[Row]:
    """Make the rows of the table: the whole step, then its parts.

    Args:
        step: The step.
        times: Part to the seconds of each round; the whole step is a part too.
        rates: Peak rates of the machine.
        peak: Peak memory of the step.
    """
    operations = step.operations()
    floors = _floors(step, operations, rates)
    medians = {part: summarise(times[part])["median_ms"] for part in PARTS}
    total = sum(medians.values())

    rows: list[dict[str, Any]] = []
    for part in (WHOLE, *PARTS):
        if part == WHOLE:
            count = sum(operations_of_part.count for operations_of_part in operations.values())
            dtype = step.student_dtype
        else:
            count = operations[part].count
            dtype = operations[part].dtype
        spread = summarise(times[part])
        row = {
            "part": part,
            **_description(step),
            "dtype": _name(dtype),
            "rounds": len(times[part]),
            **spread,
            "share": 1.0 if part == WHOLE else medians[part] / total,
            "gflop": count / 1e9,
            "gbyte": None,
            "ceiling_gbytes": None,
            "ceiling_gflops": None,
            "floor_ms": floors[part],
            "floor_percent": None,
            "tokens_per_second": None,
            "peak_mb": None,
            "peak_extra_mb": None,
            "note": None,
        }
        floor = floors[part]
        if floor is not None:
            row["floor_percent"] = floor / spread["median_ms"] * 100
        if part == WHOLE:
            row["tokens_per_second"] = step.tokens / spread["median_ms"] * 1000
            row["peak_mb"] = peak.total_mb
            row["peak_extra_mb"] = peak.extra_mb
            row["note"] = peak.note
        elif part == "optimizer":
            row["gbyte"] = step.optimizer_bytes() / 1e9
            row["ceiling_gbytes"] = rates.copied / 1e9
        elif count > 0:
            row["ceiling_gflops"] = rates.operations[dtype] / 1e9
        rows.append(row)
    return [tidy(row) for row in rows]


def _floors(step: Step, operations: dict[str, PartOperations], rates: Rates) -> dict[str, float | None]:
    """Return the milliseconds that each part takes at the peak rates; None of a part without products."""
    floors: dict[str, float | None] = {}
    for part, operations_of_part in operations.items():
        floors[part] = None
        if operations_of_part.count > 0:
            floors[part] = 1000 * operations_of_part.count / rates.operations[operations_of_part.dtype]
    floors["optimizer"] = step.optimizer_bytes() / rates.copied * 1000
    floors[WHOLE] = sum(floor for floor in floors.values() if floor is not None)
    return floors


def _description(step: Step) -> dict[str, Any]:
    """Return the columns that describe the step."""
    setup = step.setup
    return {
        "method": setup.method,
        "teacher": str(setup.teacher_shape),
        "student": str(setup.student_shape),
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
    """Return for example `"float32"`."""
    return str(dtype).removeprefix("torch.")
