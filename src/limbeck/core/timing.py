"""Repeated measurements: warm-up, alternating variants, device synchronisation, median and spread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import psutil
from numpy.typing import NDArray

from limbeck.core.devices import synchronise
from limbeck.core.progress import Count, Report

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Tell: TypeAlias = Callable[[float, int], None]
"""Receives the share of a measurement that is done, 0 to 1, and the number of its rounds."""
FEWEST_ROUNDS = 5
"""Fewest rounds of a measurement that tells something."""
MOST_ROUNDS = 100
"""Most rounds, however fast they are."""
_MOST_APART = 1.1
"""How far apart two figures of one speedup may be, the median of the ratios and the ratio of the medians: a factor.

On an idle machine they are within 2 percent.
"""
_UNSTEADY = 1.5
"""Ratio of the 90th to the 10th percentile of times above which a machine counts as busy; it is about 1.1 on an idle
machine."""
_BUSY_LOAD = 1.5
"""Load average for each core above which a machine counts as busy. A run that uses all cores has about 1."""
_BUSY_DEMAND = 1.1
"""Demand for each core above which a machine counts as busy; see `CoreDemand`."""
BUSY_MARK = " *"
"""Stands behind a time of a busy machine in a table, and before the note on it."""
_MOST_BEYOND_SHAPES = 1.5
"""How far a speedup may be above the ratio of the work that the shapes of two models ask for: a factor.

Smaller weights may fit into a faster memory, so that a student is faster than its shape says.
"""
_MOST_BEYOND_SHAPES_IF_UNSURE = 1.02
"""The same factor for times of a busy machine or of few rounds, where another program may have slowed down one model
more often.

On an idle machine the blocks of a student with half of equal layers are up to 2.02 times as fast.
"""
_FEW_ROUNDS = 10
"""Rounds below which a short disturbance can move the median of a speedup."""
FURTHER_ROUNDS = 10
"""Rounds that follow few rounds whose speedup the shapes cannot give: more than were disturbed."""


class TooSlowError(Exception):
    """Rounds that would take longer than the caller of `take_turns` allows.

    Attributes:
        seconds: The time that the fewest rounds would take, by the first one of the warm-up.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the rounds would take {seconds:.0f} s")
        self.seconds = seconds


def stopwatch(run: Callable[[], object], device: torch.device) -> Callable[[], float]:
    """Return a callable that runs `run` once and returns its seconds, the device's work included."""

    def timed() -> float:
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        return time.perf_counter() - start

    return timed


def tell_rounds(report: Report, what: str) -> Tell:
    """Return a `Tell` that reports rounds of a measurement."""

    def tell(share: float, rounds: int) -> None:
        report(share, what, Count(rounds, "rounds"))

    return tell


def take_turns(
    variants: Mapping[str, Callable[[], T]],
    *,
    seconds: float,
    warmup: int = 1,
    fewest: int = FEWEST_ROUNDS,
    most: int = MOST_ROUNDS,
    most_seconds: float | None = None,
    tell: Tell | None = None,
) -> dict[str, list[T]]:
    """Run variants alternately (A B, B A, A B …), so that other load of the machine falls on all alike.

    Args:
        variants: Callables by name; usually made by `stopwatch`.
        seconds: The time for everything together, warm-up included. `fewest` rounds are made whatever they take.
        warmup: Rounds that are not counted.
        fewest: Least number of counted rounds.
        most: Greatest number of counted rounds.
        most_seconds: The longest time that the fewest rounds may take; None for any.
        tell: Receives the progress, from the beginning on. Rounds of the warm-up are part of the share alone.

    Returns:
        The results of each variant, round by round: the entries at one place are of neighbouring runs.

    Raises:
        TooSlowError: if the first round of the warm-up shows that the fewest rounds would take longer than that.
    """
    start = time.perf_counter()

    def report_rounds(warmup_rounds: int, rounds: int) -> None:
        """Report the share that is done, given the finished rounds of the warm-up and those that are counted."""
        if tell is None:
            return
        # The measurement ends when both the time is over and the fewest rounds are made. A round of the warm-up takes
        # about as long as any other.
        share_of_time = (time.perf_counter() - start) / max(seconds, 1e-9)
        share_of_rounds = (warmup_rounds + rounds) / max(warmup + fewest, 1)
        tell(min(1.0, share_of_time, share_of_rounds), rounds)

    # The warm-up may take long, and is not the work that was reported before.
    report_rounds(0, 0)
    for warmup_round in range(warmup):
        for run in variants.values():
            run()
        expected_seconds = fewest * (time.perf_counter() - start)
        is_first = warmup_round == 0
        if is_first and most_seconds is not None and expected_seconds > most_seconds:
            raise TooSlowError(expected_seconds)
        report_rounds(warmup_round + 1, 0)
    results: dict[str, list[T]] = {name: [] for name in variants}
    for turn in range(most):
        elapsed = time.perf_counter() - start
        if turn >= fewest and elapsed >= seconds:
            break
        if turn > 0:
            report_rounds(warmup, turn)
        # Every other round runs in the other direction.
        names = list(variants)
        if turn % 2 == 1:
            names.reverse()
        for name in names:
            results[name].append(variants[name]())
    if tell is not None:
        rounds = len(next(iter(results.values()), []))
        tell(1.0, rounds)
    return results


def summarise(seconds: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Reduce repeated measurements to milliseconds: median, 10th and 90th percentile, named as in `records.Times`."""
    p10, median, p90 = np.percentile(np.asarray(seconds) * 1000, [10, 50, 90]).tolist()
    return {"median_ms": median, "p10_ms": p10, "p90_ms": p90}


def speedup(first: Sequence[float], other: Sequence[float]) -> float:
    """Return the speedup of `other` over `first`: the median over rounds of first / other."""
    return float(np.median(np.asarray(first) / np.asarray(other)))


class CoreDemand:
    """Measures how many cores are wanted for each core that there is, from its making on.

    Wanted are the threads of this process, and the cores that other programs use. Above 1 the programs wait for each
    other. A steady neighbour is seen here, and not in the spread of the times.

    Args:
        threads: Threads of the work that is timed.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._began = time.perf_counter()
        self._seconds_of_others = _seconds_of_others()

    def for_each_core(self) -> float | None:
        """Return the demand so far; None where the system does not tell how long other programs ran."""
        seconds_of_others = _seconds_of_others()
        seconds = time.perf_counter() - self._began
        if seconds_of_others is None or self._seconds_of_others is None or seconds <= 0:
            return None
        # The system counts in steps of a hundredth of a second, so that the difference may be a little below 0.
        cores_of_others = max(0.0, seconds_of_others - self._seconds_of_others) / seconds
        return (self._threads + cores_of_others) / (os.cpu_count() or 1)


def _seconds_of_others() -> float | None:
    """Return the processor seconds of all programs but this process since the machine was started; None if unknown."""
    try:
        times = psutil.cpu_times()._asdict()
        times_of_process = psutil.Process().cpu_times()
    except (OSError, psutil.Error):
        return None
    busy = 0.0
    for name, seconds in times.items():
        # Guests are counted as the programs that run them.
        if name not in ("idle", "iowait", "guest", "guest_nice"):
            busy += seconds
    return busy - times_of_process.user - times_of_process.system


def is_unsteady(
    p10_ms: float | None, p90_ms: float | None, *, load: float | None = None, demand: float | None = None
) -> bool:
    """Return whether the machine was busy: the times of a model spread widely, or programs wanted more than its cores.

    Args:
        p10_ms: The 10th percentile of the times; None where it is not known.
        p90_ms: The 90th percentile.
        load: The load average for each core in records of earlier versions; None in others.
        demand: The demand for each core while the times were measured, see `CoreDemand`; None where it is not known.
    """
    if load is not None and load > _BUSY_LOAD:
        return True
    if demand is not None and demand > _BUSY_DEMAND:
        return True
    if p10_ms is None or p90_ms is None:
        return False
    return p90_ms > _UNSTEADY * p10_ms


def has_few_rounds(rounds: float | None) -> bool:
    """Return whether a measurement is of so few rounds that a short disturbance can move its median.

    Args:
        rounds: The number of rounds; None where it is not known.
    """
    return rounds is not None and rounds < _FEW_ROUNDS


def is_beyond_shapes(
    ratio: float | None, shape_ratio: float | None, *, rounds: float | None = None, is_busy: bool = False
) -> bool:
    """Return whether a speedup is far above what the shapes of the models can give; False where either is not known.

    Args:
        ratio: The first model's time by the second's.
        shape_ratio: The first model's work by the second's, by their shapes.
        rounds: The number of rounds; None where it is not known.
        is_busy: Whether the times were measured on a busy machine.
    """
    if not ratio or not shape_ratio:
        return False
    most_beyond = _MOST_BEYOND_SHAPES
    if is_busy or has_few_rounds(rounds):
        most_beyond = _MOST_BEYOND_SHAPES_IF_UNSURE
    return ratio > most_beyond * shape_ratio


def is_doubtful(
    first: float | None,
    second: float | None,
    ratio: float | None,
    rounds: float | None,
    shape_ratio: float | None = None,
    *,
    is_busy: bool = False,
) -> bool:
    """Return whether a speedup is too uncertain to be printed: of too few rounds, or measured on a busy machine.

    On a busy machine the median of the ratios and the ratio of the medians, two figures of one speedup, are apart. Or
    the speedup is above what the shapes of the models can give: another program slowed down one model more often. In
    few rounds a short disturbance suffices.

    Args:
        first: Median time of the model that the other is compared with.
        second: Median time of the other.
        ratio: Median over rounds of the first's time by the second's.
        rounds: The number of rounds.
        shape_ratio: The first model's work by the second's, by their shapes; None where it is not known.
        is_busy: Whether the times were measured on a busy machine; see `is_unsteady`.
    """
    if rounds is not None and rounds < FEWEST_ROUNDS:
        return True
    if is_beyond_shapes(ratio, shape_ratio, rounds=rounds, is_busy=is_busy):
        return True
    if not first or not second or not ratio:
        return False
    # The median of the ratios, as a multiple of the ratio of the medians.
    apart = ratio / (first / second)
    are_close = 1 / _MOST_APART <= apart <= _MOST_APART
    return not are_close
