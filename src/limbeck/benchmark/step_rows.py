"""`limbeck benchmark step`: tokens per second, memory and parts of a training step, and how near its floor it is.

A *part* of a step is, for example, the teacher's forward pass. Its *floor* is the time that its matrix products would
take at the *peak rate*, the highest rate that the machine reaches in a large matrix product. The optimizer has no
products: its floor is the time of copying the bytes that it moves.
"""

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
"""Name of the whole step in the column of parts."""
_MEMORY_DONE = 0.2
"""Share of the progress that is reported when the peak memory has been measured."""
_RATES_DONE = 0.25
"""Share of the progress that is reported when the peak rates have been measured too; the rest is the timing."""
_LONGEST_PRODUCT = 1.0
"""Most seconds for measuring the peak rate of matrix products."""
_LONGEST_COPY = 0.5
"""Most seconds for measuring the peak rate of copying."""
_SHARE_OF_RATES = 0.1
"""Share of the time of the timing that each measurement of peak rates may take, within the bounds above."""


@dataclass(frozen=True)
class Rates:
    """Peak rates of the machine.

    Attributes:
        operations: Operations a second of a large matrix product, by its number format.
        copied: Bytes a second that are read and written in a large copy.
    """

    operations: dict[torch.dtype, float]
    copied: float


def measure_peak(request: StepRequest) -> Peak:
    """Measure the peak memory of two steps, with the building of the models.

    Weights, optimizer state and activations count, and on a CPU libraries that are loaded meanwhile.
    """
    setup = set_up_step(request)

    def run() -> None:
        step = Step(setup)
        step.run()
        # The optimizer makes its state in the first step, so only the second one holds all that a later step holds.
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

    Whole steps and steps part by part take turns, so that other load on the machine affects both alike. The weights are
    random, since times do not depend on them. A part's `floor_percent` is floor / time · 100, where

        floor = operations / peak rate of matrix products in the part's number format
        floor of the optimizer = bytes / peak rate of copying
        floor of the whole step = sum of the floors of its parts

    At 100 %, a part is as fast as its products, or its memory traffic, alone could be.

    Args:
        request: The step to measure.
        seconds: Time for the timing; at least five rounds are made.
        memory: Measure peak memory too, on a CPU in another process.
        ceiling_size: Rows of the square matrices whose product gives the peak rate, and the root of the number of
            numbers that are copied; None chooses sizes by device, see `peak_rates`.
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

    # Peak rates are measured before and after the timing, and the higher ones count: a moment in which the machine is
    # busy must not lower them.
    report(_MEMORY_DONE, "a large matrix product")
    rates_before = _measure_rates(step, seconds * _SHARE_OF_RATES, ceiling_size)
    times = _measure_times(step, seconds, part_of(report, _RATES_DONE, 1.0))
    rates_after = _measure_rates(step, seconds * _SHARE_OF_RATES, ceiling_size)
    return _rows(step, times, _highest(rates_before, rates_after), peak)


def _measure_rates(step: Step, seconds: float, size: int | None) -> Rates:
    """Measure the peak rates that the step's parts are compared with.

    Args:
        step: The step; products are measured in the number formats of its parts.
        seconds: Most time for each rate.
        size: Rows of the square matrices; as many numbers are copied as one of them has. None chooses by device.
    """
    rate_by_dtype: dict[torch.dtype, float] = {}
    for part in step.operations().values():
        has_new_format = part.count > 0 and part.dtype not in rate_by_dtype
        if has_new_format:
            rate_by_dtype[part.dtype] = peak_rates.measure_ceiling(
                step.device, part.dtype, size=size, seconds=min(_LONGEST_PRODUCT, seconds)
            )
    numbers = peak_rates.COPIED if size is None else size**2
    copied = peak_rates.measure_bandwidth(step.device, numbers=numbers, seconds=min(_LONGEST_COPY, seconds))
    return Rates(operations=rate_by_dtype, copied=copied)


def _highest(first: Rates, second: Rates) -> Rates:
    """Return the higher one of each rate; both have rates of the same number formats."""
    rate_by_dtype = {dtype: max(rate, second.operations[dtype]) for dtype, rate in first.operations.items()}
    return Rates(operations=rate_by_dtype, copied=max(first.copied, second.copied))


def _measure_times(step: Step, seconds: float, report: Report) -> dict[str, list[float]]:
    """Time whole steps and steps part by part, in turns.

    Returns:
        The seconds of each round, by part; `WHOLE` has those of the whole steps.
    """
    time_whole_step = stopwatch(step.run, step.device)

    def run_whole() -> dict[str, float]:
        return {WHOLE: time_whole_step()}

    # Both return seconds by part; a whole step is a single part, `WHOLE`.
    rounds = take_turns(
        {"whole steps": run_whole, "parts": step.run_parts},
        seconds=seconds,
        tell=tell_rounds(report, f"steps of {step.tokens:,} tokens"),
    )
    times = {WHOLE: [seconds_by_part[WHOLE] for seconds_by_part in rounds["whole steps"]]}
    for part in PARTS:
        times[part] = [seconds_by_part[part] for seconds_by_part in rounds["parts"]]
    return times


def _rows(step: Step, times: dict[str, list[float]], rates: Rates, peak: Peak) -> list[Row]:
    """Make the rows of the table: the whole step, then its parts.

    Args:
        step: The step.
        times: The seconds of each round, by part; `WHOLE` has those of the whole steps.
        rates: Peak rates of the machine.
        peak: Peak memory of the step.
    """
    operations_by_part = step.operations()
    floors = _floors(step, operations_by_part, rates)
    # A part's share is of the sum of the parts, not of the whole step, which is timed without pauses between parts.
    medians = {part: summarise(times[part])["median_ms"] for part in PARTS}
    sum_of_medians = sum(medians.values())

    whole = _row(step, WHOLE, times[WHOLE], share=1.0, floor_ms=floors[WHOLE])
    count_of_step = sum(operations.count for operations in operations_by_part.values())
    whole["dtype"] = _name(step.student_dtype)
    whole["gflop"] = count_of_step / 1e9
    whole["tokens_per_second"] = step.tokens / whole["median_ms"] * 1000
    whole["peak_mb"] = peak.total_mb
    whole["peak_extra_mb"] = peak.extra_mb
    whole["note"] = peak.note

    rows = [whole]
    for part in PARTS:
        operations = operations_by_part[part]
        row = _row(step, part, times[part], share=medians[part] / sum_of_medians, floor_ms=floors[part])
        row["dtype"] = _name(operations.dtype)
        row["gflop"] = operations.count / 1e9
        # The rate that the floor of the part was computed with.
        if part == "optimizer":
            row["gbyte"] = step.optimizer_bytes() / 1e9
            row["ceiling_gbytes"] = rates.copied / 1e9
        elif operations.count > 0:
            row["ceiling_gflops"] = rates.operations[operations.dtype] / 1e9
        rows.append(row)
    return [tidy(row) for row in rows]


def _row(step: Step, part: str, seconds: list[float], *, share: float, floor_ms: float | None) -> dict[str, Any]:
    """Return a row with all columns in their order; those that depend on the part are None and set afterwards.

    Args:
        step: The step.
        part: The part, or `WHOLE`.
        seconds: Its time in each round.
        share: Its share of the time of all parts, 0 to 1.
        floor_ms: Its floor in milliseconds; None for a part without products.
    """
    spread = summarise(seconds)
    floor_percent = None
    if floor_ms is not None:
        floor_percent = floor_ms / spread["median_ms"] * 100
    return {
        "part": part,
        **_description(step),
        "dtype": None,
        "rounds": len(seconds),
        **spread,
        "share": share,
        "gflop": None,
        "gbyte": None,
        "ceiling_gbytes": None,
        "ceiling_gflops": None,
        "floor_ms": floor_ms,
        "floor_percent": floor_percent,
        "tokens_per_second": None,
        "peak_mb": None,
        "peak_extra_mb": None,
        "note": None,
    }


def _floors(step: Step, operations_by_part: dict[str, PartOperations], rates: Rates) -> dict[str, float | None]:
    """Return the milliseconds that each part and the whole step take at the peak rates; None for no products."""
    floors: dict[str, float | None] = {}
    for part, operations in operations_by_part.items():
        floors[part] = None
        if operations.count > 0:
            floors[part] = operations.count / rates.operations[operations.dtype] * 1000
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
    """Return the name of a number format, such as `float32`."""
    return str(dtype).removeprefix("torch.")
